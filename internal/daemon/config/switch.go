package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/internal/conf"
	"github.com/rnicd/rnicd/internal/daemon/control"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/port/portfile"
	"github.com/rnicd/rnicd/internal/vswitch"
)

// Switch is the configuration of a switch between programs and uplinks, `rnicd switch`. Tags are as
// those of Config.
type Switch struct {
	File string `toml:"-"`

	Log      Log           `toml:"log" doc:"What the switch writes to standard error."`
	Control  Control       `toml:"control" doc:"The Unix socket on which rnicd status --switch asks the switch. A change needs a restart."`
	Metrics  Metrics       `toml:"metrics" doc:"Counters for Prometheus. A change needs a restart."`
	Switch   SwitchLimits  `toml:"switch" doc:"Cores, memory and sockets of the switch. A change needs a restart."`
	Uplinks  []Uplink      `toml:"uplink" doc:"A device that programs reach others through; [[uplink]] for each, or none. A change needs a restart."`
	Programs []SwitchGuest `toml:"program" doc:"A program that may attach; [[program]] for each. SIGHUP adds, removes and changes them."`

	// Vswitch is what package vswitch makes of it, without Arena and the ports of uplinks.
	Vswitch vswitch.Config `toml:"-"`
	Cores   []int          `toml:"-"` // CPUs; port.NoCore is the scheduler's choice
}

// SwitchLimits is [switch].
type SwitchLimits struct {
	Cores     string    `toml:"cores" want:"as 2-5,8" doc:"CPUs that switch, each with a poll-mode thread pinned to it; without it one thread, where the scheduler puts it"`
	Threads   int       `toml:"threads" want:"1 to 16" doc:"poll-mode threads, where cores is not given; 1 without it"`
	Idle      string    `toml:"idle" default:"adaptive" want:"adaptive or spin" doc:"what a thread does without work: spin, then sleep up to 50 us; or spin for ever"`
	Page      string    `toml:"page" default:"auto" want:"auto, 2M, 1G or normal" doc:"pages of packet memory"`
	Node      int       `toml:"numa_node" default:"-1" doc:"NUMA node of the memory; -1: the first uplink's where it is known, or any"`
	Buffers   int       `toml:"buffers" default:"0" doc:"packet buffers of each thread; 0: twice what its programs and uplinks may hold, so that programs can be added"`
	Multicast int       `toml:"multicast" default:"10000" want:"1 or more" doc:"copies a second of the frames to groups that a program or a queue of an uplink sends"`
	Socket    string    `toml:"socket" doc:"Unix socket of programs that name none: a path, or @ and a name in the abstract namespace. Its last directory is made where it is missing"`
	Mode      string    `toml:"mode" default:"0600" want:"an octal number, as \"0660\"" doc:"of the sockets: which processes may connect; uids and gids of a program hold too"`
	MemoryMax conf.Size `toml:"memory_max" default:"1GiB" want:"64KiB or more" doc:"memory of one program that the switch maps"`
	RingLog2  int       `toml:"ring_log2_max" default:"14" want:"1 to 14" doc:"of the number of descriptors in a program's rings"`
	Unsealed  bool      `toml:"unsealed" default:"false" doc:"take memory of programs that is not sealed against shrinking: that of DPDK's zero-copy clients"`
}

