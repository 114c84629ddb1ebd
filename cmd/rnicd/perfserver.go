package main

import (
	"context"
	"fmt"
	"io"

	"github.com/spf13/cobra"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/tools/perf/pair"
	"github.com/rnicd/rnicd/rnic"
)

type perfServerOptions struct {
	listenOptions
	noMarkers bool
	sizeMax   size
	clients   int
}

func newPerfServer() *cobra.Command {
	o := &perfServerOptions{sizeMax: pair.SizeLimit}
	c := &cobra.Command{
		Use:   "server",
		Short: "The other end of rnicd perf write, read, send and atomic",
		Long: "server is the other end of rnicd perf write, read, send and atomic, which say " +
			"themselves what is measured.",
		Args: command.ArgsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return perfServe(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	o.flagsWithout(f, pair.DefaultPort)
	f.BoolVar(&o.noMarkers, "no-markers", false,
		"do not ask clients for MPA markers (no placement ahead of a gap)")
	f.Var(&o.sizeMax, "size-max",
		"longest message that is served; a client takes twice as much memory")
	f.IntVar(&o.clients, "clients", 8, "clients that are served at a time")
	return c
}

func perfServe(ctx context.Context, o *perfServerOptions, w io.Writer) error {
	switch {
	case o.sizeMax < 1 || o.sizeMax > pair.SizeLimit:
		return fmt.Errorf("--size-max %v: want 1 to %d octets", &o.sizeMax, pair.SizeLimit)
	case o.clients < 1 || o.clients > connsMax:
		return fmt.Errorf("--clients %d: want 1 to %d", o.clients, connsMax)
	}
	o.nic.oneThread()
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
