package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/internal/tools/perf/pair"
	"github.com/rnicd/rnicd/rnic"
)

// What perf measures unless told otherwise, as perftest.
const (
	perfItersBandwidth = 5000
	perfItersLatency   = 1000
	perfSizeBandwidth  = 65536
	perfSizeLatency    = 2
	perfTxDepth        = 128
	perfRxDepth        = 512
	perfAllFirst       = 2
	perfAllLast        = 8 << 20
	// perfAllOctets bounds what --all moves of one size, where --iters does not say otherwise.
	perfAllOctets = 256 << 20
	perfAllLeast  = 20 // iterations of it
)

var perfOps = []perf.Op{perf.Write, perf.Read, perf.Send, perf.Atomic}

// perfOptions are what is measured, and how it is told.
type perfOptions struct {
	op       perf.Op
	latency  bool
	size     size
	all      bool
	iters    int
	warmup   int
	txDepth  int
	rxDepth  int
	duration time.Duration
	set      *pflag.FlagSet
}

func newPerf() *cobra.Command {
	c := &cobra.Command{
		Use:   "perf",
		Short: "Measure bandwidth and latency of RDMA Writes, Reads, Sends and atomics",
		Long: `perf measures a connection by perftest's rules: bandwidth (bw) with --tx-depth messages outstanding, latency (lat) of one
after the other. Start rnicd perf server at one end, and rnicd perf write, read, send or atomic at the other; or rnicd
perf demo for both ends in one process, over a cable in memory.`,
		Args: cobra.ArbitraryArgs,
		RunE: command.OnlyCommands,
	}
	c.AddCommand(newPerfServer(), newPerfDemo())
	for _, op := range perfOps {
		c.AddCommand(newPerfClient(op))
	}
	return c
}

func (o *perfOptions) flags(f *pflag.FlagSet) {
	o.set = f
	f.VarP(&o.size, "size", "s", "octets of a message (default 65536 for bw, 2 for lat; an "+
		"atomic has 8)")
	f.BoolVarP(&o.all, "all", "a", false, "all sizes from 2 to 8388608 octets, doubling")
	f.IntVarP(&o.iters, "iters", "n", 0,
		"messages, or round trips, to measure (default 5000 for bw, 1000 for lat; with --all fewer of "+
			"the long ones)")
	f.IntVar(&o.warmup, "warmup", 0, "messages, or round trips, before those")
	f.IntVarP(&o.txDepth, "tx-depth", "t", perfTxDepth,
		"bw: messages that are posted and not completed")
	f.IntVarP(&o.rxDepth, "rx-depth", "r", perfRxDepth, "send: receive buffers at the server")
	f.VarP((*timeSpan)(&o.duration), "duration", "D",
		"measure for so long instead of a number of messages; then no peak is found")
}

// about reads the first argument, bw or lat.
func (o *perfOptions) about(kind string) error {
	switch kind {
	case "bw":
	case "lat":
		o.latency = true
	default:
		return fmt.Errorf("%q: want bw or lat", kind)
	}
	return nil
}

// check refuses what cannot be.
func (o *perfOptions) check() error {
	var errs []error
	wrong := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	given := func(name string) bool { return o.set.Changed(name) }
	switch {
	case o.op == perf.Atomic && o.all:
		wrong("--all: an atomic has %d octets", perf.AtomicSize)
	case o.op == perf.Atomic && given("size") && o.size != perf.AtomicSize:
		wrong("--size %v: an atomic has %d octets", &o.size, perf.AtomicSize)
	case o.all && given("size"):
		wrong("--all and --size: choose one")
	case given("size") && (o.size < 1 || o.size > pair.SizeLimit):
		wrong("--size %v: want 1 to %d octets", &o.size, pair.SizeLimit)
	}
	switch {
	case given("duration") && given("iters"):
		wrong("--duration and --iters: choose one")
	case given("iters") && o.iters < 1:
		wrong("--iters %d: want 1 or more", o.iters)
	case given("duration") && o.duration <= 0:
		wrong("--duration %v: must be positive", o.duration)
	}
	if o.warmup < 0 {
		wrong("--warmup %d: must not be negative", o.warmup)
	}
	if o.txDepth < 1 || o.txDepth > pair.DepthMax {
		wrong("--tx-depth %d: want 1 to %d", o.txDepth, pair.DepthMax)
	}
	if o.rxDepth < 1 || o.rxDepth > pair.DepthMax {
		wrong("--rx-depth %d: want 1 to %d", o.rxDepth, pair.DepthMax)
	}
	return errors.Join(errs...)
}

