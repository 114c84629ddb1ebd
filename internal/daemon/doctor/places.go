package doctor

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/port/portfile"
	"github.com/rnicd/rnicd/internal/status"
	"github.com/rnicd/rnicd/pmd"
)

// places: devices, sockets, TCP ports and folders that the configuration names are there, and
// free. What a running daemon of this configuration has is its own; it says what its devices'
// trouble is.
func (m *Machine) places() (all []Finding) {
	if m.Config == nil {
		return ok("without a configuration none is known")
	}
	if pid := m.running(); pid > 0 {
		now, err := m.ask()
		if err == nil && !m.isOurs(pid, now.Config) {
			all = lack(true, "", "process %d answers on the control socket %s, of a daemon with the "+
				"configuration %s: give this one a path of its own, or end that one",
				pid, m.Config.Control.Path, now.Config)
		} else {
			all = ok("process %d runs with this control socket: devices, ports and sockets are its own", pid)
			if err != nil {
				return append(all, warn("", "it does not say how its devices are: %v", err)...)
			}
			return append(all, now.troubles()...)
		}
	} else {
		all = m.controlSocket()
	}
	for i := range m.Config.Ports {
		all = append(all, m.device(&m.Config.Ports[i])...)
	}
	for _, where := range m.listens() {
		all = append(all, m.listenable(where)...)
	}
	all = append(all, m.files()...)
	if len(all) == 0 {
		return ok("devices, ports, sockets and folders are there and free")
	}
	return all
}

// running is the process that serves on the control socket, or 0.
func (m *Machine) running() int {
	path := m.Config.Control.Path
	if path == "" {
		return 0
	}
	c, err := net.Dial("unix", filepath.Join(m.Root, path))
	if err != nil {
		return 0
	}
	defer c.Close()
	raw, err := c.(*net.UnixConn).SyscallConn()
	if err != nil {
		return 0
	}
	pid := 0
	_ = raw.Control(func(fd uintptr) {
		if cred, err := unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
			pid = int(cred.Pid)
		}
	})
	return pid
}

// askTimeout bounds the question to a running daemon.
const askTimeout = 3 * time.Second

// running is what a daemon, or a switch, says of itself.
type running struct {
	Config         string
	Ports, Uplinks []struct {
		Name    string
		Trouble *status.Trouble
	}
}

func (m *Machine) ask() (now running, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	client := control.NewClient(filepath.Join(m.Root, m.Config.Control.Path))
	defer client.Close()
	err = client.Get(ctx, "/v1/status", nil, &now)
	return now, err
}

// isOurs says whether a process that runs with a file runs with this configuration. What cannot be
// found out is taken to be so.
func (m *Machine) isOurs(pid int, file string) bool {
	proc := "/proc/" + strconv.Itoa(pid)
	if file == "" || m.Config.File == "" {
		return true
	}
	if !filepath.IsAbs(file) {
		dir, err := os.Readlink(proc + "/cwd")
		if err != nil {
			return true
		}
		file = filepath.Join(dir, file)
	}
	own, err := filepath.Abs(m.Config.File)
	if err != nil || own == file {
		return true
	}
	theirs, err := os.Stat(proc + "/root" + file)
	if err != nil {
		theirs, err = os.Stat(file)
	}
	ours, failed := os.Stat(own)
	return err == nil && failed == nil && os.SameFile(theirs, ours)
}

// troubles are those of its devices. One that stops all frames is a lack; one to come, at a
// restart, is not.
func (now *running) troubles() (all []Finding) {
	seen := map[string]bool{}
	for _, d := range append(now.Ports, now.Uplinks...) {
		if d.Trouble != nil && !seen[d.Name] { // each queue of an uplink has it
			seen[d.Name] = true
			all = append(all, lack(d.Trouble.Kind != pmd.TroubleBridge, "", "port %s: %s", d.Name,
				d.Trouble.Text)...)
		}
	}
	return all
}

// listens are the places on this host's sockets.
func (m *Machine) listens() (all []string) {
	c := m.Config
	if c.Metrics.Listen != "" {
		all = append(all, c.Metrics.Listen)
	}
	for i := range c.Services {
		for _, on := range c.Services[i].On {
			p := &c.Ports[on].Open
			if !p.Driver.Sockets {
				continue
			}
			host := ""
			if p.HostAt.IsValid() {
				host = p.HostAt.String()
			}
			all = append(all, net.JoinHostPort(host, strconv.Itoa(int(c.Services[i].Listen))))
		}
	}
	return all
}

// listenable finds that a place is taken. An address that a port brings with it comes when that
// is open.
func (m *Machine) listenable(where string) []Finding {
	l, err := net.Listen("tcp", where)
	if err == nil {
		_ = l.Close()
		return nil
	}
	host, service, _ := net.SplitHostPort(where)
	at, _ := netip.ParseAddr(host)
	brought := slices.ContainsFunc(m.Config.Ports, func(p portfile.Port) bool {
		return at.IsValid() && p.Open.HostAddr.Addr() == at.Unmap()
	})
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return lack(true, "ss -ltnp sport = :"+service, "%s is another process's", where)
	case errors.Is(err, unix.EADDRNOTAVAIL) && brought:
		return nil
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return lack(true, "ip address", "%s: no interface has this address now", where)
	}
	return lack(true, "", "%v", err)
}
