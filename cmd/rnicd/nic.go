package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/memif"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// Limits of the flags.
const (
	connsMax  = port.ConnsDefault
	coreNone  = port.NoCore
	queuesMax = port.QueuesMax
	timerMin  = port.TimerMin
	rtoMinMax = port.RTOMinMax
	ptoMinMax = port.PTOMinMax
	mtuMin    = port.MTUMin
	vlanMax   = port.VLANMax
)

// nicOptions are the flags that describe a NIC and its Poller.
type nicOptions struct {
	pmd      string
	dev      string
	pci      string
	eal      string
	addrs    []string
	hostAddr string
	gateways []string
	vlan     uint16
	peerMax  uint16 // of servers
	mtu      int
	core     int
	cores    string
	queues   int
	spin     bool
	apart    bool // of a cable: each Poller has a core of its own, if there are two
	idle     string
	page     string
	node     int
	fault    string
	capture  string
	counters bool

	flowControl string
	promiscuous bool

	memif memifOptions

	zeroCopy bool      // of a demo's cable
	pool     *mem.Pool // packet buffers that are there already; nil: made

	dialPorts      string
	congestion     string
	congestionOurs bool // --congestion is about our stack alone
	rtoMin         time.Duration
	ptoMin         time.Duration
	pacing         bool
	ecn            bool
	noDAD          bool
	dad            string
	mac            string
	noOffload      bool

	set *pflag.FlagSet // checkDevice asks it what was given
}

// deviceFlags are of no use without a device of ours, as is --capture, of which checkDevice says
// what does instead. --congestion is one too, except for a client, whose peer hears of it.
var deviceFlags = []string{
	"dev", "pci", "eal", "socket", "id", "role", "secret", "host-addr", "gateway", "vlan", "mtu",
	"queues", "core", "cores", "spin", "idle", "flow-control", "promiscuous", "fault", "ecn",
	"no-dad", "dad", "mac", "no-offload", "rto-min", "pto-min", "pacing", "dial-ports", "no-markers",
	"markers", "drop-bad-crc",
}

// given are those of the named flags that stand on the command line, as they are written there.
func (o *nicOptions) given(names ...string) []string {
	var found []string
	for _, name := range names {
		if o.set != nil && o.set.Changed(name) {
			found = append(found, "--"+name)
		}
	}
	return found
}