// Uplink is an [[uplink]].
type Uplink struct {
	Name        string            `toml:"name" want:"a to z, 0 to 9, - and _, 32 at most" doc:"by which programs and logs call it; required"`
	Driver      string            `toml:"driver" default:"tap" doc:"poll-mode driver: tap, dpdk, memif, or a driver that this program adds"`
	Device      string            `toml:"device" of:"tap,dpdk" doc:"tap: the device; dpdk: the TAP that net_tap makes, or a whole vdev as net_af_packet0,iface=eth1. Without it, the uplink's name"`
	PCI         string            `toml:"pci" of:"dpdk" doc:"PCI address of a NIC"`
	EAL         []string          `toml:"eal" of:"dpdk" doc:"further arguments of DPDK's environment"`
	FlowControl string            `toml:"flow_control" of:"dpdk" want:"none, rx, tx or full" doc:"pause frames: heed (rx), send (tx), both; without it as the device has it"`
	Socket      string            `toml:"socket" of:"memif" doc:"Unix socket of a server, as another switch"`
	ID          uint32            `toml:"id" of:"memif" default:"0" doc:"number of the interface on that socket"`
	Secret      string            `toml:"secret" of:"memif" want:"24 octets at most" doc:"what that server wants to hear"`
	Options     map[string]string `toml:"options" doc:"further ones of the driver, as [port.options]; [uplink.options]"`
	HostAddress string            `toml:"host_address" of:"tap" doc:"address of the kernel's side, as 10.9.0.254/24; without it that side is left alone"`
	MTU         int               `toml:"mtu" default:"1500" want:"576 to what the driver takes" doc:"largest IP packet, octets"`
	MAC         string            `toml:"mac" doc:"of the device, which no program has; without it the driver's choice"`
	Queues      int               `toml:"queues" default:"1" want:"1 to the number of threads" doc:"queues of the device, polled by the first threads"`
	Buffers     int               `toml:"buffers" default:"512" want:"32 to 65536" doc:"frames that may wait for each queue"`

	Open port.Config `toml:"-"` // for its driver
}

// SwitchGuest is a [[program]].
type SwitchGuest struct {
	Name          string    `toml:"name" want:"a to z, 0 to 9, - and _, 31 at most" doc:"in logs and counters; a reload knows a program by it; required"`
	Socket        string    `toml:"socket" doc:"that it attaches to; without it [switch]'s"`
	ID            uint32    `toml:"id" default:"0" doc:"number of its interface on that socket"`
	Secret        string    `toml:"secret" want:"24 octets at most" doc:"what it must say; without it nothing"`
	UIDs          []uint32  `toml:"uids" doc:"users whose processes may attach, by the kernel's word; without uids and gids any process that may connect"`
	GIDs          []uint32  `toml:"gids" doc:"groups whose processes may attach; one of uids and gids is enough"`
	Uplink        string    `toml:"uplink" doc:"name of its uplink; without it the only one, or none: programs among themselves. Programs of different uplinks do not see each other"`
	VLAN          uint16    `toml:"vlan" default:"0" want:"1 to 4094, or 0" doc:"802.1Q tag of all of its frames, which it writes itself; 0: untagged"`
	Addresses     []string  `toml:"addresses" doc:"its own, or, with ports, those that it shares, as 10.9.0.2 or fd09::2; required"`
	Ports         []string  `toml:"ports" doc:"TCP ports of addresses that other programs have, too, as \"7174\" or \"32768-40000\": those that it listens on, and those that it dials from"`
	MAC           string    `toml:"mac" doc:"without it one made of its first address, as its own memif driver makes it"`
	MTU           int       `toml:"mtu" default:"1500" want:"576 to 65513" doc:"largest IP packet, octets"`
	Queues        int       `toml:"queues" default:"1" want:"1 to 16" doc:"pairs of rings that it brings"`
	Thread        int       `toml:"thread" default:"0" doc:"number of the thread that switches for it, from 0"`
	Buffers       int       `toml:"buffers" default:"512" want:"32 to 65536" doc:"frames that may wait for it, beside its ring; more are dropped"`
	SendRate      conf.Size `toml:"send_rate" default:"0" doc:"octets a second that it may send; above that it waits; 0: any"`
	SendFrames    conf.Size `toml:"send_frames" default:"0" doc:"frames a second that it may send"`
	ReceiveRate   conf.Size `toml:"receive_rate" default:"0" doc:"octets a second that it is given; more wait, as many as buffers, and are then dropped"`
	ReceiveFrames conf.Size `toml:"receive_frames" default:"0" doc:"frames a second that it is given"`
}

// IsSwitch says whether a file is one of a switch, by the tables that it has.
func IsSwitch(text []byte) bool {
	ix, err := conf.NewIndex(text)
	return err == nil && (ix.Tables("program") > 0 || ix.Tables("uplink") > 0 || ix.Single("switch"))
}

