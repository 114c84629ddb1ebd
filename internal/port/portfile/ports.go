package portfile

import (
	"fmt"
	"maps"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"time"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

const (
	ConnectionsMax = 1 << 20 // of a port at a time
	SecretMax      = 24      // octets of a memif secret
)

// tcp judges what a table has; what it has from elsewhere is judged there.
func (v *Check) tcp(path string, t *TCP) (control tcp.Congestion) {
	control, err := tcp.CongestionByName(t.Congestion)
	if err != nil && v.Given(path+".congestion") {
		v.Wrong(path+".congestion", "%v", err)
	}
	if v.Given(path + ".rto_min") {
		v.Span(path+".rto_min", time.Duration(t.RTOMin), port.TimerMin, port.RTOMinMax)
	}
	if v.Given(path + ".pto_min") {
		v.Span(path+".pto_min", time.Duration(t.PTOMin), port.TimerMin, port.PTOMinMax)
	}
	return control
}

// port judges one port by itself, and makes what internal/port opens.
func (v *Check) port(i int) {
	p := &v.Ports[i]
	path := fmt.Sprintf("port[%d]", i)
	v.Name("port", i, func(i int) string { return v.Ports[i].Name })
	driver, err := v.Drivers.ByName(p.Driver)
	if err != nil {
		v.Wrong(path+".driver", "%q: %v", p.Driver, err)
		return
	}
	known := []string{"tap", "dpdk", "memif", "kernel"}
	v.Useless(path, "the driver "+p.Driver, *p, func(of []string) bool {
		return slices.Contains(of, p.Driver) || !slices.Contains(known, p.Driver) // who knows
	})
	v.Options(path, &driver, p.Options)
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
		v.sockets(path, p.Capture)
		return
	}
	v.device(path, p)
	v.PCI(path+".pci", p.PCI)
	v.FilePath(path+".capture", p.Capture)
	v.cores(path, p)
	o.Congestion = v.tcp(path+".tcp", &p.TCP)
	v.keysTogether(path, p)
	if len(v.Errs) == 0 {
		v.host(path, o)
	}
}

// Options judges each by its driver.
func (v *Check) Options(path string, d *port.Driver, options map[string]string) {
	path += ".options"
	if d.Option == nil {
		if v.Given(path) {
			v.Wrong(path, "of no use to the driver %s", d.Name)
		}
		return
	}
	for _, name := range slices.Sorted(maps.Keys(options)) {
		if err := d.Option(name, options[name]); err != nil {
			v.Wrong(conf.Join(path, name), "%v", err)
		}
	}
}

// sockets refuses what the kernel's sockets have no use for; file is that of a capture.
func (v *Check) sockets(path, file string) {
	for _, key := range []string{
		"host_address", "gateways", "vlan", "mtu", "mac", "dad", "queues", "cores", "idle", "offload",
		"page", "numa_node", "dial_ports", "fault", "capture", "tcp",
	} {
		if key == "capture" && v.Given(path+".capture") {
			v.Wrong(path+".capture", "%s", port.KernelCapture(file))
		} else if v.Given(conf.Join(path, key)) {
			v.Wrong(conf.Join(path, key), "of no use to the driver kernel, whose TCP is the kernel's; "+
				"leave it out")
		}
	}
}

