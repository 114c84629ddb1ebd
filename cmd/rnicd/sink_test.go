package main

import (
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// names are those in a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	require.NoError(t, err)
	for _, e := range entries {
		all = append(all, e.Name())
	}
	return all
}

// A file has no name before it is whole, or another one where it must have one; and then its own,
// in the place of an old file.
func TestSink(t *testing.T) {
	for _, named := range []bool{false, true} {
		dir := t.TempDir()
		path := filepath.Join(dir, strings.Repeat("n", 255)) // as long as a name can be
		s, err := newSink(path, 10)
		require.NoError(t, err)
		s.named = named
		for i, content := range []string{"first", "", "second"} {
			for range 2 { // the second time is another try
				w, err := s.begin(uint64(len(content)))
				require.NoError(t, err)
				_, err = w.Write([]byte(content))
				require.NoError(t, err)
				found := names(t, dir)
				if named {
					require.True(t, strings.HasPrefix(found[0], temporary))
					found = found[1:]
				}
				require.Len(t, found, min(i, 1))
			}
			require.NoError(t, s.commit())
			got, err := os.ReadFile(path)
			require.NoError(t, err)
			require.Equal(t, content, string(got))
			require.Len(t, names(t, dir), 1)
		}
		_, err = s.begin(10)
		require.NoError(t, err)
		s.discard()
		require.Len(t, names(t, dir), 1)

		require.NoError(t, os.Remove(path)) // what cannot have its name leaves nothing
		require.NoError(t, os.MkdirAll(filepath.Join(path, "x"), 0o700))
		_, err = s.begin(1)
		require.NoError(t, err)
		require.Error(t, s.commit())
		require.Len(t, names(t, dir), 1)
	}
}

// What a server claims is held against the limit and the room there is before anything is reserved,
// on a disk and in memory.
func TestSinkClaims(t *testing.T) {
	dirs := []string{t.TempDir()}
	if shm, err := os.MkdirTemp("/dev/shm", "rnicd-test-"); err == nil {
		t.Cleanup(func() { os.RemoveAll(shm) })
		dirs = append(dirs, shm)
	}
	for _, dir := range dirs {
		free, _, err := freeIn(dir)
		require.NoError(t, err)
		for _, claim := range []uint64{free + 1<<30, 1 << 50, math.MaxInt64, math.MaxInt64 + 1, math.MaxUint64} {
			s, err := newSink(filepath.Join(dir, "x"), 0)
			require.NoError(t, err)
			begin := time.Now()
			_, err = s.begin(claim)
			require.ErrorContains(t, err, "no room for the ")
			require.Less(t, time.Since(begin), 500*time.Millisecond)
			require.Nil(t, s.file)
		}
		s, err := newSink(filepath.Join(dir, "x"), 1000)
		require.NoError(t, err)
		_, err = s.begin(1001)
		require.EqualError(t, err, "the server offers 1001 B (1001 octets), --size-max is 1000 B")
		_, err = s.begin(1000)
		require.NoError(t, err)
		s.discard()
		require.Empty(t, names(t, dir))
	}
	_, _, err := freeIn("/no/such/directory")
	require.Error(t, err)
}

// Nothing is left of a get that is ended in the middle, whichever way.
func TestGetEnded(t *testing.T) {
	t.Parallel()
	for _, how := range []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGKILL} {
		ns := newNamespace(t)
		server := ns.serving(t, "--fault", slow, "--file", zeros(t, 64<<20))
		dir := t.TempDir()
		get := ns.rnicd(t, "get", serverAddr, filepath.Join(dir, "got"))
		get.Expect(t, 1, `^got +\d+ %`)
		get.Signal(t, how)
		require.NotZero(t, get.Wait(t), "%s", get)
		require.Empty(t, names(t, dir), "%v", how)
		server.Expect(t, 1, "^failed ")
		ns.stop(t, server)
	}
}