// LoadSwitch is Load of a switch's file.
func LoadSwitch(file string, drivers port.Drivers) (*Switch, error) {
	text, err := conf.Read(file)
	if err != nil {
		return nil, err
	}
	if !IsSwitch(text) && isDaemon(text) {
		return nil, fmt.Errorf("%s: this is the configuration of a daemon: rnicd serve --config FILE",
			file)
	}
	return ParseSwitch(file, text, drivers)
}

func isDaemon(text []byte) bool {
	ix, err := conf.NewIndex(text)
	return err == nil && (ix.Tables("port") > 0 || ix.Tables("service") > 0)
}

// Needs is what a switch wants of a machine, as a daemon that would want the same: its uplinks
// are ports, its memory is a region.
func (s *Switch) Needs() *Config {
	c := &Config{File: s.File, Control: s.Control, Metrics: s.Metrics}
	for i := range s.Vswitch.Programs {
		if path := s.Vswitch.Programs[i].Socket; path != "" && !slices.Contains(c.Sockets, path) {
			c.Sockets = append(c.Sockets, path)
		}
	}
	mtu := 0
	for i := range s.Uplinks {
		u := &s.Uplinks[i]
		mtu = max(mtu, u.MTU)
		c.Ports = append(c.Ports, portfile.Port{Name: u.Name, Driver: u.Driver, PCI: u.PCI,
			Socket: u.Socket, MTU: u.MTU, Node: s.Switch.Node, Open: u.Open})
	}
	if len(c.Ports) == 0 {
		c.Ports = []portfile.Port{{Name: "switch", Driver: "memif"}}
	}
	for i := range c.Ports {
		for _, core := range s.Cores {
			if core != port.NoCore {
				c.Ports[i].Open.Cores = append(c.Ports[i].Open.Cores, core)
			}
		}
	}
	c.Services = []Service{{Name: "switch", Type: Region, Size: conf.Size(s.Vswitch.MemoryBytes(mtu))}}
	return c
}

// ParseSwitch is LoadSwitch of a text; file is its name in errors.
func ParseSwitch(file string, text []byte, drivers port.Drivers) (*Switch, error) {
	s := &Switch{File: file}
	check, err := conf.Decode(file, text, s)
	if err != nil {
		return nil, err
	}
	v := newValidator(&Config{File: file}, check, drivers)
	v.Defaults(s)
	v.guests(s)
	if err := v.Err(); err != nil {
		return nil, err
	}
	return s, nil
}

// guests judges a switch's file, and makes what is opened.
func (v *validator) guests(s *Switch) {
	for _, array := range []string{"uplink", "program"} {
		if v.Index.Single(array) {
			v.Wrong(array, "%s", conf.DoubleBrackets(array))
			return
		}
	}
	v.Units(reflect.ValueOf(s).Elem(), "")
	v.OneOf("log.level", s.Log.Level, "debug", "info", "warn", "error")
	v.OneOf("log.format", s.Log.Format, "text", "json")
	v.control(&s.Control, control.DefaultSwitchPath)
	v.metrics(&s.Metrics)
	v.switchLimits(s)
	for i := range s.Uplinks {
		v.uplink(s, i)
	}
	if len(s.Programs) == 0 {
		v.Wrong("program", "no program; a switch needs one: [[program]] with name, socket and addresses")
	}
	for i := range s.Programs {
		v.guest(s, i)
	}
	if len(v.Errs) > 0 {
		return
	}
	v.switchTogether(s)
	var wrong *vswitch.ProgramError
	if err := vswitch.CheckPrograms(s.Vswitch.Programs, len(s.Cores), len(s.Uplinks)); errors.As(
		err, &wrong) {
		v.Wrong(fmt.Sprintf("program[%d].%s", wrong.Index, wrong.Key), "%s", wrong.Text)
	}
}

