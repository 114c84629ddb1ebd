package unixsock

import (
	"net"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// A socket has its mode whatever the umask, which takes rights of others away.
func TestMode(t *testing.T) {
	defer unix.Umask(unix.Umask(0o077))
	for _, mode := range []os.FileMode{0o600, 0o660, 0o666} {
		path := filepath.Join(t.TempDir(), "s")
		l, err := Listen(&net.UnixAddr{Name: path, Net: "unix"}, mode)
		require.NoError(t, err)
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.Equal(t, os.ModeSocket|mode, info.Mode())
		_, err = Listen(&net.UnixAddr{Name: path, Net: "unix"}, mode)
		require.ErrorIs(t, err, unix.EADDRINUSE)
		require.NoError(t, l.Close())
	}
	l, err := Listen(&net.UnixAddr{Name: "@" + filepath.Join(t.TempDir(), "s"), Net: "unixpacket"},
		0o600)
	require.NoError(t, err)
	require.NoError(t, l.Close())
}

// What was put in the place of the socket keeps its mode, and what a link leads to.
func TestModeOfNothingElse(t *testing.T) {
	dir := t.TempDir()
	file, link, other := filepath.Join(dir, "file"), filepath.Join(dir, "link"),
		filepath.Join(dir, "other")
	require.NoError(t, os.WriteFile(file, nil, 0o600))
	require.NoError(t, os.Symlink(file, link))
	l, err := Listen(&net.UnixAddr{Name: other, Net: "unix"}, 0o600)
	require.NoError(t, err)
	defer l.Close()
	toSocket := filepath.Join(dir, "to socket")
	require.NoError(t, os.Symlink(other, toSocket))
	for _, path := range []string{file, link, toSocket} {
		require.ErrorContains(t, chmod(path, 0o666), "choose a directory of your own", path)
	}
	require.ErrorIs(t, chmod(filepath.Join(dir, "nothing"), 0o666), os.ErrNotExist)
	for _, path := range []string{file, other} {
		info, err := os.Stat(path)
		require.NoError(t, err)
		require.EqualValues(t, 0o600, info.Mode().Perm(), path)
	}
}

// The directory of a socket is made, no other; a name in the abstract namespace has none.
func TestMakeDir(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		require.NoError(t, MakeDir(filepath.Join(dir, "new", "s")))
	}
	info, err := os.Stat(filepath.Join(dir, "new"))
	require.NoError(t, err)
	require.True(t, info.IsDir())
	deep := filepath.Join(dir, "a", "b", "s")
	require.EqualError(t, MakeDir(deep), "no folder for "+deep+": mkdir -p "+filepath.Dir(deep))
	require.NoFileExists(t, filepath.Join(dir, "a"))
	require.NoError(t, MakeDir("@a/b"))
}
