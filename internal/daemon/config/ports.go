package config

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp/cc"
)

const (
	connectionsMax = 1 << 20
	secretMax      = 24
)

// tcp judges what a table has; what it has from elsewhere is judged there.
func (v *validator) tcp(path string, t *TCP) (control cc.Algorithm) {
	control, err := cc.ByName(t.Congestion)
	if err != nil && v.given(path+".congestion") {
		v.wrong(path+".congestion", "%v", err)
	}
	if v.given(path + ".rto_min") {
		v.span(path+".rto_min", time.Duration(t.RTOMin), port.TimerMin, port.RTOMinMax)
	}
	if v.given(path + ".pto_min") {
		v.span(path+".pto_min", time.Duration(t.PTOMin), port.TimerMin, port.PTOMinMax)
	}
	return control
}

// port judges one port by itself, and makes what internal/port opens.
func (v *validator) port(i int) {
	p := &v.c.Ports[i]
	path := fmt.Sprintf("port[%d]", i)
	v.name("port", i, func(i int) string { return v.c.Ports[i].Name })
	driver, err := v.drivers.ByName(p.Driver)
	if err != nil {
		v.wrong(path+".driver", "%q: %v", p.Driver, err)
		return
	}
	known := []string{"tap", "dpdk", "memif", "kernel"}
	v.useless(path, "the driver "+p.Driver, *p, func(of []string) bool {
		return slices.Contains(of, p.Driver) || !slices.Contains(known, p.Driver) // who knows
	})
	v.options(path, &driver, p.Options)
	o := &p.Open
	*o = port.Config{
		Driver: driver, Device: p.Device, PCI: p.PCI, EAL: p.EAL, Socket: p.Socket, ID: p.ID,
		Serve: p.Role == "server", Secret: p.Secret,
		FlowControl: p.FlowControl, Promiscuous: p.Promiscuous, NoOffload: !p.Offload, Options: p.Options,
		VLAN: p.VLAN, MTU: p.MTU, Queues: p.Queues,
		ConnsMax: p.Connections, PeerMax: p.PeerConnections, Node: p.Node, Capture: p.Capture,
		RTOMin: time.Duration(p.TCP.RTOMin), PTOMin: time.Duration(p.TCP.PTOMin), Pacing: p.TCP.Pacing,
		ECN: p.TCP.ECN,
	}
	if o.Device == "" && o.PCI == "" && p.Driver != "memif" {
		o.Device = p.Name
	}
	v.addresses(path, p)
	if driver.Sockets {
		v.sockets(path)
		return
	}
	v.device(path, p)
	v.pci(path+".pci", p.PCI)
	v.filePath(path+".capture", p.Capture)
	v.cores(path, p)
	o.Congestion = v.tcp(path+".tcp", &p.TCP)
	v.together(path, p)
	if len(v.errs) == 0 {
		v.host(path, o)
	}
}

