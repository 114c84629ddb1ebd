package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/internal/tools/rstream"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/rsocket"
)

// rstreamPlan are the flags that both ends of rstream have.
type rstreamPlan struct {
	size       size
	all        bool
	count      int
	iterations int
	verify     bool
	direct     bool
	buffer     size
	late       bool
	markers    bool
	set        *pflag.FlagSet
}

func (o *rstreamPlan) flags(f *pflag.FlagSet) {
	o.set, o.buffer = f, rstream.BufferDefault
	f.VarP(&o.size, "size", "S", "octets of a transfer (default 1000, if --count or --iterations "+
		"is given)")
	f.BoolVarP(&o.all, "all", "a", false,
		"without --size, --count and --iterations: all sizes from 64 octets to 6 MiB, instead of four")
	f.IntVarP(&o.count, "count", "C", 0,
		"transfers in one direction, before it is turned (default 1000, if --size or --iterations "+
			"is given)")
	f.IntVarP(&o.iterations, "iterations", "I", 0,
		"there and back (default 1, if --size or --count is given)")
	f.BoolVarP(&o.verify, "verify", "V", false,
		"compare what comes with what was sent; at both ends, or at neither")
	f.BoolVar(&o.direct, "direct", false,
		"riostream's tests: transfers are written into the other end's memory; at both ends, or "+
			"at neither")
	f.VarP(&o.buffer, "buffer", "B", "octets of the buffers of either direction")
	f.BoolVar(&o.late, "late-grants", false,
		"give the peer room only when it has used up what it had: for Linux siw, which may lose its "+
			"last octets otherwise")
	f.BoolVar(&o.markers, "markers", false, "ask the peer for MPA markers; Linux siw has none")
}

func (o *rstreamPlan) check() (p rstream.Plan, err error) {
	for _, n := range []struct {
		name  string
		value int64
		max   int64
	}{{"size", int64(o.size), rstream.SizeMax}, {"count", int64(o.count), rstream.CountMax},
		{"iterations", int64(o.iterations), rstream.CountMax}} {
		if !o.set.Changed(n.name) {
			continue
		}
		if n.value < 1 || n.value > n.max {
			return p, fmt.Errorf("--%s %d: want 1 to %d", n.name, n.value, n.max)
		}
		if o.all {
			return p, fmt.Errorf("--all and --%s: choose one", n.name)
		}
	}
	if o.buffer < rsocket.BufferMin || o.buffer > rsocket.BufferMax {
		return p, fmt.Errorf("--buffer %v: want %d to %d octets", &o.buffer, rsocket.BufferMin,
			rsocket.BufferMax)
	}
	return rstream.Plan{Size: int(o.size), Transfers: o.count, Iterations: o.iterations, All: o.all},
		nil
}

// socket are the options of the connections.
func (o *rstreamPlan) socket(conn rnic.ConnParam) rsocket.Options {
	maps := 0
	if o.direct {
		maps = 1 // as riostream
	}
	return rsocket.Options{Maps: maps, Conn: conn, SendBuffer: int(o.buffer),
		ReceiveBuffer: int(o.buffer), LateGrants: o.late}
}

type rstreamOptions struct {
	dialOptions
	rstreamPlan
}

func newRstream() *cobra.Command {
	o := &rstreamOptions{}
	c := &cobra.Command{
		Use:   "rstream HOST[:PORT]",
		Short: "Measure stream sockets over RDMA: rdma-core's rstream, both roles",
		Long: `rstream speaks the protocol of librdmacm's rsockets, stream sockets over RDMA, and makes the test of rdma-core's rstream on them,
with rdma-core's own program (rstream) or with rnicd rstream server. Neither what is measured nor how much of it is
exchanged: both ends must be told the same, by flags that are called like rstream's.

Without --size, --count and --iterations latency and bandwidth of four sizes are measured, as rstream does. With --direct both
ends make the test of rdma-core's riostream instead.`,
		Args: argsWanted(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return rstreamClient(c.Context(), o, args[0], newReporter(c, o.json))
		},
	}
	f := c.Flags()
	o.dialOptions.flags(f)
	o.dialectFlag(f, "rfc5044")
	o.jsonFlag(f)
	o.rstreamPlan.flags(f)
	c.AddCommand(newRstreamServer())
	return c
}

