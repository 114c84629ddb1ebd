package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// dialOptions are the flags of commands that connect to a server of ours.
type dialOptions struct {
	nic     nicOptions
	timeout time.Duration
	silence time.Duration
	wait    time.Duration
	noCRC   bool
	dialect string
	json    bool
}

func (o *dialOptions) flags(f *pflag.FlagSet) {
	o.nic.clientFlags(f)
	f.DurationVar(&o.timeout, "timeout", 0, "give up after so long in all; 0: never")
	f.DurationVar(&o.silence, "user-timeout", silenceDefault,
		"give up on a server that acknowledges nothing for so long, keep-alives where nothing is "+
			"in flight")
	f.DurationVar(&o.wait, "wait", 0,
		"keep trying to connect for so long, for a server that is just starting")
	f.BoolVar(&o.noCRC, "no-crc", false, "offer to go without CRC32C")
}

// A server that goes without a word is noticed after silenceDefault, as TCP's user timeout has it
// (tcp.Config.UserTimeoutNs); no sooner than silenceMin: keep-alives of a kernel's sockets count in
// seconds.
const (
	silenceDefault = 100 * time.Second
	silenceMin     = time.Second
)

// connParam is what the flags say of how to connect.
func (o *dialOptions) connParam(dialect rnic.Dialect, noMarkers bool) rnic.ConnParam {
	return rnic.ConnParam{Dialect: dialect, NoMarkers: noMarkers, NoCRC: o.noCRC,
		UserTimeout: o.silence}
}

// dialectFlag is for commands whose server takes more than one.
func (o *dialOptions) dialectFlag(f *pflag.FlagSet, usual string) {
	f.StringVar(&o.dialect, "dialect", "", "MPA dialect to ask in: "+orList(framedDialects())+
		" (default "+usual+")")
}

func (o *dialOptions) jsonFlag(f *pflag.FlagSet) {
	f.BoolVar(&o.json, "json", false,
		"print results as one line of JSON each; everything else goes to standard error")
}

// check refuses what cannot be, and reads --dialect; 0 is rnic's choice.
func (o *dialOptions) check() (d rnic.Dialect, err error) {
	var errs [4]error
	if o.timeout < 0 || o.wait < 0 {
		errs[0] = fmt.Errorf("--timeout %v, --wait %v: must not be negative", o.timeout, o.wait)
	}
	if o.silence < silenceMin {
		errs[1] = fmt.Errorf("--user-timeout %v: want %v or more", o.silence, silenceMin)
	}
	errs[2] = o.nic.checkClient()
	if o.dialect != "" || len(o.nic.given("dialect")) > 0 { // given empty it is of an unset variable
		d, errs[3] = parseDialect(o.dialect)
	}
	return d, errors.Join(errs[:]...)
}

// within is a context that ends with --timeout.
func (o *dialOptions) within(ctx context.Context) (context.Context, context.CancelFunc) {
	if o.timeout > 0 {
		return awake.Timeout(ctx, o.timeout, nil)
	}
	return context.WithCancel(ctx)
}

// timedOut says whether --timeout has ended ctx, one of within.
func timedOut(ctx context.Context) bool { return errors.Is(ctx.Err(), context.DeadlineExceeded) }

// client runs what a command does with an Adapter, and tells on log what it runs on.
func (o *dialOptions) client(ctx context.Context, log *output,
	do func(context.Context, *rnic.Adapter) error) (err error) {
	var s *endpoint
	log.do(func(w io.Writer) {
		region := size(0)
		if o.nic.pmd != "kernel" {
			region = clientRegion
		}
		ctx, s, err = openEndpoint(ctx, &o.nic, region, w, log)
		warnNoCRC(w, o.noCRC)
	})
	if err != nil {
		return err
	}
	defer func() {
		s.settle()
		err = ending(err, s.stop())
	}()
	if s.nic != nil {
		defer tellCounters(log, s.nic, s.dev, o.nic.counters)()
	}
	return do(ctx, s.dev)
}