// options judges each by its driver.
func (v *validator) options(path string, d *port.Driver, options map[string]string) {
	path += ".options"
	if d.Option == nil {
		if v.given(path) {
			v.wrong(path, "of no use to the driver %s", d.Name)
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if err := d.Option(name, options[name]); err != nil {
			v.wrong(join(path, name), "%v", err)
		}
	}
}

// sockets refuses what the kernel's sockets have no use for.
func (v *validator) sockets(path string) {
	for _, key := range []string{
		"host_address", "gateways", "vlan", "mtu", "mac", "dad", "queues", "cores", "idle", "offload",
		"page", "numa_node", "dial_ports", "fault", "capture", "tcp",
	} {
		if v.given(join(path, key)) {
			v.wrong(join(path, key), "of no use to the driver kernel, whose TCP is the kernel's; "+
				"leave it out")
		}
	}
}

// device judges what describes the device.
func (v *validator) device(path string, p *Port) {
	o := &p.Open
	var err error
	v.driver(path, p)
	v.number(path+".mtu", int64(p.MTU), port.MTUMin, int64(o.MTUMost()))
	v.number(path+".vlan", int64(p.VLAN), 0, port.VLANMax)
	v.connections(path, p)
	if p.MAC != "" {
		if o.MAC, err = port.ParseMAC(p.MAC); err != nil {
			v.wrong(path+".mac", "%q: %v", p.MAC, err)
		}
	}
	switch p.DAD {
	case "off":
		o.DAD = port.DADNone
	case "quick":
		o.DAD = port.DADQuick
	case "full":
		o.DAD = port.DADFull
	default:
		v.oneOf(path+".dad", p.DAD, "auto", "quick", "full", "off")
	}
	if o.Page, err = port.ParsePage(p.Page); err != nil {
		v.wrong(path+".page", "%q: %v", p.Page, err)
	}
	v.number(path+".numa_node", int64(p.Node), -1, 1023)
	if at := slices.Index(port.IdleNames, p.Idle); at >= 0 {
		o.Idle = stack.Idle(at)
	} else {
		v.oneOf(path+".idle", p.Idle, port.IdleNames...)
	}
	if p.Fault != "" {
		spec, err := fault.Parse(p.Fault)
		if err != nil {
			v.wrong(path+".fault", "%v", err)
		}
		o.Fault = &spec
	}
}

// driver judges the keys that not every driver has.
func (v *validator) driver(path string, p *Port) {
	o := &p.Open
	if p.Driver == "memif" {
		v.oneOf(path+".role", p.Role, "client", "server")
		if p.Socket == "" {
			v.wrong(path+".socket", "missing: the server's, as /run/memif.sock or @memif")
		}
		if len(p.Secret) > secretMax {
			v.wrong(path+".secret", "%d octets: want %d at most", len(p.Secret), secretMax)
		}
		v.memifSocket(path+".socket", p.Socket)
	} else if o.Driver.Check != nil {
		if err := o.Driver.Check(o); err != nil {
			v.wrong(path+".driver", "%v", err)
		}
	}
	if p.FlowControl != "" {
		v.oneOf(path+".flow_control", p.FlowControl, "none", "rx", "tx", "full")
	}
}

var pciForm = regexp.MustCompile(
	`^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}\.[0-7](,.*)?$`)

// pci judges the address of a NIC, with further arguments of the device.
func (v *validator) pci(path, text string) {
	if text != "" && !pciForm.MatchString(text) {
		v.wrong(path, "%q: want the address of a NIC, as 0000:01:00.0", text)
	}
}

// connections judges how many connections there may be and the ports that they are dialled from.
func (v *validator) connections(path string, p *Port) {
	o := &p.Open
	v.number(path+".connections", int64(p.Connections), 1, connectionsMax)
	if v.given(path + ".peer_connections") {
		v.number(path+".peer_connections", int64(p.PeerConnections), 0, int64(p.Connections))
	} else {
		// the default leaves others a quarter
		o.PeerMax = min(p.PeerConnections, max(p.Connections*3/4, 1))
	}
	if p.DialPorts != "" {
		var err error
		if o.DialPorts, err = port.ParsePorts(p.DialPorts); err != nil {
			v.wrong(path+".dial_ports", "%q: %v", p.DialPorts, err)
		}
	}
}

// cores judges the CPUs and queues.
func (v *validator) cores(path string, p *Port) {
	if v.given(path + ".queues") {
		v.number(path+".queues", int64(p.Queues), 1, port.QueuesMax)
	}
	if !v.given(path + ".cores") {
		return
	}
	cores, err := port.ParseCores(p.Cores)
	switch {
	case err != nil:
		v.wrong(path+".cores", "%q: %v", p.Cores, err)
	case len(cores) > port.QueuesMax:
		v.wrong(path+".cores", "%d CPUs, and a device has at most %d queues", len(cores), port.QueuesMax)
	case v.given(path+".queues") && p.Queues != len(cores):
		v.wrong(path+".cores", "%d CPUs for %d queues: want one for each", len(cores), p.Queues)
	default:
		p.Open.Cores, p.Open.Queues = cores, len(cores)
	}
}

// addresses judges ours, the kernel's side's and the gateways.
func (v *validator) addresses(path string, p *Port) {
	o := &p.Open
	if len(p.Addresses) == 0 && !o.Driver.Sockets {
		v.wrong(path+".addresses", "missing: our stack needs an address, as [\"10.9.0.1/24\"]")
	}
	for i, text := range p.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", path, i)
		if o.Driver.Sockets {
			a, err := netip.ParseAddr(text)
			if err != nil || len(p.Addresses) > 1 {
				v.wrong(at, "%q: with the driver kernel want one address of this host, without a prefix "+
					"length, as 127.0.0.1", text)
				continue
			}
			if v.listenAddr(at, text, a) {
				o.HostAt = a.Unmap()
			}
			continue
		}
		if a, ok := v.station(at, text); ok {
			o.Addrs = append(o.Addrs, a)
		}
	}
	near := len(p.Gateways) > 0
	if p.HostAddress != "" {
		host, ok := v.station(path+".host_address", p.HostAddress)
		for _, a := range o.Addrs {
			if a.Addr() == host.Addr() {
				v.wrong(path+".host_address",
					"%q: that is our stack's own address; give the kernel's side another of its network",
					p.HostAddress)
				near = true
			}
			near = near || a.Contains(host.Addr())
		}
		if ok && !near {
			v.wrong(path+".host_address",
				"%q: not in the network of addresses, so our stack could not answer it; choose one of that "+
					"network, or name a gateway", p.HostAddress)
		} else if ok && len(o.Addrs) > 0 {
			v.hostReaches(path+".host_address", p, host)
		}
		o.HostAddr = host
	}
	for i, text := range p.Gateways {
		at := fmt.Sprintf("%s.gateways[%d]", path, i)
		g, err := netip.ParseAddr(text)
		if err != nil {
			v.wrong(at, "%q: want the address of a router on the link, as 10.9.0.254", text)
			continue
		}
		if len(o.Addrs) > 0 && !g.IsLinkLocalUnicast() &&
			!slices.ContainsFunc(o.Addrs, func(a netip.Prefix) bool { return a.Contains(g) }) {
			v.wrong(at, "%q: not on the link: none of the port's networks has it", text)
		}
		o.Gateways = append(o.Gateways, g)
	}
}

