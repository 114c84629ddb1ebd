package doctor

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/daemon/config"
	"github.com/rnicd/rnicd/daemon/control"
	"github.com/rnicd/rnicd/daemon/port"
	"github.com/rnicd/rnicd/daemon/status"
	"github.com/rnicd/rnicd/pmd"
)

// places: devices, sockets, TCP ports and folders that the configuration names are there, and free. What
// a running daemon of this configuration has is its own; it says what its devices' trouble is.
func (m *Machine) places() (all []Finding) {
	if m.Config == nil {
		return ok("without a configuration none is known")
	}
	if pid := m.running(); pid > 0 {
		return append(ok("process %d runs with this control socket: devices, ports and sockets are its own", pid), m.troubles()...)
	}
	for i := range m.Config.Ports {
		all = append(all, m.device(&m.Config.Ports[i])...)
	}
	for _, where := range m.listens() {
		all = append(all, listenable(where)...)
	}
	for _, file := range m.files() {
		all = append(all, m.folder(file)...)
	}
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

// troubles are those of the devices of the running daemon, or switch, as its status has them. One that stops
// all frames is a lack; one to come, at a restart, is not.
func (m *Machine) troubles() (all []Finding) {
	ctx, cancel := context.WithTimeout(context.Background(), askTimeout)
	defer cancel()
	client := control.NewClient(filepath.Join(m.Root, m.Config.Control.Path))
	defer client.Close()
	type device struct {
		Name    string
		Trouble *status.Trouble
	}
	var is struct{ Ports, Uplinks []device }
	if err := client.Get(ctx, "/v1/status", nil, &is); err != nil {
		return warn("", "it does not say how its devices are: %v", err)
	}
	seen := map[string]bool{}
	for _, d := range append(is.Ports, is.Uplinks...) {
		if d.Trouble != nil && !seen[d.Name] { // each queue of an uplink has it
			seen[d.Name] = true
			all = append(all, lack(d.Trouble.Kind != pmd.TroubleBridge, "", "port %s: %s", d.Name, d.Trouble.Text)...)
		}
	}
	return all
}

// iffUp is in a device's flags, iffPersist in a TAP's (linux/if.h, linux/if_tun.h).
const (
	iffUp      = 0x1
	iffPersist = 0x800
)

// tapDevice finds that a TAP is another process's, or down. One that is not persistent is there only while a
// process holds it.
func (m *Machine) tapDevice(port, name string) []Finding {
	kind, err := strconv.ParseUint(m.read("sys/class/net/"+name+"/tun_flags"), 0, 32)
	if err != nil {
		return nil // there is none, which is made then
	}
	if kind&iffPersist == 0 || m.read("sys/class/net/"+name+"/carrier") == "1" {
		return lack(true, "", "port %s: another process holds the TAP %s", port, name)
	}
	flags, err := strconv.ParseUint(m.read("sys/class/net/"+name+"/flags"), 0, 32)
	if err == nil && flags&iffUp == 0 {
		return lack(!m.capable(capNetAdmin), "ip link set "+name+" up", "port %s: the TAP %s is down, until one that may (CAP_NET_ADMIN) sets it up", port, name)
	}
	return nil
}

// device finds who has a port's device, or that it is missing.
func (m *Machine) device(p *config.Port) []Finding {
	if err := port.Holder(&p.Open); err != nil {
		return lack(true, "", "port %s: %v", p.Name, err)
	}
	name := p.Open.Device
	if _, args, found := strings.Cut(name, "iface="); found && p.Driver == "dpdk" {
		name, _, _ = strings.Cut(args, ",")
		if !strings.HasPrefix(p.Open.Device, "net_tap") && !m.exists("sys/class/net/"+name) {
			return lack(true, "ip link show", "port %s: no interface %s", p.Name, name)
		}
	}
	if found := m.tapDevice(p.Name, name); found != nil {
		return found
	}
	if p.Driver == "memif" && !p.Open.Serve && p.Socket != "" {
		path := p.Socket
		if path[0] != '@' {
			path = filepath.Join(m.Root, path)
		}
		c, err := net.Dial("unixpacket", path)
		if err != nil {
			return lack(true, "start the server, as rnicd switch", "port %s: no server at %s: %v", p.Name, p.Socket, errors.Unwrap(err))
		}
		_ = c.Close()
	}
	return nil
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

func listenable(where string) []Finding {
	l, err := net.Listen("tcp", where)
	if err == nil {
		_ = l.Close()
		return nil
	}
	_, service, _ := net.SplitHostPort(where)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return lack(true, "ss -ltnp sport = :"+service, "%s is another process's", where)
	case errors.Is(err, unix.EADDRNOTAVAIL):
		return lack(true, "ip address", "%s: no interface has this address now", where)
	}
	return lack(true, "", "%v", err)
}

// files are what a daemon makes, and where.
func (m *Machine) files() (all []string) {
	c := m.Config
	if path := c.Control.Path; path != "" {
		all = append(all, filepath.Dir(path)) // which is made
	}
	for i := range c.Ports {
		p := &c.Ports[i]
		if p.Capture != "" {
			all = append(all, p.Capture)
		}
		if p.Open.Serve && p.Socket != "" && p.Socket[0] != '@' {
			all = append(all, p.Socket)
		}
	}
	return append(all, c.Sockets...)
}

// folder finds that something can be made there, or is there.
func (m *Machine) folder(file string) []Finding {
	dir := filepath.Dir(file)
	switch err := unix.Access(filepath.Join(m.Root, dir), unix.W_OK|unix.X_OK); {
	case m.exists(file) && !errors.Is(err, unix.ENOENT):
		return nil
	case errors.Is(err, unix.ENOENT):
		return lack(true, "mkdir -p "+dir, "no folder %s, for %s", dir, filepath.Base(file))
	case err != nil:
		return lack(true, "ls -ld "+dir, "%s: %v: %s cannot be made there", dir, err, filepath.Base(file))
	}
	return nil
}
