package capture

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/pmd/wire"
)

// both make the file of a Capture, and that of Files.
var both = map[string]func(path string) (close func() error, err error){
	"Create": func(path string) (func() error, error) {
		c, err := Create(path, Config{})
		if err != nil {
			return nil, err
		}
		return c.Close, nil
	},
	"NewFiles": func(path string) (func() error, error) {
		f, err := NewFiles(FilesConfig{Path: path})
		if err != nil {
			return nil, err
		}
		return f.Close, nil
	},
}

// A file that is there becomes its owner's alone, and empty.
func TestFilesBecomePrivate(t *testing.T) {
	for name, open := range both {
		for _, mode := range []os.FileMode{0o644, 0o666, 0o200, 0o777} {
			path := filepath.Join(t.TempDir(), "f.pcapng")
			require.NoError(t, os.WriteFile(path, []byte("what was there"), mode))
			require.NoError(t, os.Chmod(path, mode))
			close, err := open(path)
			require.NoError(t, err, name)
			info := must(os.Stat(path))(t)
			require.Equal(t, os.FileMode(0o600), info.Mode(), "%s over %v", name, mode)
			require.Zero(t, info.Size())
			require.NoError(t, close())
		}
	}
}

// What is not a file of our own alone is refused, and left as it is.
func TestFilesThatAreNotOurs(t *testing.T) {
	for how, c := range map[string]struct {
		make   func(t *testing.T, path, other string)
		reason string
	}{
		"a link": {func(t *testing.T, path, other string) {
			require.NoError(t, os.Symlink(other, path))
		}, "is a link"},
		"a link to nothing": {func(t *testing.T, path, other string) {
			require.NoError(t, os.Symlink(other+"x", path))
		}, "is a link"},
		"a second name": {func(t *testing.T, path, other string) {
			require.NoError(t, os.Link(other, path))
		}, "has another name"},
		"a pipe without end": {func(t *testing.T, path, _ string) {
			require.NoError(t, unix.Mkfifo(path, 0o600))
		}, "no regular file"},
		"a pipe with another": {pipeWithReader, "no regular file"},
		"a folder": {func(t *testing.T, path, _ string) {
			require.NoError(t, os.Mkdir(path, 0o700))
		}, "is a directory"},
		"a device":       {device, "no regular file"},
		"another user's": {others, "belongs to user 1"},
	} {
		for name, open := range both {
			t.Run(how+"/"+name, func(t *testing.T) {
				dir := t.TempDir()
				path, other := filepath.Join(dir, "f.pcapng"), filepath.Join(dir, "other")
				require.NoError(t, os.WriteFile(other, []byte("dear"), 0o644))
				c.make(t, path, other)
				before, err := os.Lstat(path)
				require.NoError(t, err)
				require.ErrorContains(t, errOf(open(path)), c.reason)
				after := must(os.Lstat(path))(t)
				require.Equal(t, before.Mode(), after.Mode())
				require.Equal(t, before.Size(), after.Size())
				text := must(os.ReadFile(other))(t)
				require.Equal(t, "dear", string(text))
				require.NoFileExists(t, other+"x")
			})
		}
	}
}

func pipeWithReader(t *testing.T, path, _ string) {
	require.NoError(t, unix.Mkfifo(path, 0o600))
	r := must(os.OpenFile(path, os.O_RDONLY|unix.O_NONBLOCK, 0))(t)
	t.Cleanup(func() { r.Close() })
}

func device(t *testing.T, path, _ string) {
	if os.Geteuid() != 0 {
		skip.Missing(t, "not root: makes a device")
	}
	require.NoError(t, unix.Mknod(path, unix.S_IFCHR|0o600, int(unix.Mkdev(1, 3))))
}

func others(t *testing.T, path, _ string) {
	if os.Geteuid() != 0 {
		skip.Missing(t, "not root: gives a file away")
	}
	require.NoError(t, os.WriteFile(path, []byte("theirs"), 0o666))
	require.NoError(t, os.Chown(path, 1, 1))
}

// Two captures do not write to one file, whatever makes them; once one is closed, the other may.
func TestOneCaptureOfAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "f.pcapng")
	for _, first := range both {
		for _, second := range both {
			close, err := first(path)
			require.NoError(t, err)
			_, err = second(path)
			require.ErrorContains(t, err, "another capture writes to "+path)
			require.NoError(t, close())
			close, err = second(path)
			require.NoError(t, err)
			require.NoError(t, close())
		}
	}
}

// stuck is a file that takes nothing, and does not say so, until it is full.
type stuck struct{ writing, full chan struct{} }

func (s *stuck) Write([]byte) (int, error) {
	select {
	case s.writing <- struct{}{}:
	default:
	}
	<-s.full
	return 0, unix.ENOSPC
}

// That a file is full is known before Close, and what is known does not wait for the file.
func TestFullIsToldAtOnce(t *testing.T) {
	out := &stuck{make(chan struct{}, 1), make(chan struct{})}
	c := newCapture(t, out, Config{})
	near, _ := newSides(t, c, wire.Config{})
	near.send(frame(1, 60), frame(2, 60))
	<-out.writing
	require.NoError(t, c.Err())
	require.Zero(t, c.Counters().Failed)
	close(out.full)
	<-c.Done()
	require.ErrorIs(t, c.Err(), unix.ENOSPC)
	require.ErrorContains(t, c.Err(), "the file is incomplete")
	require.True(t, errors.Is(c.Close(), unix.ENOSPC))
}
