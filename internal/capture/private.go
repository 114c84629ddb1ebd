package capture

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// create opens a file to be written from its beginning. It holds what users say to each other, so
// it is a file of this process's user alone, whatever was there: not one that a link leads to, or
// that has another name, or another owner. And it is this capture's alone, until it is closed: two
// that wrote to one file would spoil it. What is wrong with a file that is there leaves it as it
// is.
func create(path string) (*os.File, error) {
	f, err := open(path, unix.O_CREAT)
	if err != nil {
		return nil, err
	}
	if err := own(f); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}

// CheckFile says why Create would refuse what is at a path, and leaves it as it is. Nothing there
// is right; whether a file can be made there is not looked at.
func CheckFile(path string) error {
	f, err := open(path, 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	defer f.Close()
	return judge(f)
}

func open(path string, flags int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_WRONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|flags, 0o600)
	switch {
	case errors.Is(err, unix.ELOOP):
		return nil, fmt.Errorf("capture: %s is a link; name the file itself", path)
	case errors.Is(err, unix.ENXIO):
		return nil, notRegular(path)
	case err != nil:
		return nil, fmt.Errorf("capture: %w; choose a file that can be written", err)
	}
	return f, nil
}

func notRegular(path string) error {
	return fmt.Errorf("capture: %s is no regular file; choose another, or pipe `rnicd capture` into "+
		"a program", path)
}

// own makes an open file an empty one that only its owner can read.
func own(f *os.File) error {
	if err := judge(f); err != nil {
		return err
	}
	if err := f.Chmod(0o600); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	if err := f.Truncate(0); err != nil {
		return fmt.Errorf("capture: %w", err)
	}
	return nil
}

// judge refuses what is not a file of this process's user alone, and has it locked until it is
// closed.
func judge(f *os.File) error {
	fd := int(f.Fd())
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return fmt.Errorf("capture: %s: %w", f.Name(), err)
	}
	switch {
	case st.Mode&unix.S_IFMT != unix.S_IFREG:
		return notRegular(f.Name())
	case int(st.Uid) != os.Geteuid():
		return fmt.Errorf("capture: %s belongs to user %d; remove it, or choose another",
			f.Name(), st.Uid)
	case st.Nlink > 1:
		return fmt.Errorf("capture: %s has another name as well; remove it, or choose another", f.Name())
	}
	if err := unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB); errors.Is(err, unix.EWOULDBLOCK) {
		return fmt.Errorf("capture: another capture writes to %s; choose another file", f.Name())
	}
	return nil
}
