package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"net/netip"
	"time"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/internal/tools/rping"
	"github.com/rnicd/rnicd/rnic"
)

// rpingOptions are the flags of the client.
type rpingOptions struct {
	dialOptions
	count      int
	size       size
	verify     bool
	verbose    bool
	markers    bool
	peerToPeer bool
}

func newRping() *cobra.Command {
	o := &rpingOptions{size: rping.SizeDefault}
	c := &cobra.Command{
		Use:   "rping HOST[:PORT]",
		Short: "Ping by Sends, an RDMA Read and an RDMA Write: rdma-core's rping, both roles",
		Long: `rping speaks the protocol of rdma-core's rping, with rdma-core's own programs (rping -s) or with rnicd rping server. In each
ping the server reads this end's data by an RDMA Read, and writes it back by an RDMA Write. It goes on until it is
interrupted, or for --count pings.

Markers are not asked for without --markers: Linux siw has none. The first message is followed by an RDMA Write of no
octets a little later, if nothing else was sent: siw may leave it lying otherwise (docs/guides/interop.md).`,
		Args: argsWanted(1, 1),
		RunE: func(c *cobra.Command, args []string) error {
			return rpingClient(c.Context(), o, args[0], newReporter(c, o.json))
		},
	}
	f := c.Flags()
	o.flags(f)
	o.dialectFlag(f, "rfc6581; others settle no read depths, which rping needs")
	o.jsonFlag(f)
	f.IntVarP(&o.count, "count", "c", 0, "pings; 0: until interrupted")
	f.VarP(&o.size, "size", "S", "octets of a ping, 26 to 65535")
	f.BoolVarP(&o.verify, "verify", "V", false, "compare what came back with what was there")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print the data of each ping, as rping does")
	f.BoolVar(&o.markers, "markers", false, "ask the server for MPA markers")
	f.BoolVar(&o.peerToPeer, "peer-to-peer", false,
		"start peer to peer (RFC 6581): the server may send first")
	c.AddCommand(newRpingServer())
	return c
}

func rpingClient(ctx context.Context, o *rpingOptions, addr string, r *reporter) error {
	switch {
	case o.count < 0:
		return fmt.Errorf("--count %d: must not be negative", o.count)
	case o.size < rping.SizeMin || o.size > rping.SizeMax:
		return fmt.Errorf("--size %v: want %d to %d octets", &o.size, rping.SizeMin, rping.SizeMax)
	}
	dialect, err := o.check()
	if err != nil {
		return err
	}
	if addr, err = dialAddr(addr, rping.DefaultPort); err != nil {
		return err
	}
	ctx, cancel := o.within(ctx)
	defer cancel()
	var sum roundTrips
	cfg := rping.ClientConfig{
		Addr: addr, Count: o.count, Size: int(o.size), Verify: o.verify,
		Conn: o.connParam(dialect, !o.markers),
		Connected: func(qp *rnic.QueuePair) {
			r.remark("connected   %v: %s", qp.RemoteAddr(), startupOf(qp))
		},
		OnPing: func(p rping.Ping) {
			sum.add(p.Took)
			if o.verbose {
				r.remark("ping data: %s", printable.Text(pingText(p.Data)))
			}
		},
	}
	cfg.Conn.PeerToPeer, cfg.Conn.Quirks.WakeUp = o.peerToPeer, rnic.WakeUpDefault
	o.nic.oneThread()
	return o.client(ctx, r.remarks, func(ctx context.Context, dev *rnic.Adapter) error {
		cfg.Adapter = dev
		err := o.connecting(ctx, func() error {
			_, err := rping.Run(ctx, cfg)
			return err
		})
		if sum.n > 0 { // of what was, whatever ended it
			r.do(func(w io.Writer) { sum.print(w, o) })
		}
		return o.explain(ctx, err, "rping", addr)
	})
}

// pingText is a ping's data up to the octet 0 at its end.
func pingText(b []byte) string {
	for i, c := range b {
		if c == 0 {
			return string(b[:i])
		}
	}
	return string(b)
}

