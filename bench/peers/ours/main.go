// Command ours is the end of a goodput comparison that is our stack: a Poller on a TAP device, and
// above the connection what copies octets to or from an application's memory.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/rnicd/rnicd/bench/peers/measure"
	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
	"github.com/rnicd/rnicd/tcp"
)

// regionBytes is the application's memory: what the other ends use, a socket API's buffer.
const regionBytes = measure.ChunkBytes

// options are the flags.
type options struct {
	dev, addr, role string
	mtu, core, bufs int
	length          time.Duration
	window, burst   int
	segments        int
	sent            int
	offload         bool
	spin, stream    bool
	sendBuffer      int
	profile         string
	verbose         bool
}

func main() {
	var o options
	flag.StringVar(&o.dev, "dev", "peer0", "TAP device to make, in this network namespace")
	flag.StringVar(&o.addr, "addr", "10.9.0.1/24", "our address")
	flag.StringVar(&o.role, "role", string(measure.Sink), "sink or source")
	flag.IntVar(&o.mtu, "mtu", 1500, "largest IP packet")
	flag.IntVar(&o.core, "core", -1, "CPU to pin the Poller to; -1: none")
	flag.IntVar(&o.bufs, "bufs", 4096, "packet buffers")
	flag.DurationVar(&o.length, "for", 3*time.Second, "how long a source sends")
	flag.IntVar(&o.window, "window", 4<<20, "receive window")
	flag.IntVar(&o.burst, "burst", 0, "frames a burst; 0: the default")
	flag.IntVar(&o.segments, "segments", 0, "segments a Turn; 0: the default")
	flag.IntVar(&o.sent, "sent", 1024, "segments in flight at most")
	flag.BoolVar(&o.offload, "offload", true, "leave checksums and cutting to the kernel")
	flag.BoolVar(&o.stream, "stream", false,
		"a program with a net.Conn of package stream above, instead of a bare Upper")
	flag.IntVar(&o.sendBuffer, "sndbuf", 1<<20, "send buffer of a stream, octets")
	flag.BoolVar(&o.spin, "spin", false, "never give up the core")
	flag.StringVar(&o.profile, "profile", "", "write a CPU profile of the transfer to this file")
	flag.BoolVar(&o.verbose, "v", false, "print counters to standard error")
	flag.Parse()
	if err := run(&o); err != nil {
		fmt.Fprintln(os.Stderr, "ours:", err)
		os.Exit(1)
	}
}

func run(o *options) error {
	d := measure.Direction(o.role)
	if err := d.Check(); err != nil {
		return err
	}
	addr, err := netip.ParsePrefix(o.addr)
	if err != nil {
		return fmt.Errorf("--addr %q: want an IPv4 address with its prefix length, as 10.9.0.1/24",
			o.addr)
	}
	port, err := tap.New(tap.Config{Name: o.dev, MTU: o.mtu, NoOffload: !o.offload})
	if err != nil {
		return err
	}
	defer port.Close()
	stride := mem.Headroom + o.mtu + 64
	stride = (stride + 63) &^ 63
	arena, err := hugepages.New(hugepages.Config{Bytes: int64(o.bufs*stride + regionBytes + 2<<20),
		Node: hugepages.AnyNode})
	if err != nil {
		return err
	}
	defer arena.Close()
	if why := arena.Fallback(); why != "" && o.verbose {
		fmt.Fprintln(os.Stderr, why)
	}
	pool, err := mem.NewPool(arena, mem.PoolConfig{Bufs: o.bufs, Stride: stride})
	if err != nil {
		return err
	}
	queue, err := port.Open(0, pool)
	if err != nil {
		return err
	}
	cfg := stack.Config{
		Name: o.dev, Queue: queue, Pool: pool, Caps: port.Caps(), MAC: inet.MAC(port.MAC()), Addr: addr,
		NoDAD: true, MTU: o.mtu,
		ConnsMax: 8, Core: stack.OnCPU(o.core), BurstMax: o.burst, SegmentsMax: o.segments,
		TCP: tcp.Config{ReceiveWindow: o.window, SentMax: o.sent},
	}
	if o.spin {
		cfg.Idle = stack.IdleSpin
	}
	p, err := stack.New(cfg)
	if err != nil {
		return err
	}
	e := &end{done: make(chan outcome, 1)}
	if e.memory, err = arena.Carve(regionBytes, 4096); err != nil {
		return err
	}
	if d == measure.Source {
		e.length = o.length
	}
	return serve(o, p, e, d)
}

// serve turns the Poller until its one connection has ended.
func serve(o *options, p *stack.Poller, e *end, d measure.Direction) error {
	profiled, err := measure.Profile(o.profile)
	if err != nil {
		return err
	}
	defer profiled()
	ctx, cancel := context.WithCancel(context.Background())
	stopped := make(chan error, 1)
	var running sync.WaitGroup
	running.Go(func() { stopped <- p.Run(ctx) })
	defer running.Wait() // the memory goes after that
	defer cancel()
	if o.stream {
		running.Go(func() { e.done <- serveStream(o, p, d) })
	} else if err := p.Submit(func() {
		if err := p.Listen(measure.Port, 1, accept(e)); err != nil {
			e.done <- outcome{err: err}
			return
		}
		ready()
	}); err != nil {
		return err
	}
	select {
	case err := <-stopped:
		return errors.Join(errors.New("the Poller ended"), err)
	case out := <-e.done:
		if o.verbose {
			report(p)
		}
		if out.err != nil {
			return out.err
		}
		profiled()
		measure.Finish(out.result)
		return nil
	case <-time.After(o.length + 20*time.Second):
		return errors.New("the transfer did not end")
	}
}

func ready() { fmt.Println("ready") }

// report prints the Poller's counters.
func report(p *stack.Poller) {
	var n stack.Counters
	done := make(chan struct{})
	if err := p.Submit(func() { p.Snapshot(&n); close(done) }); err == nil {
		<-done
		fmt.Fprintf(os.Stderr, "%+v\n%+v\n", n, stream.CountersOf(p))
	}
}

// accept gives e to the first connection and refuses all others.
func accept(e *end) func(*stack.Conn) stack.Upper {
	taken := false
	return func(c *stack.Conn) stack.Upper {
		if taken {
			return nil
		}
		taken, e.conn = true, c
		return e
	}
}
