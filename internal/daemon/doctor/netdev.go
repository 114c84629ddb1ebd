package doctor

import (
	"errors"
	"net"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/port/portfile"
)

// iffUp is in a device's flags, the others in a TAP's (linux/if.h, linux/if_tun.h).
const (
	iffUp         = 0x1
	iffTap        = 0x2
	iffMultiQueue = 0x100
	iffPersist    = 0x800
)

// heldTAP finds that a TAP is another process's. One that is not persistent is there only while a
// process holds it.
func (m *Machine) heldTAP(port, name string) []Finding {
	kind, err := m.tunFlags(name)
	if err == nil && (kind&iffPersist == 0 || m.read("sys/class/net/"+name+"/carrier") == "1") {
		return lack(true, "", "port %s: another process holds the TAP %s", port, name)
	}
	return nil
}

// downTAP finds that a TAP is down.
func (m *Machine) downTAP(port, name string) []Finding {
	if _, err := m.tunFlags(name); err != nil {
		return nil // there is none, which is made then
	}
	flags, err := strconv.ParseUint(m.read("sys/class/net/"+name+"/flags"), 0, 32)
	if err == nil && flags&iffUp == 0 {
		return lack(!m.capable(capNetAdmin), "ip link set "+name+" up",
			"port %s: the TAP %s is down, until one that may (CAP_NET_ADMIN) sets it up", port, name)
	}
	return nil
}

func (m *Machine) tunFlags(name string) (uint64, error) {
	return strconv.ParseUint(m.read("sys/class/net/"+name+"/tun_flags"), 0, 32)
}

// otherDevice finds that the name of a TAP is that of another device, or of a TAP that does not
// have as many queues.
func (m *Machine) otherDevice(p *portfile.Port) []Finding {
	name := p.Open.Device
	tap := p.Driver == "tap" || p.Driver == "dpdk" && p.PCI == "" && !strings.HasPrefix(name, "net_")
	if !tap || name == "" || !m.exists("sys/class/net/"+name) {
		return nil
	}
	kind, err := m.tunFlags(name)
	several := p.Open.QueueCount() > 1
	switch {
	case err != nil || kind&iffTap == 0:
		return lack(true, "ip link show "+name,
			"port %s: %s is there, and is no TAP: choose another name", p.Name, name)
	case p.Driver == "tap" && several && kind&iffMultiQueue == 0:
		return lack(true, "ip link delete "+name+"; ip tuntap add dev "+name+" mode tap multi_queue",
			"port %s: the TAP %s has one queue, %d are wanted", p.Name, name, p.Open.QueueCount())
	case p.Driver == "tap" && !several && kind&iffMultiQueue != 0:
		return lack(true, "ip link delete "+name+"; ip tuntap add dev "+name+" mode tap",
			"port %s: the TAP %s was made for several queues, one is wanted", p.Name, name)
	}
	return nil
}

// checksums: without them no TCP can come to an interface that is a port. A daemon that runs
// already is not better off.
func (m *Machine) checksums() (all []Finding) {
	if m.Config != nil {
		for i := range m.Config.Ports {
			p := &m.Config.Ports[i]
			for _, left := range p.Open.ChecksumsLeft() {
				all = append(all, lack(left.Peer != "", left.Fix(), "port %s: %v", p.Name, left)...)
			}
		}
	}
	if all == nil {
		return ok("those of interfaces come with their frames")
	}
	return all
}

// device reports who holds a port's device, or that it is missing.
func (m *Machine) device(p *portfile.Port) []Finding {
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
	if found := m.heldTAP(p.Name, name); found != nil {
		return found
	}
	if found := m.otherDevice(p); found != nil {
		return found
	}
	if found := m.downTAP(p.Name, name); found != nil {
		return found
	}
	served := slices.ContainsFunc(m.Config.Ports, func(o portfile.Port) bool {
		return o.Open.Serve && o.Socket == p.Socket
	})
	if p.Driver == "memif" && !p.Open.Serve && p.Socket != "" && !served {
		path := p.Socket
		if path[0] != '@' {
			path = filepath.Join(m.Root, path)
		}
		c, err := net.Dial("unixpacket", path)
		if err != nil {
			return lack(true, "start the server, as rnicd switch", "port %s: no server at %s: %v", p.Name,
				p.Socket, errors.Unwrap(err))
		}
		_ = c.Close()
	}
	return nil
}
