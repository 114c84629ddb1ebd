package main

import (
	"context"
	"fmt"
	"io"
	"math"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/cmd/rnicd/perf/pair"
	"github.com/rnicd/rnicd/rnic"
)

// listenOptions are the flags of the servers of perf and rping.
type listenOptions struct {
	nic       nicOptions
	port      uint16
	once      bool
	idle      time.Duration
	noMarkers bool
	noCRC     bool
}

func (o *listenOptions) flags(f *pflag.FlagSet, port uint16) {
	o.nic.flags(f)
	o.port = port
	f.VarP(&number{&o.port, 1, math.MaxUint16}, "port", "p", "TCP port")
	f.BoolVar(&o.once, "once", false, "end after the first client; the exit status is its result")
	f.DurationVar(&o.idle, "idle-timeout", 30*time.Second, "end a connection on which nothing moves for so long; its start-up has 10 s in any case")
	f.BoolVar(&o.noMarkers, "no-markers", false, "do not ask clients for MPA markers (no placement ahead of a gap)")
	f.BoolVar(&o.noCRC, "no-crc", false, "go without CRC32C when the client agrees; only for paths with an integrity check of their own")
}

func (o *listenOptions) check() error {
	if o.idle <= 0 {
		return fmt.Errorf("--idle-timeout %v: must be positive", o.idle)
	}
	return o.nic.checkDevice()
}

// service is what serves on a Listener until ctx ends. done is to be called with each client's result.
type service func(ctx context.Context, dev *rnic.Adapter, l *rnic.Listener, out *output, done func(error)) error

// listen opens the device and runs a service on it.
func (o *listenOptions) listen(ctx context.Context, w io.Writer, run service) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	region := size(0)
	if o.nic.pmd != "kernel" {
		region = clientRegion
	}
	ctx, s, err := openEndpoint(ctx, &o.nic, region, w)
	if err != nil {
		return err
	}
	defer func() { err = ending(err, s.stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	out := newOutput(w)
	defer tellCounters(out, s.pollers, s.dev, o.nic.counters)()
	l, err := s.dev.Listen(ctx, s.listenAddr(o.port), rnic.ListenOptions{OnFailure: func(f rnic.ConnFailure) {
		if !f.Offered { // the service tells of the others
			out.failed(f.Remote, f.Err)
		}
	}})
	if err != nil {
		return err
	}
	defer l.Close()
	out.do(func(w io.Writer) {
		warnNoCRC(w, o.noCRC)
		fmt.Fprintf(w, "ready       %v\n", l.Addr())
	})
	first := make(chan error, 1)
	err = run(ctx, s.dev, l, out, func(err error) {
		if o.once {
			select {
			case first <- err:
				cancel()
			default:
			}
		}
	})
	if err != nil || !o.once {
		return err
	}
	select {
	case err := <-first:
		return err
	default:
		return context.Canceled // interrupted before anything came
	}
}

type perfServerOptions struct {
	listenOptions
	sizeMax size
	clients int
}

func newPerfServer() *cobra.Command {
	o := &perfServerOptions{sizeMax: pair.SizeLimit}
	c := &cobra.Command{
		Use:   "server",
		Short: "The other end of rnicd perf write, read, send and atomic",
		Args:  argsWanted(0, 0),
		RunE: func(c *cobra.Command, _ []string) error {
			return perfServe(c.Context(), o, c.OutOrStdout())
		},
	}
	f := c.Flags()
	o.flags(f, pair.DefaultPort)
	f.Var(&o.sizeMax, "size-max", "longest message that is served; a client takes twice as much memory")
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
	return o.listen(ctx, w, func(ctx context.Context, dev *rnic.Adapter, l *rnic.Listener, out *output, done func(error)) error {
		return pair.NewServer(pair.ServerConfig{
			Adapter: dev, SizeMax: int(o.sizeMax), ClientsMax: o.clients, IdleTimeout: o.idle,
			QP:      rnic.QPOptions{NoMarkers: o.noMarkers, NoCRC: o.noCRC},
			Refused: out.refused,
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
		fmt.Fprintf(w, "measured    %v %s, messages of %d octets, in %s, by %v\n", s.Test.Op, kind, s.Test.Size, seconds(s.Took), s.Remote)
	})
}
