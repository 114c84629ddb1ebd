// Command gvisor is the end of a goodput comparison that is gVisor's netstack on a TAP device, with gonet's sockets. It is a
// module of its own, so that rnicd does not depend on gVisor. What it prints and when it ends: bench/peers/measure.
//
// It is meant to be as fast as netstack can be made over a TAP; ../README.md says what was tried.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"golang.org/x/sys/unix"
)

const (
	port        = 7174      // bench/peers/measure Port
	chunkBytes  = 256 << 10 // bench/peers/measure ChunkBytes
	patience    = 20 * time.Second
	addrDefault = "10.9.0.1/24"
)

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
	flag.StringVar(&o.role, "role", "sink", "sink or source")
	flag.IntVar(&o.mtu, "mtu", 1500, "largest IP packet")
	flag.DurationVar(&o.length, "for", 3*time.Second, "how long a source sends")
	flag.StringVar(&o.link, "link", "vnet", "link endpoint: vnet (offloads, link.go) or fdbased (gVisor's own)")
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
		return fmt.Errorf("--addr %q: want an IPv4 address with its prefix length, as %s", o.addr, addrDefault)
	}
	if o.role != "sink" && o.role != "source" {
		return fmt.Errorf("--role %q: want sink or source", o.role)
	}
	l, err := listen(o, addr)
	if err != nil {
		return err
	}
	if o.profile != "" {
		f, err := os.Create(o.profile)
		if err != nil {
			return err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return err
		}
		defer pprof.StopCPUProfile()
	}
	fmt.Println("ready")
	c, err := l.Accept()
	if err != nil {
		return err
	}
	if err := c.SetDeadline(time.Now().Add(o.length + patience)); err != nil {
		return err
	}
	start, cpu0 := time.Now(), cpu()
	octets, err := move(o, c)
	if err != nil {
		return err
	}
	seconds, spent := time.Since(start).Seconds(), cpu()-cpu0
	pprof.StopCPUProfile()
	fmt.Printf("result {\"octets\":%d,\"seconds\":%g,\"cpu\":%g}\n", octets, seconds, spent)
	_, _ = io.Copy(io.Discard, os.Stdin)
	return nil
}

// move is bench/peers/measure's Move.
func move(o *options, c net.Conn) (uint64, error) {
	buf := make([]byte, chunkBytes)
	if o.role == "sink" {
		n, err := drain(c, buf)
		return n, errors.Join(err, c.Close())
	}
	var n uint64
	for end := time.Now().Add(o.length); time.Now().Before(end); {
		w, err := c.Write(buf)
		n += uint64(w)
		if err != nil {
			return n, err
		}
	}
	if err := c.(interface{ CloseWrite() error }).CloseWrite(); err != nil {
		return n, err
	}
	if _, err := drain(c, buf); err != nil {
		return n, err
	}
	return n, c.Close()
}

func drain(c net.Conn, buf []byte) (uint64, error) {
	var n uint64
	for {
		got, err := c.Read(buf)
		n += uint64(got)
		switch {
		case errors.Is(err, io.EOF):
			return n, nil
		case err != nil:
			return n, err
		}
	}
}

func cpu() float64 {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return float64(u.Utime.Nano()+u.Stime.Nano()) / 1e9
}
