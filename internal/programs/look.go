package programs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"

	"golang.org/x/sys/unix"
)

// Program is one that has a socket, or had.
type Program struct {
	PID  int
	UID  int
	Path string // of its socket
}

// All are the programs of this process's user, of root those of all users, in the order of their
// numbers. Some may have ended: Dial says so.
func All() (all []Program) {
	for dir, uid := range dirsFor(os.Geteuid()) {
		all = append(all, in(dir, uid)...)
	}
	slices.SortFunc(all, func(a, b Program) int {
		return cmp.Or(cmp.Compare(a.PID, b.PID), cmp.Compare(a.Path, b.Path))
	})
	return all
}

// in are those in a directory of a user.
func in(dir string, uid int) (all []Program) {
	d, err := open(dir, uid)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(-1) // those up to an error
	for _, name := range names {
		if pid, ok := pidOf(name); ok {
			all = append(all, Program{pid, uid, filepath.Join(dir, name)})
		}
	}
	return all
}

// GoneError: the program has ended. What was left of it is removed.
type GoneError struct{ PID int }

func (e *GoneError) Error() string { return fmt.Sprintf("program %d has ended", e.PID) }

// Dial connects with the program, if it is one of its user's. What it removes, and whom it asks,
// is what it has looked at, whatever the user puts in its place meanwhile.
func (p Program) Dial(ctx context.Context) (net.Conn, error) {
	dir, name := filepath.Split(p.Path)
	d, err := open(dir, p.UID)
	if err != nil {
		return nil, err
	}
	defer d.Close()
	at, err := unix.Openat(int(d.Fd()), name, unix.O_PATH|unix.O_NOFOLLOW|unix.O_CLOEXEC, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil, &GoneError{p.PID}
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Path, err)
	}
	defer unix.Close(at)
	var st unix.Stat_t
	if err := unix.Fstat(at, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFSOCK {
		return nil, fmt.Errorf("%s is no socket", p.Path)
	}
	c, err := (&net.Dialer{}).DialContext(ctx, "unix", "/proc/self/fd/"+strconv.Itoa(at))
	if errors.Is(err, unix.ECONNREFUSED) {
		return nil, p.gone(d, name)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", p.Path, errors.Unwrap(err))
	}
	peer, err := peerOf(c.(*net.UnixConn))
	switch {
	case err != nil:
	case int(peer.Uid) != p.UID:
		err = fmt.Errorf("%s: a process of another user answers", p.Path)
	case peer.Pid > 0 && ended(int(peer.Pid)):
		err = p.gone(d, name) // a child of its has the socket, and does not answer
	default:
		return c, nil
	}
	_ = c.Close()
	return nil, err
}

// ended says whether a process has ended, whether its parent has noticed or not.
func ended(pid int) bool {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return errors.Is(unix.Kill(pid, 0), unix.ESRCH)
	}
	defer unix.Close(fd)
	n, err := unix.Poll([]unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}, 0)
	return err == nil && n > 0
}

func (p Program) gone(dir *os.File, name string) error {
	_ = unix.Unlinkat(int(dir.Fd()), name, 0) // another one that looks may have
	return &GoneError{p.PID}
}

func openDir(dir string) (*os.File, error) {
	return os.OpenFile(dir, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
}

// private: a directory is a user's, and nobody else may use it.
func private(d *os.File, uid int) error {
	var st unix.Stat_t
	if err := unix.Fstat(int(d.Fd()), &st); err != nil {
		return err
	}
	if int(st.Uid) != uid || st.Mode&0o077 != 0 {
		return fmt.Errorf("%s is not user %d's alone: it needs that owner, and mode 0700", d.Name(), uid)
	}
	return nil
}
