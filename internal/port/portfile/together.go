package portfile

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/stack"
)

// What follows refuses keys that are right by themselves, and with which a daemon would not
// start, or would start and not be reached.

// keysTogether judges the keys of one port.
func (v *Check) keysTogether(path string, p *Port) {
	o := &p.Open
	six := slices.ContainsFunc(o.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() })
	if six && p.MTU < port.MTUMin6 {
		v.Wrong(path+".mtu", "%d: IPv6 wants %d or more (RFC 8200), and addresses has one of it", p.MTU,
			port.MTUMin6)
	}
	if !six && o.HostAddr.IsValid() && o.HostAddr.Addr().Is6() && p.MTU < port.MTUMin6 {
		v.Wrong(path+".mtu", "%d: IPv6 wants %d or more (RFC 8200), and host_address is one of it",
			p.MTU, port.MTUMin6)
	}
	if p.VLAN != 0 && p.HostAddress != "" {
		v.Wrong(path+".host_address",
			"with vlan all frames have a tag, and the kernel's side of the device has none; give the "+
				"address to a VLAN device on it, "+
				"as ip link add link %s name %s.%d type vlan id %d, and leave it out here", o.Device, o.Device,
			p.VLAN, p.VLAN)
	}
	if o.Idle == stack.IdleInterrupt && o.Fault != nil {
		v.Wrong(path+".idle", "with fault a device wakes no Poller; choose adaptive, pause, "+
			"sleep or spin")
	}
	if p.Driver == "tap" || p.Driver == "dpdk" && o.PCI == "" && !strings.HasPrefix(o.Device, "net_") {
		v.DeviceName(path+".device", o.Device)
	}
}

// host judges what the stack would refuse when it starts, where nothing else is wrong.
func (v *Check) host(path string, o *port.Config) {
	cfg := o.Stack(0)
	if err := cfg.CheckHost(); err != nil {
		key := ".addresses"
		if text := err.Error(); strings.Contains(text, "gateway") || strings.Contains(text, "route") {
			key = ".gateways"
		}
		v.Wrong(path+key, "%v", err)
	}
}

// DeviceName judges the name of a network device (dev_valid_name of the kernel).
func (v *Check) DeviceName(path, name string) {
	if len(name) > 15 {
		v.Wrong(path, "%q: a device's name has 15 letters at most; name a shorter device", name)
	} else if name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r\x00") {
		v.Wrong(path, "%q: no name of a network device: want one without /, : and spaces", name)
	}
}

// HostReaches refuses an address of the kernel's side from which it does not find our stack.
func (v *Check) HostReaches(path string, p *Port, host netip.Prefix) {
	if len(p.Gateways) > 0 || slices.ContainsFunc(p.Open.Addrs, func(a netip.Prefix) bool {
		return host.Contains(a.Addr())
	}) {
		return
	}
	v.Wrong(path, "%q: its network has none of addresses, so that the kernel would not look for our "+
		"stack there; give it the same prefix length", p.HostAddress)
}

// hostsOfOthers refuses an address of a port that the kernel has on another port's device: it would
// answer itself.
func (v *Check) hostsOfOthers() {
	for i := range v.Ports {
		for j := range v.Ports {
			p, q := &v.Ports[i], &v.Ports[j]
			if i == j || q.HostAddress == "" || p.Open.Driver.Sockets {
				continue
			}
			for k, a := range p.Open.Addrs {
				if a.Addr() == q.Open.HostAddr.Addr() {
					v.Wrong(fmt.Sprintf("port[%d].addresses[%d]", i, k),
						"%v: host_address of port %q in line %d is this address; each has its own",
						a.Addr(), q.Name, v.Line(fmt.Sprintf("port[%d].host_address", j)))
				}
			}
		}
	}
}

// DevicesTogether refuses ports that open the same device, by another name, and NICs and arguments
// that come too late for DPDK's environment, which starts once.
func (v *Check) DevicesTogether(kind string, name func(int) string, opens []*port.Config) {
	claimed, first := map[string]int{}, -1
	who := func(i int) string {
		return fmt.Sprintf("%s %q in line %d", kind, name(i), v.Line(fmt.Sprintf("%s[%d]", kind, i)))
	}
	for i, o := range opens {
		if o == nil { // of the kernel's sockets
			continue
		}
		path := fmt.Sprintf("%s[%d]", kind, i)
		if o.Driver.Claims != nil {
			for _, device := range o.Driver.Claims(o) {
				if was, ok := claimed[device]; ok && was != i {
					v.Wrong(path, "%s has the device %s; each has its own", who(was), device)
				}
				claimed[device] = i
			}
		}
		if o.Driver.Name != "dpdk" {
			continue
		}
		if first < 0 {
			first = i
			continue
		}
		v.secondDPDK(path, o, who(first), opens[first])
	}
}

// secondDPDK judges a port that finds DPDK's environment started for another.
func (v *Check) secondDPDK(path string, o *port.Config, other string, first *port.Config) {
	if len(o.EAL) > 0 && !slices.Equal(o.EAL, first.EAL) {
		v.Wrong(path+".eal", "DPDK's environment starts once, with the arguments of %s; give the same, "+
			"or leave them out", other)
	}
	scans := func(arg string) bool {
		names := []string{"-a", "--allow", "-b", "--block"}
		return slices.ContainsFunc(names, func(s string) bool { return strings.HasPrefix(arg, s) })
	}
	if o.PCI != "" && first.PCI == "" && !slices.ContainsFunc(first.EAL, scans) {
		v.Wrong(path+".pci", "DPDK's environment starts for %s, which has no NIC, and looks for none; "+
			"name this one first", other)
	}
}

// MemifSocket refuses what memif cannot have its control socket at. Empty: that is for others.
func (v *Check) MemifSocket(key, path string) {
	if path == "@" {
		v.Wrong(key, "%q: want a path, or @ and a name in the abstract namespace", path)
	} else if path != "" {
		v.SocketPath(key, path)
	}
}
