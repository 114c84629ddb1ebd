package owned

import (
	"bufio"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// KeepRuntime keeps the epoll of Go's runtime and its eventfd for good: without them the runtime
// ends the process. It finds them by a pipe that the runtime watches. Any goroutine.
func KeepRuntime() error {
	r, w, err := os.Pipe()
	if err != nil {
		return err
	}
	defer r.Close()
	defer w.Close()
	raw, err := r.SyscallConn()
	if err != nil {
		return err
	}
	pipe := -1
	if err := raw.Control(func(fd uintptr) { pipe = int(fd) }); err != nil {
		return err
	}
	names, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return err
	}
	for _, name := range names {
		if fd, err := strconv.Atoi(name.Name()); err == nil && isAnonymous(fd, "eventpoll") {
			if all := watched(fd); all[pipe] {
				Keep(fd)
				for fd := range all {
					if isAnonymous(fd, "eventfd") {
						Keep(fd)
					}
				}
				return nil
			}
		}
	}
	return errors.New("no epoll of Go's runtime in /proc/self/fd")
}

func isAnonymous(fd int, kind string) bool {
	to, _ := os.Readlink(filepath.Join("/proc/self/fd", strconv.Itoa(fd)))
	return to == "anon_inode:["+kind+"]"
}

// watched are the numbers that an epoll has: lines "tfd: 5 events: ...".
func watched(epoll int) map[int]bool {
	all := map[int]bool{}
	f, err := os.Open(filepath.Join("/proc/self/fdinfo", strconv.Itoa(epoll)))
	if err != nil {
		return all
	}
	defer f.Close()
	for lines := bufio.NewScanner(f); lines.Scan(); {
		if words := strings.Fields(lines.Text()); len(words) > 1 && words[0] == "tfd:" {
			if fd, err := strconv.Atoi(words[1]); err == nil {
				all[fd] = true
			}
		}
	}
	return all
}
