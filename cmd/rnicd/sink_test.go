package main

import (
	"encoding/binary"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/sample"
)

// names are those in a directory.
func names(t *testing.T, dir string) (all []string) {
	t.Helper()
	entries := must(os.ReadDir(dir))(t)
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
		s := must(newSink(path, 10))(t)
		s.named = named
		for i, content := range []string{"first", "", "second"} {
			for range 2 { // the second time is another try
				w := must(s.begin(uint64(len(content))))(t)
				_, err := w.Write([]byte(content))
				require.NoError(t, err)
				found := names(t, dir)
				if named {
					require.True(t, strings.HasPrefix(found[0], temporary))
					found = found[1:]
				}
				require.Len(t, found, min(i, 1))
			}
			require.NoError(t, s.commit())
			require.Equal(t, content, readFile(t, path))
			require.Len(t, names(t, dir), 1)
		}
		must(s.begin(10))(t)
		s.discard()
		require.Len(t, names(t, dir), 1)

		require.NoError(t, os.Remove(path)) // what cannot have its name leaves nothing
		require.NoError(t, os.MkdirAll(filepath.Join(path, "x"), 0o700))
		must(s.begin(1))(t)
		require.Error(t, s.commit())
		require.Len(t, names(t, dir), 1)
	}
}

// created are the names that appear in a directory while f runs.
func created(t *testing.T, dir string, f func()) (all []string) {
	t.Helper()
	fd := must(unix.InotifyInit1(unix.IN_NONBLOCK | unix.IN_CLOEXEC))(t)
	defer unix.Close(fd)
	must(unix.InotifyAddWatch(fd, dir, unix.IN_CREATE|unix.IN_MOVED_TO))(t)
	f()
	b := make([]byte, 64<<10)
	n := must(unix.Read(fd, b))(t)
	for b = b[:n]; len(b) > 0; {
		size := int(binary.NativeEndian.Uint32(b[12:]))
		all = append(all, strings.TrimRight(string(b[unix.SizeofInotifyEvent:][:size]), "\x00"))
		b = b[unix.SizeofInotifyEvent+size:]
	}
	return all
}

// A new file has no name but its own, ever, so that nothing else can be left of it. In the place of
// an old one, or of one that appears meanwhile, it is renamed.
func TestSinkNames(t *testing.T) {
	dir := t.TempDir()
	s := must(newSink(filepath.Join(dir, "x"), 0))(t)
	get := func(meanwhile func()) {
		w := must(s.begin(3))(t)
		must(w.Write([]byte("new")))(t)
		meanwhile()
		require.NoError(t, s.commit())
		require.Equal(t, "new", readFile(t, filepath.Join(dir, "x")))
		require.Equal(t, []string{"x"}, names(t, dir))
	}
	old := func() { require.NoError(t, os.WriteFile(filepath.Join(dir, "x"), []byte("old"), 0o600)) }
	require.Equal(t, []string{"x"}, created(t, dir, func() { get(func() {}) }))
	found := created(t, dir, func() { get(func() {}) })
	require.Len(t, found, 2)
	require.True(t, strings.HasPrefix(found[0], temporary), found)
	require.Equal(t, "x", found[1])
	require.NoError(t, os.Remove(filepath.Join(dir, "x")))
	found = created(t, dir, func() { get(old) })
	require.Len(t, found, 3)
	require.Equal(t, "x", found[2])
}

// The name is written to the disk as well, after it has been given.
func TestSinkSyncsTheName(t *testing.T) {
	for _, named := range []bool{false, true} {
		dir := t.TempDir()
		s, err := newSink(filepath.Join(dir, "x"), 0)
		require.NoError(t, err)
		s.named = named
		for range 2 {
			var synced []string
			s.syncDir = func(dir string) error {
				synced = append(synced, dir)
				require.Equal(t, []string{"x"}, names(t, dir))
				return syncDir(dir)
			}
			must(s.begin(1))(t)
			require.NoError(t, s.commit())
			require.Equal(t, []string{dir}, synced)
		}
		s.syncDir = func(string) error { return unix.EIO }
		must(s.begin(1))(t)
		err = s.commit()
		require.ErrorIs(t, err, unix.EIO)
		require.ErrorContains(t, err, "x is there, but")
		require.Equal(t, []string{"x"}, names(t, dir))
	}
	require.NoError(t, syncDir("/proc"), "which cannot")
}

// A symbolic link stays, and what it leads to is replaced, or made.
func TestSinkFollowsLinks(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	require.NoError(t, os.MkdirAll(at("far/away"), 0o700))
	require.NoError(t, os.WriteFile(at("far/file"), []byte("old"), 0o640))
	for name, to := range map[string]string{
		"file": "far/file", "absolute": at("far/file"), "chain": "file", "dangling": "far/new",
		"up": "away/../only", "away": "far/away",
		"loop": "other", "other": "loop", "nowhere": "no/such", "directory": "far",
	} {
		require.NoError(t, os.Symlink(to, at(name)))
	}
	for name, target := range map[string]string{
		"file": "far/file", "absolute": "far/file", "chain": "far/file", "dangling": "far/new",
		"up": "far/only", "away/../file": "far/file",
	} {
		link, linked := os.Readlink(dir + "/" + name)
		s, err := newSink(dir+"/"+name, 0)
		require.NoError(t, err, name)
		w, err := s.begin(uint64(len(name)))
		require.NoError(t, err, name)
		must(w.Write([]byte(name)))(t)
		require.NoError(t, s.commit(), name)
		require.Equal(t, name, readFile(t, at(target)))
		if linked == nil {
			now, err := os.Readlink(at(name))
			require.NoError(t, err, name)
			require.Equal(t, link, now)
		}
	}
	st := must(os.Stat(at("far/file")))(t)
	require.Equal(t, fs.FileMode(0o640), st.Mode())
	for name, want := range map[string]string{
		"loop": "too many levels of symbolic links", "nowhere": "no such file or directory",
		"directory": "is a directory",
	} {
		_, err := newSink(at(name), 0)
		require.ErrorContains(t, err, want, name)
	}
	_, err := follow(at("loop"))
	require.ErrorIs(t, err, unix.ELOOP)
}

// No name is no file: nothing is asked for.
func TestSinkWithoutAName(t *testing.T) {
	_, err := newSink("", 0)
	require.EqualError(t, err, "the name of the file is empty")
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
		for _, claim := range []uint64{free + 1<<30, 1 << 50, math.MaxInt64, math.MaxInt64 + 1,
			math.MaxUint64} {
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
		must(s.begin(1000))(t)
		s.discard()
		require.Empty(t, names(t, dir))
	}
	_, _, err := freeIn("/no/such/directory")
	require.Error(t, err)
}

// Nothing is left of a get that is ended in the middle, whichever way.
func TestGetEnded(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	t.Parallel()
	for _, how := range sample.Of(
		t, 2, []syscall.Signal{syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGQUIT,
			syscall.SIGKILL}) {
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