// tests are those that the flags ask for, one for each size.
func (o *perfOptions) tests() []perf.Test {
	sizes := []int{int(o.size)}
	switch {
	case o.op == perf.Atomic:
		sizes = []int{perf.AtomicSize}
	case o.all:
		sizes = nil
		for n := perfAllFirst; n <= perfAllLast; n *= 2 {
			sizes = append(sizes, n)
		}
	case o.size == 0 && o.latency:
		sizes = []int{perfSizeLatency}
	case o.size == 0:
		sizes = []int{perfSizeBandwidth}
	}
	var all []perf.Test
	for _, n := range sizes {
		t := perf.Test{
			Op: o.op, Latency: o.latency, Size: n, Warmup: o.warmup, TxDepth: o.txDepth, RxDepth: o.rxDepth,
			Duration: o.duration,
		}
		if o.duration == 0 {
			t.Iterations = o.itersOf(n)
		}
		all = append(all, t)
	}
	return all
}

func (o *perfOptions) itersOf(size int) int {
	n := perfItersBandwidth
	if o.latency {
		n = perfItersLatency
	}
	switch {
	case o.iters > 0:
		return o.iters
	case o.all:
		return max(min(n, perfAllOctets/size), perfAllLeast)
	}
	return n
}

// perfClient are the flags of a client.
type perfClient struct {
	dialOptions
	perfOptions
	noMarkers bool
}

func newPerfClient(op perf.Op) *cobra.Command {
	o := &perfClient{perfOptions: perfOptions{op: op}}
	what := map[perf.Op]string{perf.Write: "RDMA Writes", perf.Read: "RDMA Reads", perf.Send: "Sends",
		perf.Atomic: "atomics (Fetch and Add)"}[op]
	c := &cobra.Command{
		Use:   op.String() + " bw|lat HOST[:PORT]",
		Short: "Bandwidth or latency of " + what + " to a server",
		Args:  command.ArgsWanted(2, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return runPerf(c.Context(), o, args[0], args[1], newReporter(c, o.json))
		},
	}
	f := c.Flags()
	o.dialOptions.flags(f)
	o.dialectFlag(f, "rfc6581, or rfc5044 where the server knows only that")
	o.jsonFlag(f)
	f.BoolVar(&o.noMarkers, "no-markers", false, "do not ask the server for MPA markers")
	o.perfOptions.flags(f)
	return c
}

func runPerf(ctx context.Context, o *perfClient, kind, addr string, r *reporter) error {
	dialect, flags := o.dialOptions.check()
	addr, server := dialAddr(addr, pair.DefaultPort)
	if err := errors.Join(o.about(kind), server, o.perfOptions.check(), flags); err != nil {
		return err
	}
	ctx, cancel := o.within(ctx)
	defer cancel()
	cfg := pair.ClientConfig{Addr: addr, Conn: o.connParam(dialect, o.noMarkers)}
	o.nic.oneThread()
	return o.client(ctx, r.remarks, func(ctx context.Context, dev *rnic.Adapter) error {
		cfg.Adapter = dev
		return o.explain(ctx, o.measure(ctx, cfg, &o.dialOptions, r), "perf with", addr)
	})
}

// measure runs one test after the other, each on a connection of its own.
func (o *perfOptions) measure(ctx context.Context, cfg pair.ClientConfig, dial *dialOptions,
	r *reporter) error {
	tests := o.tests()
	for i, t := range tests {
		cfg.Test, cfg.Connected = t, nil
		if i == 0 {
			cfg.Connected = func(qp *rnic.QueuePair) {
				r.remark("%v %s with %v: %s", o.op,
					map[bool]string{false: "bandwidth", true: "latency"}[o.latency], qp.RemoteAddr(),
					startupOf(qp))
				if !r.json {
					r.do(func(w io.Writer) { perfHeader(w, o.latency) })
				}
			}
		}
		var res perf.Result
		err := dial.connecting(ctx, func() (err error) {
			res, err = pair.Run(ctx, cfg)
			return err
		})
		if err != nil {
			return err
		}
		r.do(func(w io.Writer) { printPerf(w, &res, r.json) })
	}
	return nil
}

// startupOf says what a connection speaks.
func startupOf(qp *rnic.QueuePair) string {
	s, f := qp.Startup(), qp.Framing()
	crc := "CRC32C"
	if !f.CRC {
		crc = "no CRC"
	}
	markers := "no markers"
	switch {
	case f.MarkersSent && f.MarkersReceived:
		markers = "markers both ways"
	case f.MarkersSent:
		markers = "markers from the client"
	case f.MarkersReceived:
		markers = "markers from the server"
	}
	return fmt.Sprintf("%v, %s, %s, ORD %d", s.Dialect, crc, markers, s.ORD)
}
