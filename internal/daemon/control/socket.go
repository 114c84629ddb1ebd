package control

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/unixsock"
)

const (
	runDir       = "/run/rnicd"
	switchRunDir = "/run/rnicd-switch"
	socketName   = "control.sock"
	// startsWait is for another daemon that makes a socket in the same directory at this moment.
	startsWait  = 2 * time.Second
	startsPause = 10 * time.Millisecond
)

// DefaultPath is where a daemon's socket is unless its configuration says otherwise, and where
// commands look: /run/rnicd for root, and for users that may write there; else the user's own
// runtime directory. Empty: there is none.
func DefaultPath() string { return defaultIn(runDir) }

// DefaultSwitchPath is DefaultPath of a switch: in a directory of its own, for a daemon may run on
// the same host.
func DefaultSwitchPath() string { return defaultIn(switchRunDir) }

func defaultIn(dir string) string {
	if os.Geteuid() == 0 || unix.Access(dir, unix.W_OK) == nil {
		return filepath.Join(dir, socketName)
	}
	if own := os.Getenv("XDG_RUNTIME_DIR"); own != "" {
		return filepath.Join(own, filepath.Base(dir), socketName)
	}
	return ""
}

// InUseError: a process that lives has the socket.
type InUseError struct{ Path string }

func (e *InUseError) Error() string {
	return fmt.Sprintf("%s is another daemon's: give this one a path of its own, [control] socket, "+
		"or end that one", e.Path)
}

// ParseMode reads permissions as 0600.
func ParseMode(text string) (os.FileMode, error) {
	n, err := strconv.ParseUint(text, 8, 32)
	if err != nil || n > 0o777 || len(text) < 3 || len(text) > 4 {
		return 0, fmt.Errorf("%q: want permissions as 0600 or 0660", text)
	}
	return os.FileMode(n), nil
}

// listen makes the socket, and its directory if that is missing. The socket has no more than its
// mode from the first moment on. The socket of a process that has ended is taken over.
func listen(path string, mode os.FileMode) (net.Listener, error) {
	if err := unixsock.MakeDir(path); err != nil {
		return nil, err
	}
	unlock, err := lock(path + lockSuffix)
	if err != nil {
		return nil, err
	}
	defer unlock()
	l, err := bind(path, mode)
	if !errors.Is(err, unix.EADDRINUSE) {
		return l, err
	}
	if err := abandoned(path); err != nil {
		return nil, err
	}
	if err := os.Remove(path); err != nil {
		return nil, err
	}
	return bind(path, mode)
}

// abandoned: what is at a path is the socket of a process that has ended; or the error says what it
// is.
func abandoned(path string) error {
	if info, err := os.Lstat(path); err != nil || info.Mode()&os.ModeSocket == 0 {
		return fmt.Errorf("%s is there, and is no socket: choose another path", path)
	}
	conn, err := net.Dial("unix", path)
	if err == nil {
		_ = conn.Close()
	}
	if !errors.Is(err, unix.ECONNREFUSED) {
		return &InUseError{path}
	}
	return nil
}

// Check says why Listen would refuse what is at a path now, and makes nothing. Whether something
// can be made there is not looked at.
func Check(path string) error {
	f, err := os.OpenFile(path+lockSuffix, os.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, unix.ENOENT):
	case err != nil:
		return err
	default:
		defer f.Close()
		if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
			return lockedError(path+lockSuffix, err)
		}
	}
	if _, err := os.Lstat(path); errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return abandoned(path)
}

const lockSuffix = ".lock"

func lockedError(file string, err error) error {
	return fmt.Errorf("%s is locked: another daemon starts with the same socket, "+
		"or hangs (fuser -v shows which): %w", file, err)
}

// lock keeps two daemons that start at the same time from taking over each other's socket. The
// file is the daemon's own: what others can open they can lock. It stays, empty: to remove it
// would let two have it.
func lock(file string) (unlock func(), err error) {
	f, err := os.OpenFile(file, os.O_RDWR|os.O_CREATE|unix.O_NOFOLLOW, 0o600)
	if err != nil {
		return nil, err
	}
	for end := time.Now().Add(startsWait); ; time.Sleep(startsPause) {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if err == nil {
			return func() { _ = f.Close() }, nil // which unlocks it
		}
		if !errors.Is(err, unix.EWOULDBLOCK) || time.Now().After(end) {
			_ = f.Close()
			return nil, lockedError(file, err)
		}
	}
}

func bind(path string, mode os.FileMode) (net.Listener, error) {
	l, err := unixsock.Listen(&net.UnixAddr{Name: path, Net: "unix"}, mode)
	if err != nil {
		return nil, err
	}
	return l, nil
}
