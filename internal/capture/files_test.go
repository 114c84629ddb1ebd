package capture

import (
	"bytes"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/stretchr/testify/require"
)

// stream is a pcapng of two interfaces and n frames; some were dropped.
func stream(t testing.TB, n int) []byte {
	var out bytes.Buffer
	c := newCapture(t, &out, Config{Slots: 4})
	p, near, peer := newPoint(t, wire.Config{Names: []string{"rnic0", "peer"}})
	require.NoError(t, c.Attach(p))
	other, _, _ := newPoint(t, wire.Config{Names: []string{"rnic1", "peer"}})
	require.NoError(t, c.Attach(other))
	for i := range n {
		near.send(frame(byte(i), 60+i))
		peer.recv()
		c.mu.Lock()
		c.drain()
		c.mu.Unlock()
	}
	c.mu.Lock()
	require.Equal(t, 6, near.send(frame(1, 60), frame(1, 60), frame(1, 60), frame(1, 60), frame(1, 60),
		frame(1, 60)))
	c.mu.Unlock()
	require.NoError(t, c.Close())
	return out.Bytes()
}

// Each file of a ring is complete in itself, and together they have the newest frames, in order.
func TestRingOfFiles(t *testing.T) {
	all := stream(t, 200)
	want, _ := read(t, all)
	require.Len(t, want, 204)
	for seed := range uint64(5) {
		rng := rand.New(rand.NewPCG(seed, 0))
		cfg := FilesConfig{Path: filepath.Join(t.TempDir(), "all.pcapng"), SizeMax: 4000, Count: 3}
		f := newFiles(t, cfg)
		for rest := all; len(rest) > 0; { // pieces of any size
			n := 1 + rng.IntN(min(len(rest), 700))
			k := must(f.Write(rest[:n]))(t)
			require.Equal(t, n, k)
			rest = rest[n:]
		}
		require.NoError(t, f.Close())
		require.Equal(t, Counters{Written: 204, Dropped: 2}, f.Counters())
		names := must(filepath.Glob(filepath.Join(filepath.Dir(cfg.Path), "*")))(t)
		require.Len(t, names, 3)
		var got []packet
		for i := f.next - 3; i < f.next; i++ {
			name := cfg.Name(i)
			info := must(os.Stat(name))(t)
			require.Equal(t, os.FileMode(0o600), info.Mode())
			text := must(os.ReadFile(name))(t)
			packets, r := read(t, text)
			require.Equal(t, 2, r.NInterfaces())
			require.NotEmpty(t, packets)
			if i+1 < f.next { // the last one also has the statistics
				require.LessOrEqual(t, info.Size(), cfg.SizeMax)
			}
			got = append(got, packets...)
		}
		require.Equal(t, want[len(want)-len(got):], got)
		require.Less(t, len(got), len(want))
	}
}

func TestOneFile(t *testing.T) {
	all := stream(t, 3)
	path := filepath.Join(t.TempDir(), "one")
	f := newFiles(t, FilesConfig{Path: path})
	must(f.Write(all[:len(all)-5]))(t)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	packets, _ := read(t, text)
	require.Len(t, packets, 7, "what is whole is there")
	_, err = f.Write(all[len(all)-5:])
	require.NoError(t, err)
	require.NoError(t, f.Close())
	text, err = os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, all, text)

	var out bytes.Buffer
	f = newFiles(t, FilesConfig{Out: &out})
	must(f.Write(all[:len(all)-5]))(t)
	require.ErrorContains(t, f.Close(), "capture: the stream ended early")
}

func TestFilesErrors(t *testing.T) {
	for want, cfg := range map[string]FilesConfig{
		"capture: files of -1 octets, 0 of them; must be positive, or 0 for no end": {SizeMax: -1},
		"capture: what is no file has no size at which the next one begins": {SizeMax: 1,
			Out: &bytes.Buffer{}},
		"capture: 3 files, and no size at which the next one begins": {Count: 3},
	} {
		require.EqualError(t, errOf(NewFiles(cfg)), want)
	}
	_, err := NewFiles(FilesConfig{Path: filepath.Join(t.TempDir(), "no", "such")})
	require.ErrorContains(t, err, "choose a file that can be written")
	for _, bad := range []string{"HTTP/1.1 400 Bad",
		"\x0a\x0d\x0d\x0a\x1c\x00\x00\x00\x1a\x2b\x3c\x4d",
		"\x06\x00\x00\x00\x00\x00\x00\x7f\x00\x00\x00\x00"} {
		f := newFiles(t, FilesConfig{Out: &bytes.Buffer{}})
		require.EqualError(t, errOf(f.Write([]byte(bad))), "capture: this is no pcapng of a Capture")
	}
	cfg := FilesConfig{Path: "a/b.pcapng", SizeMax: 1}
	require.Equal(t, "a/b.12.pcapng", cfg.Name(12))
	cfg.Count = 11
	require.Equal(t, "a/b.01.pcapng", cfg.Name(12))
}
