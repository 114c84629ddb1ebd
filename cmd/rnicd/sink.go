package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"
)

// sink is a file that appears under its name when it is whole. Until then it has no name at all, so
// that nothing is left of it however the process ends; or, where the file system does not know such
// files, another name beside the wanted one. In the place of a file that is there it can only be
// renamed: for that moment it has another name, too.
type sink struct {
	path    string   // as it was given
	target  string   // where that leads to: no symbolic link
	most    uint64   // octets that are taken; 0: as many as there is room for
	named   bool     // files have names from the beginning
	file    *os.File // nil: not begun, or over
	visible bool     // file has a name
	syncDir func(dir string) error
}

// newSink refuses a name that can be no file, before anybody is asked for anything.
func newSink(path string, most uint64) (*sink, error) {
	st, err := os.Stat(path)
	switch {
	case path == "":
		return nil, errors.New("the name of the file is empty")
	case path == "-":
		return nil, errors.New("-: a file gets its name when all of it is there, and standard output " +
			"has none; a file of that name is ./-")
	case err == nil && st.IsDir():
		return nil, fmt.Errorf("%s is a directory; want the name of a file", path)
	case err == nil && !st.Mode().IsRegular():
		return nil, fmt.Errorf("%s is not a regular file, and would be replaced by one", path)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		return nil, err
	}
	if _, err := os.Stat(filepath.Dir(path)); err != nil {
		return nil, err
	}
	target, err := follow(path)
	if err != nil {
		return nil, err
	}
	return &sink{path: path, target: target, most: most, syncDir: syncDir}, nil
}

// linksMax is how many symbolic links are followed, as the system does (path_resolution(7)).
const linksMax = 40

// follow is where a path leads to: a file that is no symbolic link, or that is not there. Its
// directory is.
func follow(path string) (string, error) {
	for range linksMax {
		dir, name := filepath.Split(path)
		if dir == "" {
			dir = "."
		}
		dir, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return "", err
		}
		file := filepath.Join(dir, name)
		to, err := os.Readlink(file)
		switch {
		case errors.Is(err, fs.ErrNotExist), errors.Is(err, unix.EINVAL):
			return file, nil
		case err != nil:
			return "", err
		case filepath.IsAbs(to):
			path = to
		default:
			path = dir + "/" + to // not Join: what is before a .. may be a link
		}
	}
	return "", &fs.PathError{Op: "follow", Path: path, Err: unix.ELOOP}
}

// begin makes the file, with room for length octets, so that a full disk is found before the
// network is asked. What the server says of the length is held against what is free first: the
// system may take its time to find that out.
func (s *sink) begin(length uint64) (io.Writer, error) {
	s.discard() // of a try before this
	if s.most > 0 && length > s.most {
		return nil, fmt.Errorf("the server offers %s (%d octets), --size-max is %s", octets(length),
			length, octets(s.most))
	}
	free, of, err := freeIn(filepath.Dir(s.target))
	if err != nil {
		return nil, err
	}
	if length > free || length > math.MaxInt64 {
		return nil, fmt.Errorf("%s: no room for the %s (%d octets) that the server offers: %s of "+
			"%s are free", s.path, octets(length), length, octets(free), of)
	}
	if err := s.create(); err != nil {
		return nil, err
	}
	if length == 0 {
		return s.file, nil
	}
	err = unix.Fallocate(int(s.file.Fd()), 0, 0, int64(length))
	if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.ENOSYS) {
		return nil, fmt.Errorf("%s: no room for %d octets: %w", s.path, length, err)
	}
	return s.file, nil
}

// create opens a file without a name, if there can be such a one and a name can be given to it
// later.
func (s *sink) create() (err error) {
	dir := filepath.Dir(s.target)
	s.visible = false
	if !s.named {
		if s.file, err = os.OpenFile(dir, unix.O_TMPFILE|os.O_RDWR, 0o600); err == nil {
			if _, err = os.Stat(s.handle()); err == nil {
				return nil
			}
			s.discard()
		}
	}
	s.file, err = os.CreateTemp(dir, temporary+"*")
	s.visible = err == nil
	return err
}