func (o *nicOptions) flags(f *pflag.FlagSet) {
	o.set = f
	f.StringVar(&o.pmd, "pmd", "tap",
		"poll-mode driver: tap, dpdk, memif (shared memory to another process), or kernel (no driver: "+
			"the kernel's TCP)")
	f.StringVar(&o.dev, "dev", "rnic0",
		"tap: device name; dpdk: name of the TAP that net_tap makes, or a whole vdev such as "+
			"net_af_packet0,iface=eth1")
	f.StringVar(&o.pci, "pci", "", "dpdk: PCI address of a NIC, as after -a")
	f.StringVar(&o.eal, "eal", "", "dpdk: further EAL arguments, separated by spaces")
	o.memif.flags(f)
	f.StringSliceVar(&o.addrs, "addr", []string{"10.9.0.1/24"},
		"addresses of our stack, IPv4 and IPv6; kernel: one of this host's, as 127.0.0.1 (default all)")
	f.StringVar(&o.hostAddr, "host-addr", "",
		"tap: address of the kernel's side, as 10.9.0.254/24; empty leaves it alone")
	f.StringSliceVar(&o.gateways, "gateway", nil,
		"routers for what is not on the link, of either family")
	f.Var(&number{&o.vlan, 0, vlanMax}, "vlan", "802.1Q tag of all frames, 1 to 4094; 0: untagged")
	f.IntVar(&o.mtu, "mtu", 1500, "largest IP packet, octets")
	f.IntVar(&o.queues, "queues", 1,
		"queues of the device, each with a poll-mode core of its own: --core and those after it, "+
			"or --cores")
	f.IntVar(&o.core, "core", coreNone, "CPU to pin the poll-mode core to; -1: the scheduler's choice")
	f.StringVar(&o.cores, "cores", "",
		"CPUs to pin the poll-mode cores to, as 2-5 or 2,4,6; without --queues, a queue for each")
	f.BoolVar(&o.spin, "spin", false, "never give up the core, even when idle")
	f.StringVar(&o.idle, "idle", idleAdaptive, "what an idle poll-mode core does: "+
		strings.Join(idleNames, ", "))
	f.StringVar(&o.flowControl, "flow-control", "",
		"dpdk: pause frames, none, rx (heed), tx (send) or full (default: as the device has it)")
	f.BoolVar(&o.promiscuous, "promiscuous", false, "dpdk: take in frames to other addresses too")
	f.StringVar(&o.page, "page", "auto",
		"page size of packet and region memory: auto, 2M, 1G or normal")
	f.IntVar(&o.node, "node", hugepages.AnyNode, "NUMA node of the memory; -1: any")
	f.StringVar(&o.fault, "fault", "",
		"a bad network, as drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,delay=1ms,seed=7")
	f.StringVar(&o.capture, "capture", "", "write every frame to this pcapng file")
	f.BoolVar(&o.counters, "counters", false,
		"print all counters that are not 0 at the end; SIGUSR1 prints them at any time")
	// the client's says it to both ends
	if o.congestionOurs = f.Lookup("congestion") == nil; o.congestionOurs {
		f.StringVar(&o.congestion, "congestion", "cubic",
			"congestion control: "+strings.Join(tcp.Congestions(), ", "))
	}
	f.DurationVar(&o.rtoMin, "rto-min", 200*time.Millisecond,
		"least retransmission timeout beyond the round trip; a few ms within a data centre")
	f.DurationVar(&o.ptoMin, "pto-min", time.Millisecond,
		"least time before a tail loss probe; 100us where both ends poll")
	f.StringVar(&o.dialPorts, "dial-ports", "",
		"TCP ports to dial from, as 50000-50999, where other programs have our address, too (default "+
			"49152-65535)")
	f.BoolVar(&o.pacing, "pacing", false,
		"spread segments over the round trip instead of sending bursts")
	f.BoolVar(&o.ecn, "ecn", false, "ask for ECN, and accept it (RFC 3168)")
	f.StringVar(&o.dad, "dad", dadAuto,
		"how to look whether another host has our addresses: quick, a third of a second; full, the 4 "+
			"to 7 s of RFC 5227 and 1 to 2 s of RFC 4862; auto: quick on a TAP or memif, full on a NIC")
	f.BoolVar(&o.noDAD, "no-dad", false,
		"use addresses at once, without looking whether another host has them")
	f.StringVar(&o.mac, "mac", "",
		"MAC of our side of a TAP or memif (default: of a TAP made of the host, the network "+
			"namespace's name, the device's name and --addr, the same from start to start; of a memif "+
			"client of this boot and its first address)")
	f.BoolVar(&o.noOffload, "no-offload", false,
		"cut and checksum everything ourselves, frame by frame")
}

// queueCount is --queues, 1 where there is no such flag.
func (o *nicOptions) queueCount() int { return max(o.queues, 1) }

// check refuses what cannot be, before any memory is mapped or any device made, and says all that
// is wrong.
func (o *nicOptions) check() error {
	var mtu error
	if most := o.mtuMax(); o.mtu < mtuMin || o.mtu > most {
		mtu = fmt.Errorf("--mtu %d: want %d to %d octets", o.mtu, mtuMin, most)
	}
	_, addrs := parseAddrs(o.addrs)
	_, routers := o.routers()
	_, page := parsePage(o.page)
	_, control := o.control()
	_, idle := o.idlePolicy()
	_, dialPorts := o.ports()
	_, bad := o.faults()
	return errors.Join(addrs, routers, page, o.checkOnLink(), mtu, control, idle,
		o.checkTimer("rto-min", o.rtoMin, rtoMinMax), o.checkTimer("pto-min", o.ptoMin, ptoMinMax),
		dialPorts, bad)
}

// ports are --dial-ports, or none.
func (o *nicOptions) ports() (r stack.PortRange, err error) {
	if o.dialPorts == "" {
		return r, nil
	}
	if r, err = port.ParsePorts(o.dialPorts); err != nil {
		return r, fmt.Errorf("--dial-ports %q: %w", o.dialPorts, err)
	}
	return r, nil
}

// faults are --fault, or nil.
func (o *nicOptions) faults() (*fault.Spec, error) {
	if o.fault == "" {
		return nil, nil
	}
	spec, err := fault.Parse(o.fault)
	if err != nil {
		return nil, fmt.Errorf("--fault: %w", err)
	}
	return &spec, nil
}

// mtuMax is what the driver takes. NICs under DPDK take less than IPv4 allows, and say so
// themselves.
func (o *nicOptions) mtuMax() int {
	switch o.pmd {
	case "tap":
		return tap.MTUMax
	case "memif":
		return memif.MTUMax
	case "":
		return wire.MTUMax // demo's cable
	}
	return math.MaxUint16
}

// checkTimer refuses a time shorter than a turn of the Poller takes, or one that is no bound any
// more. Where there is no such flag zero is the default.
func (o *nicOptions) checkTimer(flag string, d, most time.Duration) error {
	if (d != 0 || len(o.given(flag)) > 0) && (d < timerMin || d > most) {
		return fmt.Errorf("--%s %v: want %v to %v", flag, d, timerMin, most)
	}
	return nil
}

