package programs

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

const (
	root    = 0
	dirName = "rnicd-programs"
)

// dirsOf are where sockets of a user's programs may be. A program takes the first that it can make:
// the second is for users without a session, and for containers where nobody may write to /run.
func dirsOf(uid int) []string {
	run := "/run"
	if uid != root {
		run = filepath.Join("/run/user", strconv.Itoa(uid))
	}
	return []string{filepath.Join(run, dirName), fmt.Sprintf("/tmp/%s-%d", dirName, uid)}
}

// dirsFor are those that a user may look at, with whose they are: root those of all.
func dirsFor(uid int) map[string]int {
	all := map[string]int{}
	for _, dir := range dirsOf(uid) {
		all[dir] = uid
	}
	if uid != root {
		return all
	}
	sessions, _ := filepath.Glob(filepath.Join("/run/user/*", dirName)) // the pattern is one
	for _, dir := range sessions {
		if of, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil {
			all[dir] = of
		}
	}
	others, _ := filepath.Glob("/tmp/" + dirName + "-*")
	for _, dir := range others {
		_, name, _ := strings.Cut(dir, dirName+"-")
		if of, err := strconv.Atoi(name); err == nil {
			all[dir] = of
		}
	}
	return all
}

// fileOf is the name of a process's socket. Where a directory is shared by containers several may
// have the same number: n tells them apart.
func fileOf(pid, n int) string {
	if n == 0 {
		return fmt.Sprintf("%d%s", pid, suffix)
	}
	return fmt.Sprintf("%d.%d%s", pid, n, suffix)
}

const suffix = ".sock"

// pidOf is the process of a socket's name.
func pidOf(file string) (pid int, ok bool) {
	name, is := strings.CutSuffix(file, suffix)
	name, _, _ = strings.Cut(name, ".")
	pid, err := strconv.Atoi(name)
	return pid, is && err == nil && pid > 0
}

// open opens a directory that is a user's alone: what another user has put in its place is not
// looked at.
func open(dir string, uid int) (*os.File, error) {
	f, err := openDir(dir)
	if err != nil {
		return nil, err
	}
	if err := private(f, uid); err != nil {
		_ = f.Close()
		return nil, err
	}
	return f, nil
}