// temporary begins the names of files that are not whole, or not yet renamed.
const temporary = ".rnicd-get-"

// handle is a name by which the system finds an open file that has none.
func (s *sink) handle() string { return "/proc/self/fd/" + strconv.Itoa(int(s.file.Fd())) }

// commit gives the file its name, for good: also after a crash of the system. A file of that name
// keeps its mode, a new one has the usual.
func (s *sink) commit() error {
	mode := fs.FileMode(0o666) &^ umask()
	if st, err := os.Stat(s.target); err == nil {
		mode = st.Mode().Perm()
	}
	err := errors.Join(s.file.Chmod(mode), s.file.Sync())
	name := s.file.Name()
	if err == nil && !s.visible {
		name, err = s.link()
	}
	err = errors.Join(err, s.file.Close())
	if err == nil && name != s.target {
		err = os.Rename(name, s.target)
	}
	if err != nil && s.visible {
		os.Remove(name)
	}
	s.file = nil
	if err != nil {
		return err
	}
	if err := s.syncDir(filepath.Dir(s.target)); err != nil {
		return fmt.Errorf("%s is there, but may not outlast a crash of the system: %w", s.path, err)
	}
	return nil
}

// syncDir has a directory's names outlast a crash, where the file system can do that and we may
// look into it.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	if err = d.Sync(); errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return nil
	}
	return err
}

// linkTries is how many names are tried; each is taken once in 2^32 times.
const linkTries = 16

// link gives the file its name; or, if there is a file of that name, one beside it, which rename
// can then put into its place.
func (s *sink) link() (name string, err error) {
	name = s.target
	for range linkTries {
		err = unix.Linkat(unix.AT_FDCWD, s.handle(), unix.AT_FDCWD, name, unix.AT_SYMLINK_FOLLOW)
		if err == nil {
			s.visible = true
			return name, nil
		}
		if !errors.Is(err, unix.EEXIST) {
			break
		}
		name = filepath.Join(filepath.Dir(s.target), fmt.Sprintf("%s%08x", temporary, rand.Uint32()))
	}
	return "", fmt.Errorf("%s: its octets are there, but they get no name: %w", s.path, err)
}

// discard takes an unfinished file away.
func (s *sink) discard() {
	if s.file != nil {
		s.file.Close()
		if s.visible {
			os.Remove(s.file.Name())
		}
		s.file = nil
	}
}

// umask is the process's, which can only be read by setting it.
func umask() fs.FileMode {
	m := unix.Umask(0)
	unix.Umask(m)
	return fs.FileMode(m)
}

// freeIn is how many octets a file in a directory may have, and of what they are: the file
// system's, or memory, where that keeps its files there. A file system that does not tell has as
// many as a file can have.
func freeIn(dir string) (free uint64, of string, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, "", fmt.Errorf("%s: %w", dir, err)
	}
	free, of = uint64(math.MaxInt64), "its file system"
	if st.Blocks > 0 {
		free = st.Bavail * uint64(st.Bsize)
	}
	if st.Type == unix.TMPFS_MAGIC || st.Type == unix.RAMFS_MAGIC {
		if m, ok := memoryAvailable(); ok && m < free {
			return m, "the memory", nil
		}
	}
	return free, of, nil
}

// memoryAvailable is what the system can give without taking it from anybody (proc(5),
// MemAvailable).
func memoryAvailable() (uint64, bool) {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0, false
	}
	for line := range bytes.Lines(text) {
		var kB uint64
		if n, _ := fmt.Sscanf(string(line), "MemAvailable: %d kB", &kB); n == 1 {
			return kB << 10, true
		}
	}
	return 0, false
}