// switchTogether refuses one device for two uplinks, and one path for two sockets.
func (v *validator) switchTogether(s *Switch) {
	opens := make([]*port.Config, len(s.Uplinks))
	for i := range s.Uplinks {
		opens[i] = &s.Uplinks[i].Open
	}
	name := func(i int) string { return s.Uplinks[i].Name }
	v.DevicesTogether("uplink", name, opens)
	served := map[string]bool{}
	for i := range s.Programs {
		key, path := fmt.Sprintf("program[%d].socket", i), whole(s.Vswitch.Programs[i].Socket)
		if s.Programs[i].Socket == "" {
			key = "switch.socket"
		}
		if path == whole(s.Control.Path) && !served[path] {
			v.Wrong(key, "%q is the control socket; choose another path", path)
		}
		served[path] = true
	}
	for i := range s.Uplinks {
		u := &s.Uplinks[i]
		switch path := whole(u.Socket); {
		case path == "":
		case path == whole(s.Control.Path):
			v.Wrong(fmt.Sprintf("uplink[%d].socket", i),
				"%q is the control socket; choose another path", u.Socket)
		case served[path]:
			v.Wrong(fmt.Sprintf("uplink[%d].socket", i),
				"%q is a socket of programs of this switch; want that of another server", u.Socket)
		}
		for j := range i {
			if o := &s.Uplinks[j]; u.Socket != "" && o.Socket == u.Socket && o.ID == u.ID {
				v.Wrong(fmt.Sprintf("uplink[%d].id", i),
					"%d on %s is uplink %q's; choose another", u.ID, u.Socket, o.Name)
			}
		}
	}
}

func (v *validator) switchLimits(s *Switch) {
	l := &s.Switch
	v.OneOf("switch.idle", l.Idle, "adaptive", "spin")
	if _, err := port.ParsePage(l.Page); err != nil {
		v.Wrong("switch.page", "%q: %v", l.Page, err)
	}
	s.Cores = []int{port.NoCore}
	switch {
	case l.Cores != "" && v.Given("switch.threads"):
		v.Wrong("switch.threads", "of no use with cores: each of those has a thread")
	case l.Cores != "":
		cores, err := port.ParseCores(l.Cores)
		if err != nil {
			v.Wrong("switch.cores", "%q: %v", l.Cores, err)
			break
		}
		s.Cores = cores
	case v.Given("switch.threads"):
		v.Number("switch.threads", int64(l.Threads), 1, vswitch.CoresMax)
		s.Cores = slices.Repeat(s.Cores, min(max(l.Threads, 1), vswitch.CoresMax))
	}
	if len(s.Cores) > vswitch.CoresMax {
		v.Wrong("switch.cores", "%d of them; want %d at most", len(s.Cores), vswitch.CoresMax)
	}
	v.Number("switch.numa_node", int64(l.Node), -1, 1023)
	v.MemifSocket("switch.socket", l.Socket)
	v.Number("switch.multicast", int64(l.Multicast), 1, 1<<30)
	v.Number("switch.buffers", int64(l.Buffers), 0, 1<<24)
	v.Number("switch.ring_log2_max", int64(l.RingLog2), 1, 14)
	v.Number("switch.memory_max", int64(l.MemoryMax), 64<<10, 1<<40)
	mode, err := strconv.ParseUint(l.Mode, 8, 9)
	if err != nil {
		v.Wrong("switch.mode", "%q: want an octal number, as \"0660\"", l.Mode)
	}
	s.Vswitch = vswitch.Config{
		Cores: len(s.Cores), Buffers: l.Buffers, Multicast: int64(l.Multicast),
		Sockets: vswitch.Sockets{Mode: os.FileMode(mode), MemoryMax: int64(l.MemoryMax),
			RingLog2Max: l.RingLog2, Unsealed: l.Unsealed},
	}
}

