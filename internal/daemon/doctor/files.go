package doctor

import (
	"errors"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/capture"
	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/pmd/memif"
)

// at is where a path of the configuration is below Root.
func (m *Machine) at(path string) string {
	if abs, err := filepath.Abs(path); err == nil {
		path = abs
	}
	return filepath.Join(m.Root, path)
}

// controlSocket finds what is in its place, or that it cannot be made. Its last directory is made.
func (m *Machine) controlSocket() []Finding {
	path := m.Config.Control.Path
	if path == "" {
		return nil
	}
	if found, missing := m.socketFolder(path); found != nil || missing {
		return found
	}
	return because(control.Check(m.at(path)))
}

// files are what a daemon makes, and what it reads.
func (m *Machine) files() (all []Finding) {
	c := m.Config
	for i := range c.Ports {
		p := &c.Ports[i]
		if p.Capture != "" {
			all = append(all, m.capture(p.Capture)...)
		}
		if p.Open.Serve && p.Socket != "" {
			all = append(all, m.memifSocket(p.Socket)...)
		}
	}
	for _, path := range c.Sockets {
		all = append(all, m.memifSocket(path)...)
	}
	for i := range c.Services {
		if s := &c.Services[i]; s.Type == config.File {
			if err := unix.Access(m.at(s.Path), unix.R_OK); err != nil {
				all = append(all, lack(true, "ls -l "+s.Path, "service %s: %s: %v", s.Name, s.Path, err)...)
			}
		}
	}
	return all
}

// capture finds that there is no file for one, or one that it must not write over.
func (m *Machine) capture(file string) []Finding {
	if _, err := os.Lstat(m.at(file)); errors.Is(err, os.ErrNotExist) {
		if found := m.folder(file); found != nil {
			return found
		}
	}
	return because(capture.CheckFile(m.at(file)))
}

// memifSocket finds that another has the socket of a server, or that it cannot be made.
func (m *Machine) memifSocket(path string) []Finding {
	if path[0] == '@' {
		return because(memif.CheckSocket(path))
	}
	if found, missing := m.socketFolder(path); found != nil || missing {
		return found
	}
	return because(memif.CheckSocket(m.at(path)))
}

// socketFolder finds that a socket cannot be made in its directory, which is made where it is
// missing.
func (m *Machine) socketFolder(path string) (found []Finding, missing bool) {
	if dir := filepath.Dir(m.at(path)); errors.Is(unix.Access(dir, unix.F_OK), unix.ENOENT) {
		return m.folder(filepath.Dir(path)), true
	}
	return m.folder(path), false
}

// because is a lack for an error, which says what to do.
func because(err error) []Finding {
	if err == nil {
		return nil
	}
	return lack(true, "", "%v", err)
}

// folder finds that something cannot be made there.
func (m *Machine) folder(file string) []Finding {
	dir := filepath.Dir(file)
	switch err := unix.Access(m.at(dir), unix.W_OK|unix.X_OK); {
	case errors.Is(err, unix.ENOENT):
		return lack(true, "mkdir -p "+dir, "no folder %s, for %s", dir, filepath.Base(file))
	case err != nil:
		return lack(true, "ls -ld "+dir, "%s: %v: %s cannot be made there", dir, err, filepath.Base(file))
	}
	return nil
}
