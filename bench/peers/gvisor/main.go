// Command gvisor is the end of a goodput comparison that is gVisor's netstack on a TAP device, with
// gonet's sockets. It is a module of its own, so that rnicd does not depend on gVisor. What it
// prints and when it ends: bench/peers/measure.
//
// It is meant to be as fast as netstack can be made over a TAP; ../README.md says what was tried.
package main

import (
	"flag"
	"fmt"
	"net/netip"
	"os"
	"runtime/debug"
	"time"

	"github.com/rnicd/rnicd/bench/peers/measure"
)

const addrDefault = "10.9.0.1/24"

// options are the flags.
type options struct {
	dev, addr, role string
	mtu             int
	length          time.Duration

	link           string
	inline, gro    bool
	first, rest    int
	fifo           int
	cc             string
	sack, moderate bool
	rack           bool
	sndbuf, rcvbuf int
	gogc           int
	profile        string
}

func main() {
	var o options
	flag.StringVar(&o.dev, "dev", "peer0", "TAP device to make, in this network namespace")
	flag.StringVar(&o.addr, "addr", addrDefault, "our address")
	flag.StringVar(&o.role, "role", string(measure.Sink), "sink or source")
	flag.IntVar(&o.mtu, "mtu", 1500, "largest IP packet")
	flag.DurationVar(&o.length, "for", 3*time.Second, "how long a source sends")
	flag.StringVar(&o.link, "link", "vnet",
		"link endpoint: vnet (offloads, link.go) or fdbased (gVisor's own)")
	flag.BoolVar(&o.inline, "inline", true, "vnet: packets go up on the goroutine that reads them")
	flag.BoolVar(&o.gro, "gro", false, "generic receive offload")
	flag.IntVar(&o.first, "first", 2048, "vnet: octets of a packet's first buffer")
	flag.IntVar(&o.rest, "rest", 32768, "vnet: octets of its further buffers, up to 65536")
	flag.IntVar(&o.fifo, "fifo", 0, "packets in a queueing discipline before the link; 0: none")
	flag.StringVar(&o.cc, "cc", "cubic", "congestion control")
	flag.BoolVar(&o.sack, "sack", true, "selective acknowledgements")
	flag.BoolVar(&o.rack, "rack", true, "RACK")
	flag.BoolVar(&o.moderate, "moderate", true, "receive buffer auto-tuning")
	flag.IntVar(&o.sndbuf, "sndbuf", 1<<20, "send buffer, octets")
	flag.IntVar(&o.rcvbuf, "rcvbuf", 4<<20, "receive buffer, octets")
	flag.IntVar(&o.gogc, "gogc", 400, "garbage collector's target, percent")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of the transfer to this file")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "gvisor:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	debug.SetGCPercent(o.gogc)
	addr, err := netip.ParsePrefix(o.addr)
	if err != nil || !addr.Addr().Is4() {
		return fmt.Errorf("--addr %q: want an IPv4 address with its prefix length, as %s", o.addr,
			addrDefault)
	}
	d := measure.Direction(o.role)
	if err := d.Check(); err != nil {
		return err
	}
	l, err := listen(o, addr)
	if err != nil {
		return err
	}
	profiled, err := measure.Profile(o.profile)
	if err != nil {
		return err
	}
	defer profiled()
	fmt.Println("ready")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	r, err := measure.Move(c, d, o.length)
	if err != nil {
		return err
	}
	profiled()
	measure.Finish(r)
	return nil
}