// station reads a host's address with its prefix length.
func (v *validator) station(at, text string) (netip.Prefix, bool) {
	a, err := netip.ParsePrefix(text)
	if err != nil {
		v.wrong(at, "%q: want an address with its prefix length, as 10.9.0.1/24 or fd09::1/64", text)
		return a, false
	}
	if err := port.CheckStation(a); err != nil {
		v.wrong(at, "%q: %v", text, err)
		return a, false
	}
	return a, true
}

// ports judges the ports together.
func (v *validator) ports() {
	type owner struct {
		path string
		name string
	}
	addrs, cores, devices := map[netip.Addr]owner{}, map[int]owner{}, map[string]owner{}
	opens := make([]*port.Config, len(v.c.Ports))
	hosts, captures := map[netip.Prefix]owner{}, map[string]owner{}
	for i := range v.c.Ports {
		p := &v.c.Ports[i]
		path := fmt.Sprintf("port[%d]", i)
		for j, a := range p.Open.Addrs {
			at := fmt.Sprintf("%s.addresses[%d]", path, j)
			if was, ok := addrs[a.Addr()]; ok {
				v.wrong(at, "%v: port %q in line %d has this address; each has its own", a.Addr(), was.name,
					v.line(was.path))
			}
			addrs[a.Addr()] = owner{at, p.Name}
		}
		if a := p.Open.HostAt; a.IsValid() {
			at := path + ".addresses[0]"
			if was, ok := addrs[a]; ok {
				v.wrong(at, "%v: port %q in line %d has this address; each has its own", a, was.name,
					v.line(was.path))
			}
			addrs[a] = owner{at, p.Name}
		}
		for _, c := range p.Open.Cores {
			if was, ok := cores[c]; ok && was.path != path+".cores" {
				v.wrong(path+".cores", "CPU %d: port %q in line %d has it; a Poller has a CPU of its own", c,
					was.name, v.line(was.path))
			}
			cores[c] = owner{path + ".cores", p.Name}
		}
		if p.HostAddress != "" {
			net := p.Open.HostAddr.Masked()
			for other, was := range hosts {
				if other.Overlaps(net) {
					v.wrong(path+".host_address",
						"%v: port %q in line %d has the network %v; the kernel would send what is for us through "+
							"that device", net, was.name, v.line(was.path), other)
				}
			}
			hosts[net] = owner{path + ".host_address", p.Name}
		}
		if file, err := filepath.Abs(p.Capture); p.Capture != "" && err == nil {
			if was, ok := captures[file]; ok {
				v.wrong(path+".capture", "port %q in line %d writes to the same file; each has its own",
					was.name, v.line(was.path))
			}
			captures[file] = owner{path + ".capture", p.Name}
		}
		key := p.Driver + " " + p.Open.Device + p.PCI + p.Socket
		if p.Driver == "memif" {
			key += fmt.Sprint(" ", p.ID)
		}
		if p.Open.Driver.Sockets {
			continue
		}
		if was, ok := devices[key]; ok {
			v.wrong(path, "port %q in line %d has the same device; each has its own", was.name,
				v.line(was.path))
		}
		devices[key] = owner{path, p.Name}
		opens[i] = &p.Open
	}
	if len(v.errs) == 0 {
		name := func(i int) string { return v.c.Ports[i].Name }
		v.devicesTogether("port", name, opens)
	}
}