func (v *validator) uplink(s *Switch, i int) {
	u := &s.Uplinks[i]
	path := fmt.Sprintf("uplink[%d]", i)
	v.Name("uplink", i, func(i int) string { return s.Uplinks[i].Name })
	if i == vswitch.UplinksMax {
		v.Wrong(path, "a switch has %d uplinks at most", vswitch.UplinksMax)
	}
	driver, err := v.Drivers.ByName(u.Driver)
	if err != nil || driver.Sockets {
		v.Wrong(path+".driver", "%q: want tap, dpdk or memif", u.Driver)
		return
	}
	known := []string{"tap", "dpdk", "memif"}
	v.Useless(path, "the driver "+u.Driver, *u, func(of []string) bool {
		return slices.Contains(of, u.Driver) || !slices.Contains(known, u.Driver)
	})
	if u.Driver == "dpdk" && slices.ContainsFunc(s.Uplinks[:i], func(o Uplink) bool {
		return o.Driver == "dpdk"
	}) {
		v.Wrong(path+".driver", "a second uplink of the driver dpdk; a switch has one at most")
	}
	u.Open = port.Config{
		Driver: driver, Device: u.Device, PCI: u.PCI, EAL: u.EAL, Socket: u.Socket, ID: u.ID,
		Secret: u.Secret, FlowControl: u.FlowControl,
		Promiscuous: true, NoOffload: true, Options: u.Options, MTU: u.MTU, Queues: u.Queues,
	}
	v.Options(path, &driver, u.Options)
	v.PCI(path+".pci", u.PCI)
	v.MemifSocket(path+".socket", u.Socket)
	if len(u.Secret) > portfile.SecretMax {
		v.Wrong(path+".secret", "%d octets; want %d at most", len(u.Secret), portfile.SecretMax)
	}
	if u.FlowControl != "" {
		v.OneOf(path+".flow_control", u.FlowControl, "none", "rx", "tx", "full")
	}
	if u.Device == "" && u.PCI == "" {
		u.Open.Device = u.Name
	}
	if u.MAC != "" {
		if u.Open.MAC, err = port.ParseMAC(u.MAC); err != nil {
			v.Wrong(path+".mac", "%q: %v", u.MAC, err)
		}
	}
	if u.HostAddress != "" {
		v.uplinkHost(s, i, path+".host_address")
	}
	if u.Driver == "tap" || u.Driver == "dpdk" && u.PCI == "" &&
		!strings.HasPrefix(u.Open.Device, "net_") {
		v.DeviceName(path+".device", u.Open.Device)
	}
	if driver.Check != nil {
		if err := driver.Check(&u.Open); err != nil {
			v.Wrong(path, "%v", err)
		}
	}
	v.Number(path+".mtu", int64(u.MTU), port.MTUMin, int64(u.Open.MTUMost()))
	v.Number(path+".queues", int64(u.Queues), 1, int64(len(s.Cores)))
	v.Number(path+".buffers", int64(u.Buffers), 32, vswitch.BuffersMax)
	s.Vswitch.Uplinks = append(s.Vswitch.Uplinks, vswitch.Uplink{Queues: u.Queues, Buffers: u.Buffers})
}

// uplinkHost judges the address of the kernel's side of an uplink.
func (v *validator) uplinkHost(s *Switch, i int, at string) {
	u := &s.Uplinks[i]
	host, ok := v.Station(at, u.HostAddress)
	if !ok {
		return
	}
	u.Open.HostAddr = host
	if host.Addr().Is6() && u.MTU < port.MTUMin6 {
		v.Wrong(fmt.Sprintf("uplink[%d].mtu", i),
			"%d: IPv6 wants %d or more (RFC 8200), and host_address is one of it", u.MTU, port.MTUMin6)
	}
	for j := range s.Uplinks[:i] {
		if other := s.Uplinks[j].Open.HostAddr; other.IsValid() &&
			other.Masked().Overlaps(host.Masked()) {
			v.Wrong(at, "%v: uplink %q in line %d has the network %v; the kernel would send what is for "+
				"this one through that device",
				host.Masked(), s.Uplinks[j].Name, v.Line(fmt.Sprintf("uplink[%d].host_address", j)),
				other.Masked())
		}
	}
}