func rstreamClient(ctx context.Context, o *rstreamOptions, addr string, r *reporter) error {
	plan, err := o.rstreamPlan.check()
	if err != nil {
		return err
	}
	dialect, err := o.dialOptions.check()
	if err != nil {
		return err
	}
	if addr, err = dialAddr(addr, rstream.DefaultPort); err != nil {
		return err
	}
	ctx, cancel := o.within(ctx)
	defer cancel()
	opt := o.socket(o.connParam(dialect, !o.markers))
	opt.Conn.Quirks.WakeUp = rnic.WakeUpDefault
	table := rstreamTable{json: o.json}
	o.nic.oneThread()
	return o.client(ctx, r.remarks, func(ctx context.Context, dev *rnic.Adapter) error {
		dial := func(ctx context.Context) (c net.Conn, err error) {
			err = o.connecting(ctx, func() (err error) {
				c, err = rsocket.Dial(ctx, dev, addr, opt)
				return peer.Refusal("rstream", err)
			})
			if err == nil {
				qp := c.(*rsocket.Conn).QueuePair()
				r.remark("connected   %v: %s", qp.RemoteAddr(), startupOf(qp))
			}
			return c, err
		}
		err := rstream.Client(ctx, dial, plan, rstream.End{Verify: o.verify, Direct: o.direct},
			func(res rstream.Result) {
				r.do(func(w io.Writer) { table.print(w, res) })
			})
		return o.explain(ctx, err, "rstream", addr)
	})
}

// rstreamRecord is a line of --json.
type rstreamRecord struct {
	Name       string  `json:"name"`
	SizeOctets int     `json:"size_octets"`
	Transfers  int     `json:"transfers"`
	Iterations int     `json:"iterations"`
	Octets     int64   `json:"octets"`
	Elapsed    float64 `json:"elapsed_seconds"`
	Rate       float64 `json:"bits_per_second"`
}

// rstreamTable prints results as they come.
type rstreamTable struct {
	json  bool
	lines int
}

func (t *rstreamTable) print(w io.Writer, r rstream.Result) {
	if t.json {
		_ = json.NewEncoder(w).Encode(rstreamRecord{r.Name, r.Size, r.Transfers, r.Iterations, r.Octets(),
			r.Took.Seconds(), 1e9 * r.Gbps()})
		return
	}
	if t.lines == 0 {
		fmt.Fprintln(w, rstream.Header)
	}
	t.lines++
	fmt.Fprintln(w, r)
}

type rstreamServerOptions struct {
	listenOptions
	rstreamPlan
}

func newRstreamServer() *cobra.Command {
	o := &rstreamServerOptions{}
	c := &cobra.Command{
		Use:   "server",
		Short: "The other end of rnicd rstream, and of rdma-core's rstream -s HOST",
		Long: "server serves one client after the other, as rstream does, and goes on until it is " +
			"interrupted.",
		Args: argsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return rstreamServe(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	o.flagsWithout(f, rstream.DefaultPort)
	o.rstreamPlan.flags(f)
	return c
}

func rstreamServe(ctx context.Context, o *rstreamServerOptions, w io.Writer) error {
	plan, err := o.rstreamPlan.check()
	if err != nil {
		return err
	}
	o.nic.oneThread()
	return o.listen(ctx, w, func(ctx context.Context, s *endpoint, inner *rnic.Listener, out *output,
		done func(error)) error {
		conn := rnic.ConnParam{NoMarkers: !o.markers, NoCRC: o.noCRC}
		l, err := rsocket.NewListener(s.dev, inner,
			rsocket.ListenOptions{Options: o.socket(conn), Rejected: func(remote netip.AddrPort, err error) {
				out.failed(remote, err)
				if !errors.Is(err, rsocket.ErrBusy) {
					done(err)
				}
			}})
		if err != nil {
			return err
		}
		server := &rstream.Server{
			Plan: plan, Verify: o.verify, Direct: o.direct, Idle: o.idle,
			Refused: out.refused,
			Done: func(s rstream.Served) {
				out.do(func(w io.Writer) {
					table := rstreamTable{}
					for _, r := range s.Results {
						table.print(w, r)
					}
				})
				if errors.Is(s.Err, context.Canceled) {
					s.Err = cutShort(s.Err)
				}
				if s.Err != nil {
					out.failed(s.Remote, s.Err)
				} else {
					out.do(func(w io.Writer) { fmt.Fprintf(w, "served      %v\n", s.Remote) })
				}
				done(s.Err)
			},
		}
		return server.Serve(ctx, l)
	})
}
