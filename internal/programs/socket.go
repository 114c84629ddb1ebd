package programs

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/owned"
	"github.com/rnicd/rnicd/internal/unixsock"
)

// Socket is a process's own.
type Socket struct {
	listen *net.UnixListener
	path   string
	is     unix.Stat_t // what stands there
	uid    uint32      // who made it, whatever rights the process has later
}

// sweepMax is how many others a process looks at for what those that were killed have left.
const sweepMax = 64

// sameMax is how many processes of one number may have sockets in a directory.
const sameMax = 10

// Listen makes the socket of this process, in a directory, which is made if it is missing, or of
// none in one of the user's own. A child of fork that is to have one calls it, too: that of its
// parent is not its own. The error of the last directory tells why there is none.
func Listen(dir string) (s *Socket, err error) {
	uid := os.Geteuid()
	if dir != "" {
		if err := mkdir(dir); err != nil {
			return nil, err
		}
		return listenIn(dir, uid)
	}
	for _, dir := range dirsOf(uid) {
		if err = mkdir(dir); err != nil {
			continue
		}
		var d *os.File
		if d, err = open(dir, uid); err != nil {
			continue
		}
		_ = d.Close() // only read
		if s, err = listenIn(dir, uid); err == nil {
			return s, nil
		}
	}
	return nil, err
}

func mkdir(dir string) error {
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return nil
}

func listenIn(dir string, uid int) (s *Socket, err error) {
	for n := range sameMax {
		path := filepath.Join(dir, fileOf(os.Getpid(), n))
		s, err = bind(path, uid)
		if errors.Is(err, unix.EADDRINUSE) && leftBehind(path) {
			if err = os.Remove(path); err == nil {
				s, err = bind(path, uid)
			}
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			if err == nil {
				sweep(dir)
			}
			return s, err
		}
	}
	return nil, err
}

// sweep removes sockets of processes that have ended: where nobody looks they would be ever more.
func sweep(dir string) {
	d, err := openDir(dir)
	if err != nil {
		return
	}
	defer d.Close()
	names, _ := d.Readdirnames(sweepMax)
	for _, name := range names {
		pid, ok := pidOf(name)
		path := filepath.Join(dir, name)
		// of another namespace's process, which may share the directory, the number says nothing
		if ok && errors.Is(unix.Kill(pid, 0), unix.ESRCH) && refuses(path) {
			_ = os.Remove(path) // another process may have
		}
	}
}

// refuses says that what stands at a path is the socket of a process that has ended.
func refuses(path string) bool {
	info, err := os.Lstat(path)
	if err != nil || info.Mode()&os.ModeSocket == 0 {
		return false // what is no socket is not ours to remove
	}
	c, err := net.Dial("unix", path)
	if err == nil {
		_ = c.Close()
	}
	return errors.Is(err, unix.ECONNREFUSED)
}

func bind(path string, uid int) (*Socket, error) {
	l, err := unixsock.Listen(&net.UnixAddr{Name: path, Net: "unix"}, 0o600)
	if err != nil {
		return nil, err
	}
	s := &Socket{listen: l, path: path, uid: uint32(uid)}
	l.SetUnlinkOnClose(false) // Remove looks first
	if err := unix.Lstat(path, &s.is); err != nil {
		_ = l.Close()
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	keep(l)
	return s, nil
}

// leftBehind says that what stands at a path is of a process that had this one's number, and has
// ended. A child of its may have the socket still, on which nobody listens.
func leftBehind(path string) bool {
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
		return false // what is no socket is not ours to remove
	}
	c, err := net.Dial("unix", path)
	if err != nil {
		return errors.Is(err, unix.ECONNREFUSED)
	}
	defer c.Close()
	peer, err := peerOf(c.(*net.UnixConn))
	return err == nil && int(peer.Pid) == os.Getpid()
}

// Path of the socket.
func (s *Socket) Path() string { return s.path }

// Remove removes the socket's name, if it is still this socket's: the process may have another root
// by now.
func (s *Socket) Remove() {
	var st unix.Stat_t
	if unix.Lstat(s.path, &st) == nil && st.Dev == s.is.Dev && st.Ino == s.is.Ino {
		_ = unix.Unlink(s.path) // or the next process that looks does
	}
}

// peerOf is the process at the other end: of one that has connected, who listened.
func peerOf(c *net.UnixConn) (cred *unix.Ucred, err error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	if ctl := raw.Control(func(fd uintptr) {
		cred, err = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); ctl != nil {
		return nil, ctl
	}
	return cred, err
}

// keep has the program not close the descriptor of c.
func keep(c syscall.Conn) { control(c, owned.Keep) }

// forget is for the caller that closes c.
func forget(c syscall.Conn) { control(c, owned.Forget) }

func control(c syscall.Conn, do func(fd int)) {
	if raw, err := c.SyscallConn(); err == nil {
		_ = raw.Control(func(fd uintptr) { do(int(fd)) }) // one that is closed has none
	}
}
