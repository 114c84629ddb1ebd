package config

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

// together judges the keys of one port.
func (v *validator) together(path string, p *Port) {
	o := &p.Open
	six := slices.ContainsFunc(o.Addrs, func(a netip.Prefix) bool { return a.Addr().Is6() })
	if six && p.MTU < port.MTUMin6 {
		v.wrong(path+".mtu", "%d: IPv6 wants %d or more (RFC 8200), and addresses has one of it", p.MTU,
			port.MTUMin6)
	}
	if !six && o.HostAddr.IsValid() && o.HostAddr.Addr().Is6() && p.MTU < port.MTUMin6 {
		v.wrong(path+".mtu", "%d: IPv6 wants %d or more (RFC 8200), and host_address is one of it",
			p.MTU, port.MTUMin6)
	}
	if p.VLAN != 0 && p.HostAddress != "" {
		v.wrong(path+".host_address",
			"with vlan all frames have a tag, and the kernel's side of the device has none; give the "+
				"address to a VLAN device on it, "+
				"as ip link add link %s name %s.%d type vlan id %d, and leave it out here", o.Device, o.Device,
			p.VLAN, p.VLAN)
	}
	if o.Idle == stack.IdleInterrupt && o.Fault != nil {
		v.wrong(path+".idle", "with fault a device wakes no Poller; choose adaptive, pause, "+
			"sleep or spin")
	}
	if p.Driver == "tap" || p.Driver == "dpdk" && o.PCI == "" && !strings.HasPrefix(o.Device, "net_") {
		v.ifname(path+".device", o.Device)
	}
}

// host judges what the stack would refuse when it starts, where nothing else is wrong.
func (v *validator) host(path string, o *port.Config) {
	cfg := o.Stack(0)
	if err := cfg.CheckHost(); err != nil {
		key := ".addresses"
		if text := err.Error(); strings.Contains(text, "gateway") || strings.Contains(text, "route") {
			key = ".gateways"
		}
		v.wrong(path+key, "%v", err)
	}
}

// ifname judges the name of a network device (dev_valid_name of the kernel).
func (v *validator) ifname(path, name string) {
	if len(name) > 15 {
		v.wrong(path, "%q: a device's name has 15 letters at most; name a shorter device", name)
	} else if name == "." || name == ".." || strings.ContainsAny(name, "/: \t\n\v\f\r\x00") {
		v.wrong(path, "%q: no name of a network device: want one without /, : and spaces", name)
	}
}

// hostReaches refuses an address of the kernel's side from which it does not find our stack.
func (v *validator) hostReaches(path string, p *Port, host netip.Prefix) {
	if len(p.Gateways) > 0 || slices.ContainsFunc(p.Open.Addrs, func(a netip.Prefix) bool {
		return host.Contains(a.Addr())
	}) {
		return
	}
	v.wrong(path, "%q: its network has none of addresses, so that the kernel would not look for our "+
		"stack there; give it the same prefix length", p.HostAddress)
}

// hostsOfOthers refuses an address of a port that the kernel has on another port's device: it would
// answer itself.
func (v *validator) hostsOfOthers() {
	for i := range v.c.Ports {
		for j := range v.c.Ports {
			p, q := &v.c.Ports[i], &v.c.Ports[j]
			if i == j || q.HostAddress == "" || p.Open.Driver.Sockets {
				continue
			}
			for k, a := range p.Open.Addrs {
				if a.Addr() == q.Open.HostAddr.Addr() {
					v.wrong(fmt.Sprintf("port[%d].addresses[%d]", i, k),
						"%v: host_address of port %q in line %d is this address; each has its own",
						a.Addr(), q.Name, v.line(fmt.Sprintf("port[%d].host_address", j)))
				}
			}
		}
	}
}