// clientRegion is the region of a client's NIC; no client uses it.
const clientRegion = 4096

// connecting retries what fails for want of a connection, and only that, while --wait lasts.
func (o *dialOptions) connecting(ctx context.Context, try func() error) error {
	pause := redialEvery
	waited, stop := awake.After(o.wait)
	defer stop()
	var before error // of the try before this one
	for {
		err := try()
		var dial *rnic.ConnectError
		if timedOut(ctx) && before != nil && errors.As(err, &dial) {
			return before // this try was cut short: what stood in the way all the time
		}
		before = err
		if err == nil || !errors.As(err, &dial) || ctx.Err() != nil {
			return err
		}
		select {
		case <-waited:
			return err
		default:
		}
		if !errors.Is(err, stack.ErrRefused) { // something is there, which notes each try
			pause = min(2*pause, redialMost)
		}
		select {
		case <-time.After(pause):
		case <-ctx.Done():
			if !timedOut(ctx) {
				return ctx.Err()
			}
			return err // what stood in the way all the time
		}
	}
}

// redialMost is the longest pause between two tries of --wait, where what listens resets or rejects
// each.
const redialMost = 2 * time.Second

// explain says where it went wrong, and what stands against a server that is not there. what is the
// command's own words.
func (o *dialOptions) explain(ctx context.Context, err error, what, addr string) error {
	var dial *rnic.ConnectError // has the address
	var rejected *rnic.RejectedError
	var revision *rnic.RevisionError
	dialling := errors.As(err, &dial)
	switch {
	case err == nil:
		return nil
	case timedOut(ctx):
		if !dialling {
			err = fmt.Errorf("%s %s: %w", what, addr, err)
		} else if errors.Is(err, stack.ErrTimeout) {
			err = fmt.Errorf("%w; %s", err, nobodyAnswers)
		}
		return fmt.Errorf("gave up after --timeout %v: %w", o.timeout, err)
	case errors.As(err, &rejected) && rejected.MaybeDialect(), errors.As(err, &revision):
		return fmt.Errorf("%w; --dialect asks in another", err)
	case errors.As(err, &rejected) && err == error(dial) && len(rejected.PrivateData) == 0:
		// no cause is named yet
		return fmt.Errorf("%w; is it a server of something else?", err)
	case errors.Is(err, context.Canceled):
		return err
	case errors.Is(err, stack.ErrRefused):
		return fmt.Errorf("%w; %s", err, nobodyThere(o.wait))
	case errors.Is(err, stack.ErrNoRoute) && o.nic.pmd == "tap" && o.nic.hostAddr == "":
		return fmt.Errorf("%w; no host on %s answers: --host-addr gives the kernel's side of it an "+
			"address, or put it into the server's bridge (--wait 10s leaves time to)", err, o.nic.dev)
	case dialling && errors.Is(err, stack.ErrReset):
		return fmt.Errorf("%w; what listens there may be no server of RDMA over TCP, or is full "+
			"(--peer-max)", err)
	case dialling && errors.Is(err, stack.ErrTimeout):
		return fmt.Errorf("%w; %s", err, nobodyAnswers)
	case dialling && noRDMA(err):
		return fmt.Errorf("%w; what listens there may be no server of RDMA over TCP", err)
	case dialling:
		return err
	}
	return fmt.Errorf("%s %s: %w", what, addr, err)
}

// nobodyAnswers is what a SYN without an answer may mean.
const nobodyAnswers = "nothing answers there: no host, a filter, or a server of our TCP that is " +
	"full (--peer-max)"

// noRDMA says whether a start-up ended as with a server of another protocol: it waits for more,
// closes what it does not understand, or speaks first.
func noRDMA(err error) bool {
	for _, way := range []error{rnic.ErrStartupTimeout, rnic.ErrPeerClosed} {
		if errors.Is(err, way) {
			return true
		}
	}
	var frame *rnic.MPAError
	return errors.As(err, &frame) && frame.Code == 4 // an invalid start-up frame
}