// device judges what describes the device.
func (v *Check) device(path string, p *Port) {
	o := &p.Open
	var err error
	v.driver(path, p)
	v.Number(path+".mtu", int64(p.MTU), port.MTUMin, int64(o.MTUMost()))
	v.Number(path+".vlan", int64(p.VLAN), 0, port.VLANMax)
	v.connections(path, p)
	if p.MAC != "" {
		if o.MAC, err = port.ParseMAC(p.MAC); err != nil {
			v.Wrong(path+".mac", "%q: %v", p.MAC, err)
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
		v.OneOf(path+".dad", p.DAD, "auto", "quick", "full", "off")
	}
	if o.Page, err = port.ParsePage(p.Page); err != nil {
		v.Wrong(path+".page", "%q: %v", p.Page, err)
	}
	v.Number(path+".numa_node", int64(p.Node), -1, 1023)
	if at := slices.Index(port.IdleNames, p.Idle); at >= 0 {
		o.Idle = stack.Idle(at)
	} else {
		v.OneOf(path+".idle", p.Idle, port.IdleNames...)
	}
	if p.Fault != "" {
		spec, err := fault.Parse(p.Fault)
		if err != nil {
			v.Wrong(path+".fault", "%v", err)
		}
		o.Fault = &spec
	}
}

// driver judges the keys that not every driver has.
func (v *Check) driver(path string, p *Port) {
	o := &p.Open
	if p.Driver == "memif" {
		v.OneOf(path+".role", p.Role, "client", "server")
		if p.Socket == "" {
			v.Wrong(path+".socket", "missing: the server's, as /run/memif.sock or @memif")
		}
		if len(p.Secret) > SecretMax {
			v.Wrong(path+".secret", "%d octets: want %d at most", len(p.Secret), SecretMax)
		}
		v.MemifSocket(path+".socket", p.Socket)
	} else if o.Driver.Check != nil {
		if err := o.Driver.Check(o); err != nil {
			v.Wrong(path+".driver", "%v", err)
		}
	}
	if p.FlowControl != "" {
		v.OneOf(path+".flow_control", p.FlowControl, "none", "rx", "tx", "full")
	}
}

var pciForm = regexp.MustCompile(
	`^([0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{1,2}:[0-9a-fA-F]{1,2}\.[0-7](,.*)?$`)

// PCI judges the address of a NIC, with further arguments of the device.
func (v *Check) PCI(path, text string) {
	if text != "" && !pciForm.MatchString(text) {
		v.Wrong(path, "%q: want the address of a NIC, as 0000:01:00.0", text)
	}
}

// connections judges how many connections there may be and the ports that they are dialled from.
func (v *Check) connections(path string, p *Port) {
	o := &p.Open
	v.Number(path+".connections", int64(p.Connections), 1, ConnectionsMax)
	if p.Connections < 1 {
		// it has been told
	} else if v.Given(path + ".peer_connections") {
		v.Number(path+".peer_connections", int64(p.PeerConnections), 0, int64(p.Connections))
	} else {
		// the default leaves others a quarter
		o.PeerMax = min(p.PeerConnections, max(p.Connections*3/4, 1))
	}
	if p.DialPorts != "" {
		var err error
		if o.DialPorts, err = port.ParsePorts(p.DialPorts); err != nil {
			v.Wrong(path+".dial_ports", "%q: %v", p.DialPorts, err)
		}
	}
}

// cores judges the CPUs and queues.
func (v *Check) cores(path string, p *Port) {
	if v.Given(path + ".queues") {
		v.Number(path+".queues", int64(p.Queues), 1, port.QueuesMax)
	}
	if !v.Given(path + ".cores") {
		return
	}
	cores, err := port.ParseCores(p.Cores)
	switch {
	case err != nil:
		v.Wrong(path+".cores", "%q: %v", p.Cores, err)
	case len(cores) > port.QueuesMax:
		v.Wrong(path+".cores", "%d CPUs, and a device has at most %d queues", len(cores), port.QueuesMax)
	case v.Given(path+".queues") && p.Queues != len(cores):
		v.Wrong(path+".cores", "%d CPUs for %d queues: want one for each", len(cores), p.Queues)
	default:
		p.Open.Cores, p.Open.Queues = cores, len(cores)
	}
}

// addresses judges ours, the kernel's side's and the gateways.
func (v *Check) addresses(path string, p *Port) {
	o := &p.Open
	if len(p.Addresses) == 0 && !o.Driver.Sockets {
		v.Wrong(path+".addresses", "missing: our stack needs an address, as [\"10.9.0.1/24\"]")
	}
	for i, text := range p.Addresses {
		at := fmt.Sprintf("%s.addresses[%d]", path, i)
		if o.Driver.Sockets {
			a, err := netip.ParseAddr(text)
			if err != nil || len(p.Addresses) > 1 {
				v.Wrong(at, "%q: with the driver kernel want one address of this host, without a prefix "+
					"length, as 127.0.0.1", text)
				continue
			}
			if v.ListenAddr(at, text, a) {
				o.HostAt = a.Unmap()
			}
			continue
		}
		if a, ok := v.Station(at, text); ok {
			o.Addrs = append(o.Addrs, a)
		}
	}
	near := len(p.Gateways) > 0
	if p.HostAddress != "" {
		host, ok := v.Station(path+".host_address", p.HostAddress)
		for _, a := range o.Addrs {
			if a.Addr() == host.Addr() {
				v.Wrong(path+".host_address",
					"%q: that is our stack's own address; give the kernel's side another of its network",
					p.HostAddress)
				near = true
			}
			near = near || a.Contains(host.Addr())
		}
		if ok && !near {
			v.Wrong(path+".host_address",
				"%q: not in the network of addresses, so our stack could not answer it; choose one of that "+
					"network, or name a gateway", p.HostAddress)
		} else if ok && len(o.Addrs) > 0 {
			v.HostReaches(path+".host_address", p, host)
		}
		o.HostAddr = host
	}
	for i, text := range p.Gateways {
		at := fmt.Sprintf("%s.gateways[%d]", path, i)
		g, err := netip.ParseAddr(text)
		if err != nil {
			v.Wrong(at, "%q: want the address of a router on the link, as 10.9.0.254", text)
			continue
		}
		if len(o.Addrs) > 0 && !g.IsLinkLocalUnicast() &&
			!slices.ContainsFunc(o.Addrs, func(a netip.Prefix) bool { return a.Contains(g) }) {
			v.Wrong(at, "%q: not on the link: none of the port's networks has it", text)
		}
		o.Gateways = append(o.Gateways, g)
	}
}

// Station reads a host's address with its prefix length.
func (v *Check) Station(at, text string) (netip.Prefix, bool) {
	a, err := netip.ParsePrefix(text)
	if err != nil {
		v.Wrong(at, "%q: want an address with its prefix length, as 10.9.0.1/24 or fd09::1/64", text)
		return a, false
	}
	if err := port.CheckStation(a); err != nil {
		v.Wrong(at, "%q: %v", text, err)
		return a, false
	}
	return a, true
}

// together judges the ports together.
func (v *Check) together() {
	type owner struct {
		path string
		name string
	}
	addrs, cores, devices := map[netip.Addr]owner{}, map[int]owner{}, map[string]owner{}
	opens := make([]*port.Config, len(v.Ports))
	hosts, captures := map[netip.Prefix]owner{}, map[string]owner{}
	for i := range v.Ports {
		p := &v.Ports[i]
		path := fmt.Sprintf("port[%d]", i)
		for j, a := range p.Open.Addrs {
			at := fmt.Sprintf("%s.addresses[%d]", path, j)
			if was, ok := addrs[a.Addr()]; ok {
				v.Wrong(at, "%v: port %q in line %d has this address; each has its own", a.Addr(), was.name,
					v.Line(was.path))
			}
			addrs[a.Addr()] = owner{at, p.Name}
		}
		if a := p.Open.HostAt; a.IsValid() {
			at := path + ".addresses[0]"
			if was, ok := addrs[a]; ok {
				v.Wrong(at, "%v: port %q in line %d has this address; each has its own", a, was.name,
					v.Line(was.path))
			}
			addrs[a] = owner{at, p.Name}
		}
		for _, c := range p.Open.Cores {
			if was, ok := cores[c]; ok && was.path != path+".cores" {
				v.Wrong(path+".cores", "CPU %d: port %q in line %d has it; a Poller has a CPU of its own", c,
					was.name, v.Line(was.path))
			}
			cores[c] = owner{path + ".cores", p.Name}
		}
		if p.HostAddress != "" {
			net := p.Open.HostAddr.Masked()
			for other, was := range hosts {
				if other.Overlaps(net) {
					v.Wrong(path+".host_address",
						"%v: port %q in line %d has the network %v; the kernel would send what is for us through "+
							"that device", net, was.name, v.Line(was.path), other)
				}
			}
			hosts[net] = owner{path + ".host_address", p.Name}
		}
		if file, err := filepath.Abs(p.Capture); p.Capture != "" && err == nil {
			if was, ok := captures[file]; ok {
				v.Wrong(path+".capture", "port %q in line %d writes to the same file; each has its own",
					was.name, v.Line(was.path))
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
			v.Wrong(path, "port %q in line %d has the same device; each has its own", was.name,
				v.Line(was.path))
		}
		devices[key] = owner{path, p.Name}
		opens[i] = &p.Open
	}
	if len(v.Errs) == 0 {
		name := func(i int) string { return v.Ports[i].Name }
		v.DevicesTogether("port", name, opens)
	}
}
