package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/tools/perf/pair"
	"github.com/rnicd/rnicd/rnic"
)

type perfServerOptions struct {
	listenOptions
	noMarkers bool
	sizeMax   size
	clients   int
	compat    string
	test      perfOptions // --compat: what our own clients say themselves
}

func newPerfServer() *cobra.Command {
	o := &perfServerOptions{sizeMax: pair.SizeLimit}
	c := &cobra.Command{
		Use:   "server [write|read|send bw|lat]",
		Short: "The other end of rnicd perf write, read, send and atomic, or of perftest's programs",
		Long: `server is the other end of rnicd perf write, read, send and atomic, which say themselves what is measured. With --compat
perftest it is the other end of perftest's programs, which do not: name one (write lat is ib_write_lat -R), and give it --size,
--iters, --rx-depth, --all, --bidirectional and --qp as the program's clients have them.`,
		Args: argsWanted(0, 2),
		RunE: func(c *cobra.Command, args []string) error {
			return perfServe(c.Context(), o, args, c.OutOrStdout())
		},
	}
	f := c.Flags()
	o.flagsWithout(f, pair.DefaultPort)
	f.BoolVar(&o.noMarkers, "no-markers", false,
		"do not ask clients for MPA markers (no placement ahead of a gap)")
	f.Var(&o.sizeMax, "size-max",
		"longest message that is served; a client takes twice as much memory")
	f.IntVar(&o.clients, "clients", 8, "clients that are served at a time")
	compatFlag(f, &o.compat, "perftest: serve clients of perftest's programs (-R), on port 18515 "+
		"and without markers")
	o.test.set, o.test.txDepth, o.test.rxDepth = f, perfTxDepth, perfRxDepth
	f.VarP(&o.test.size, "size", "s",
		"--compat: octets of a message (default 65536 for bw, 2 for lat)")
	f.IntVarP(&o.test.iters, "iters", "n", 0,
		"--compat: messages, or round trips (default 5000 for write bw, otherwise 1000)")
	f.IntVarP(&o.test.rxDepth, "rx-depth", "r", perfRxDepth,
		"--compat: receive buffers of a test of Sends")
	f.BoolVarP(&o.test.all, "all", "a", false,
		"--compat: all sizes from 2 to 8388608 octets, doubling")
	f.VarP((*timeSpan)(&o.test.duration), "duration", "D",
		"--compat: the clients' -D; of no use for write bw and read, whose clients keep the time alone")
	o.test.compatFlags(f)
	return c
}

func perfServe(ctx context.Context, o *perfServerOptions, args []string, w io.Writer) error {
	if err := checkCompat(o.compat); err != nil {
		return err
	}
	given := func(name string) bool { return o.test.set.Changed(name) }
	switch {
	case o.compat == "" && len(args) > 0:
		return fmt.Errorf("%q: clients of ours say themselves what they measure; --compat perftest is "+
			"for those that do not", args[0])
	case o.compat == "" &&
		slices.ContainsFunc([]string{"size", "iters", "rx-depth", "all", "duration", "bidirectional",
			"qp"}, given):
		return errors.New("--size, --iters, --rx-depth, --all, --duration, --bidirectional and --qp " +
			"are for --compat: clients of ours say themselves what they measure")
	case o.sizeMax < 1 || o.sizeMax > pair.SizeLimit:
		return fmt.Errorf("--size-max %v: want 1 to %d octets", &o.sizeMax, pair.SizeLimit)
	case o.clients < 1 || o.clients > connsMax:
		return fmt.Errorf("--clients %d: want 1 to %d", o.clients, connsMax)
	}
	o.nic.oneThread()
	if o.compat != "" {
		return servePerftest(ctx, o, args, w)
	}
	return o.listen(ctx, w, func(ctx context.Context, s *endpoint, l *rnic.Listener, out *output,
		done func(error)) error {
		return pair.NewServer(pair.ServerConfig{
			Adapter: s.dev, SizeMax: int(o.sizeMax), ClientsMax: o.clients, IdleTimeout: o.idle,
			Conn:    rnic.ConnParam{NoMarkers: o.noMarkers, NoCRC: o.noCRC},
			Refused: out.refusedAs(done),
			Done: func(s pair.Served) {
				out.measured(s)
				done(s.Err)
			},
		}).Serve(ctx, l)
	})
}

// measured tells of a test that is over.
func (o *output) measured(s pair.Served) {
	kind := "bandwidth"
	if s.Test.Latency {
		kind = "latency"
	}
	if err := cutShort(s.Err); err != nil {
		o.failed(s.Remote, err)
		return
	}
	o.do(func(w io.Writer) {
		fmt.Fprintf(w, "measured    %v %s, messages of %d octets, in %s, by %v\n", s.Test.Op, kind,
			s.Test.Size, seconds(s.Took), s.Remote)
	})
}