// roundTrips sums up how long pings took, in ns.
type roundTrips struct {
	n                   int
	least, most         time.Duration
	mean, squaresFromIt float64 // Welford's
}

func (s *roundTrips) add(d time.Duration) {
	s.n++
	if s.n == 1 || d < s.least {
		s.least = d
	}
	s.most = max(s.most, d)
	delta := float64(d) - s.mean
	s.mean += delta / float64(s.n)
	s.squaresFromIt += delta * (float64(d) - s.mean)
}

func (s *roundTrips) stdev() float64 { return math.Sqrt(s.squaresFromIt / float64(s.n)) }

// rpingRecord is a line of --json.
type rpingRecord struct {
	Pings      int   `json:"pings"`
	SizeOctets int   `json:"size_octets"`
	Verified   bool  `json:"verified"`
	Times      times `json:"ping_ns"`
}

type times struct {
	Min     int64 `json:"min"`
	Average int64 `json:"average"`
	Max     int64 `json:"max"`
	Stdev   int64 `json:"stdev"`
}

func (s *roundTrips) print(w io.Writer, o *rpingOptions) {
	if o.json {
		_ = json.NewEncoder(w).Encode(
			rpingRecord{s.n, int(o.size), o.verify, times{int64(s.least), int64(s.mean), int64(s.most),
				int64(s.stdev())}})
		return
	}
	verified := ""
	if o.verify {
		verified = ", all as they were"
	}
	fmt.Fprintf(w, "pings       %d of %d octets%s\n", s.n, int64(o.size), verified)
	fmt.Fprintf(w, "took        min %.2f, average %.2f, max %.2f, stdev %.2f us a ping\n",
		micros(s.least), s.mean/1e3, micros(s.most), s.stdev()/1e3)
}

type rpingServerOptions struct {
	listenOptions
	markers bool
	verbose bool
	sizeMax size
}

func newRpingServer() *cobra.Command {
	o := &rpingServerOptions{sizeMax: rping.SizeMax}
	c := &cobra.Command{
		Use:   "server",
		Short: "The other end of rnicd rping, and of rdma-core's rping -c",
		Args:  argsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return rpingServe(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	o.flagsWithout(f, rping.DefaultPort)
	f.BoolVar(&o.markers, "markers", false, "ask clients for MPA markers; Linux siw has none")
	f.VarP(&o.sizeMax, "size-max", "S", "longest ping that is served, octets")
	f.BoolVarP(&o.verbose, "verbose", "v", false, "print the data of each ping, as rping does")
	return c
}

func rpingServe(ctx context.Context, o *rpingServerOptions, w io.Writer) error {
	if o.sizeMax < 1 || o.sizeMax > rping.SizeMax {
		return fmt.Errorf("--size-max %v: want 1 to %d octets", &o.sizeMax, rping.SizeMax)
	}
	o.nic.oneThread()
	return o.listen(ctx, w, func(ctx context.Context, s *endpoint, l *rnic.Listener, out *output,
		done func(error)) error {
		cfg := rping.ServerConfig{
			Adapter: s.dev, SizeMax: int(o.sizeMax), IdleTimeout: o.idle,
			Conn:    rnic.ConnParam{NoMarkers: !o.markers, NoCRC: o.noCRC},
			Refused: out.refusedAs(done),
			Done: func(s rping.Served) {
				if err := cutShort(s.Err); err != nil {
					out.failed(s.Remote, fmt.Errorf("%w (after %d pings)", err, s.Pings))
				} else {
					out.do(func(w io.Writer) {
						fmt.Fprintf(w, "pinged      %d times by %v (%v)\n", s.Pings, s.Remote, s.Startup.Dialect)
					})
				}
				done(s.Err)
			},
		}
		if o.verbose {
			cfg.OnPing = func(_ netip.AddrPort, p rping.Ping) {
				text := printable.Text(pingText(p.Data))
				out.do(func(w io.Writer) { fmt.Fprintf(w, "server ping data: %s\n", text) })
			}
		}
		return rping.NewServer(cfg).Serve(ctx, l)
	})
}