// control is the congestion control that the flags name, nil for the stack's choice.
func (o *nicOptions) control() (tcp.Congestion, error) {
	if o.congestion == "" {
		return nil, nil
	}
	a, err := tcp.CongestionByName(o.congestion)
	if err != nil {
		return nil, fmt.Errorf("--congestion: %w", err)
	}
	return a, nil
}

// openNIC opens the device that the flags name, with its memory and a region of regionBytes, and
// makes its Pollers. A driver other than the one of --pmd is given for a device that is not the
// flags'.
func openNIC(o *nicOptions, regionBytes int64, log io.Writer,
	driver ...port.Driver) (*port.Port, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	cfg, err := o.portConfig(driver...)
	if err != nil {
		return nil, err
	}
	cfg.Region = regionBytes
	n, err := port.Open(cfg)
	var region *port.RegionError
	var noServer *port.NoServerError
	switch {
	case errors.As(err, &region):
		return nil, fmt.Errorf("--region: %w", region)
	case errors.As(err, &noServer):
		return nil, fmt.Errorf("--socket %w", err)
	case errors.As(err, new(*port.FrontError)):
		return nil, fmt.Errorf("--%w", err)
	case err != nil:
		return nil, err
	}
	fmt.Fprintf(log, "memory      %s on %s pages%s\n", octets(uint64(len(n.Arena().Bytes()))),
		pageName(n.Arena().PageSize()), fallbackNote(n.Arena()))
	return n, nil
}

// portConfig is what the flags say of the device and its Pollers. They have been checked.
func (o *nicOptions) portConfig(driver ...port.Driver) (cfg port.Config, err error) {
	cfg = port.Config{
		Device: o.dev, PCI: o.pci, EAL: strings.Fields(o.eal), Socket: o.memif.socket, ID: o.memif.id,
		Serve:  o.memif.role == memifServer,
		Secret: o.memif.secret, FlowControl: o.flowControl, Promiscuous: o.promiscuous,
		NoOffload: o.noOffload, VLAN: o.vlan, MTU: o.mtu,
		Queues: o.queueCount(), ConnsMax: connsMax, PeerMax: int(o.peerMax), Node: o.node,
		RTOMin: o.rtoMin, PTOMin: o.ptoMin,
		Pacing: o.pacing, ECN: o.ecn, Capture: o.capture, Pool: o.pool,
	}
	if len(driver) > 0 {
		cfg.Driver = driver[0]
	} else if cfg.Driver, err = port.All().ByName(o.pmd); err != nil {
		return cfg, fmt.Errorf("--pmd %q: %w", o.pmd, err)
	}
	for i := range o.queueCount() {
		core, err := o.coreOf(i)
		if err != nil {
			return cfg, err
		}
		cfg.Cores = append(cfg.Cores, core)
	}
	if o.hostAddr != "" {
		if cfg.HostAddr, err = parseAddr("--host-addr", o.hostAddr); err != nil {
			return cfg, err
		}
	}
	var errs [8]error
	cfg.Addrs, errs[0] = parseAddrs(o.addrs)
	cfg.Gateways, errs[1] = o.routers()
	cfg.MAC, errs[2] = o.givenMAC()
	cfg.Idle, errs[3] = o.idlePolicy()
	cfg.Page, errs[4] = parsePage(o.page)
	cfg.Congestion, errs[5] = o.control()
	cfg.DialPorts, errs[6] = o.ports()
	cfg.Fault, errs[7] = o.faults()
	cfg.DAD = o.dadPolicy()
	return cfg, errors.Join(errs[:]...)
}

// ending joins what a command ended with and what closing says. A device that has gone is the
// reason, the context that ended for it is not.
func ending(err, closing error) error {
	if port.IsLost(closing) && errors.Is(err, context.Canceled) {
		return closing
	}
	return errors.Join(err, closing)
}

func parsePage(s string) (hugepages.PageSize, error) {
	p, err := port.ParsePage(s)
	if err != nil {
		return p, fmt.Errorf("--page %q: %w", s, err)
	}
	return p, nil
}

func pageName(p hugepages.PageSize) string {
	if p == hugepages.Normal {
		return "normal"
	}
	return p.String()
}

func fallbackNote(a *hugepages.Arena) string {
	note := ""
	if f := a.Fallback(); f != "" {
		note = " (" + f + ")"
	}
	if err := a.LockErr(); err != nil {
		note += "\nwarning     " + err.Error()
	}
	return note
}