func (v *validator) guest(s *Switch, i int) {
	g := &s.Programs[i]
	path := fmt.Sprintf("program[%d]", i)
	v.Name("program", i, func(i int) string { return s.Programs[i].Name })
	p := vswitch.Program{
		Name: g.Name, Socket: g.Socket, ID: g.ID, Secret: g.Secret, UIDs: g.UIDs, GIDs: g.GIDs,
		Uplink: v.uplinkOf(path, s, g), VLAN: g.VLAN,
		MTU: g.MTU, Queues: g.Queues, Core: g.Thread, Buffers: g.Buffers,
		Send:    vswitch.Rate{Octets: int64(g.SendRate), Frames: int64(g.SendFrames)},
		Receive: vswitch.Rate{Octets: int64(g.ReceiveRate), Frames: int64(g.ReceiveFrames)},
	}
	if p.Socket == "" {
		p.Socket = s.Switch.Socket
	}
	if p.Socket == "" {
		v.Wrong(path+".socket", "missing, and [switch] has none for all")
	}
	v.MemifSocket(path+".socket", g.Socket)
	if len(g.Secret) > portfile.SecretMax {
		v.Wrong(path+".secret", "%d octets; want %d at most", len(g.Secret), portfile.SecretMax)
	}
	for key, n := range map[string]conf.Size{"send_rate": g.SendRate, "send_frames": g.SendFrames,
		"receive_rate": g.ReceiveRate, "receive_frames": g.ReceiveFrames} {
		v.Number(path+"."+key, int64(n), 0, vswitch.RateMax)
	}
	most := int64(65513)
	if p.Uplink >= 0 {
		most = int64(s.Uplinks[p.Uplink].MTU)
	}
	if g.MTU < port.MTUMin || int64(g.MTU) > most {
		v.Wrong(path+".mtu", "%d: want %d to %d, what its uplink has", g.MTU, port.MTUMin, most)
	}
	v.Number(path+".thread", int64(g.Thread), 0, int64(len(s.Cores)-1))
	v.Number(path+".queues", int64(g.Queues), 1, vswitch.QueuesMax)
	v.Number(path+".buffers", int64(g.Buffers), 32, vswitch.BuffersMax)
	v.guestAddresses(path, g, &p)
	for j, text := range g.Ports {
		r, err := port.ParsePorts(text)
		if err != nil {
			v.Wrong(fmt.Sprintf("%s.ports[%d]", path, j), "%q: %v", text, err)
		}
		p.Ports = append(p.Ports, vswitch.PortRange(r))
	}
	s.Vswitch.Programs = append(s.Vswitch.Programs, p)
}

func (v *validator) guestAddresses(path string, g *SwitchGuest, p *vswitch.Program) {
	if len(g.Addresses) == 0 {
		v.Wrong(path+".addresses", "missing: a program has an address, as [\"10.9.0.2\"]")
		return
	}
	for j, text := range g.Addresses {
		a, err := netip.ParseAddr(text)
		if err != nil || a.Zone() != "" || a.Is4In6() ||
			port.CheckStation(netip.PrefixFrom(a, a.BitLen())) != nil {
			v.Wrong(fmt.Sprintf("%s.addresses[%d]", path, j),
				"%q: want the address of a host, without a prefix length, as 10.9.0.2 or fd09::2", text)
			continue
		}
		if a.Is6() && g.MTU < port.MTUMin6 {
			v.Wrong(path+".mtu", "%d: IPv6 wants %d or more (RFC 8200), and addresses has one of it", g.MTU,
				port.MTUMin6)
		}
		p.Addrs = append(p.Addrs, vswitch.AddrsOf(a)...)
		if j == 0 {
			p.MAC = port.MemifMAC(a)
		}
	}
	if g.MAC != "" {
		mac, err := port.ParseMAC(g.MAC)
		if err != nil {
			v.Wrong(path+".mac", "%q: %v", g.MAC, err)
		}
		p.MAC = mac
	}
}

// uplinkOf is the number of a program's uplink, or vswitch.NoUplink.
func (v *validator) uplinkOf(path string, s *Switch, g *SwitchGuest) int {
	if g.Uplink == "" {
		switch len(s.Uplinks) {
		case 0:
			return vswitch.NoUplink
		case 1:
			return 0
		}
		v.Wrong(path+".uplink", "missing: there are several")
		return vswitch.NoUplink
	}
	i := slices.IndexFunc(s.Uplinks, func(u Uplink) bool { return u.Name == g.Uplink })
	if i < 0 {
		v.Wrong(path+".uplink", "%q: there is no such uplink", g.Uplink)
		return vswitch.NoUplink
	}
	return i
}
