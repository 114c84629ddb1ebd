// Package unixsock makes sockets in the file system that have their mode from the first moment on,
// whatever the umask, and without changing the mode of anything else.
//
// Its limit: the directory of a socket may belong to another user, who can put something else in
// its place; then Listen fails, or the mode that changes is that of another socket of ours.
package unixsock

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"

	"golang.org/x/sys/unix"
)

// Listen makes a socket at an address, whose network is unix or unixpacket. A name in the abstract
// namespace, @ and more, has no mode. Errors: those of bind, as EADDRINUSE, and of what stands at
// the path when the mode is to be widened.
func Listen(addr *net.UnixAddr, mode os.FileMode) (*net.UnixListener, error) {
	// The mode is set before the name is there; bind takes away what the umask does.
	cfg := net.ListenConfig{Control: func(_, _ string, raw syscall.RawConn) error {
		var err error
		if ctl := raw.Control(func(fd uintptr) {
			err = unix.Fchmod(int(fd), uint32(mode.Perm()))
		}); ctl != nil {
			return ctl
		}
		return err
	}}
	l, err := cfg.Listen(context.Background(), addr.Net, addr.Name)
	if err != nil {
		return nil, err
	}
	if addr.Name[0] != '@' {
		if err := chmod(addr.Name, mode); err != nil {
			_ = l.Close()
			return nil, err
		}
	}
	return l.(*net.UnixListener), nil
}

// MakeDir makes the directory of a socket where it is missing, and no other. A name in the abstract
// namespace has none.
func MakeDir(path string) error {
	if path == "" || path[0] == '@' {
		return nil
	}
	dir := filepath.Dir(path)
	err := os.Mkdir(dir, 0o755)
	switch {
	case errors.Is(err, os.ErrExist):
		return nil
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("no folder for %s: mkdir -p %s", path, dir)
	}
	return err
}

// chmod changes the mode of a socket of ours; of what a link leads to, never.
func chmod(path string, mode os.FileMode) error {
	fd, err := unix.Open(path, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK || int(st.Uid) != os.Geteuid():
		return &os.PathError{Op: "listen", Path: path, Err: errReplaced}
	case st.Mode&0o777 == uint32(mode.Perm()):
		return nil
	}
	return os.Chmod("/proc/self/fd/"+strconv.Itoa(fd), mode.Perm())
}

var errReplaced = errors.New("another user has put something else in the socket's place: choose " +
	"a directory of your own")
