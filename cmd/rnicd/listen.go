package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"syscall"
	"time"

	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// listenOptions are the flags of servers.
type listenOptions struct {
	nic   nicOptions
	port  uint16
	once  bool
	idle  time.Duration
	noCRC bool

	region   size           // that is served; 0: none
	dialects []rnic.Dialect // none: all
	offers   string         // after the line that says that the server is ready
}

// peerMaxDefault leaves a quarter of a Poller's connections to others, and to one address as many
// as any tool makes.
const peerMaxDefault = 3 * connsMax / 4

// peerMaxFlag is for servers. full says what befalls a connection beyond the limit.
func (o *nicOptions) peerMaxFlag(f *pflag.FlagSet, full string) {
	o.peerMax = peerMaxDefault
	f.Var(&number{&o.peerMax, 0, connsMax}, "peer-max",
		"connections that one address may open at a time (of IPv6, one /64); "+full+"; 0: no limit")
}

// flagsWithout are all but those about markers, in which the servers differ.
func (o *listenOptions) flagsWithout(f *pflag.FlagSet, port uint16) {
	o.nic.flags(f)
	o.port = port
	f.VarP(&number{&o.port, 1, math.MaxUint16}, "port", "p", "TCP port")
	f.BoolVar(&o.once, "once", false,
		"end after the first client, served or refused; the exit status is its result. What never asks "+
			"for an RDMA connection, or is told to try again, is none")
	f.DurationVar(&o.idle, "idle-timeout", 30*time.Second,
		"end a connection on which nothing moves for so long, an eighth of it more at most; its "+
			"start-up has 10 s in any case")
	o.nic.peerMaxFlag(f, "at the limit those that have said nothing yet give way")
	f.BoolVar(&o.noCRC, "no-crc", false,
		"go without CRC32C when the client agrees; only for paths with an integrity check of their own")
}

func (o *listenOptions) check() error {
	var idle error
	if o.idle <= 0 {
		idle = fmt.Errorf("--idle-timeout %v: must be positive", o.idle)
	}
	return errors.Join(idle, o.nic.checkDevice())
}

// explain puts a limit into the words of the flag that sets it.
func (o *listenOptions) explain(err error) error {
	if errors.Is(err, rnic.ErrPeerMax) {
		return fmt.Errorf("its address has as many connections as --peer-max (%d) allows", o.nic.peerMax)
	}
	return err
}

// service is what serves on a Listener at an endpoint until ctx ends. done is to be called with
// each client's result.
type service func(ctx context.Context, s *endpoint, l *rnic.Listener, out *output,
	done func(error)) error

// listen opens the device and runs a service on it.
func (o *listenOptions) listen(ctx context.Context, w io.Writer, run service) (err error) {
	if err := o.check(); err != nil {
		return err
	}
	region := o.region
	if region == 0 && o.nic.pmd != "kernel" {
		region = clientRegion
	}
	out := servingOutput(w)
	w = out.w
	defer out.close()
	ctx, s, err := openEndpoint(ctx, &o.nic, region, w, out)
	if err != nil {
		return err
	}
	defer func() { err = ending(err, s.stop()) }()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer tellCounters(out, s.nic, s.dev, o.nic.counters)()
	l, err := s.dev.Listen(ctx, s.listenAddr(o.port),
		rnic.ListenOptions{Dialects: o.dialects, OnFailure: func(f rnic.ConnFailure) {
			if !f.Offered { // the service tells of the others
				out.failed(f.Remote, o.explain(f.Err))
			}
		}})
	if errors.Is(err, syscall.EADDRINUSE) {
		return fmt.Errorf("%w; another server has it, and --port names another one", err)
	}
	if err != nil {
		return err
	}
	defer l.Close()
	out.do(func(w io.Writer) {
		warnNoCRC(w, o.noCRC)
		fmt.Fprintf(w, "ready       %v%s\n", l.Addr(), o.offers)
	})
	defer out.settle()
	first := make(chan error, 1)
	err = run(ctx, s, l, out, func(err error) {
		if o.once && !peer.IsLater(err) {
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
