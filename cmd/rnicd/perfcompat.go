package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/internal/tools/perftest"
	"github.com/rnicd/rnicd/rnic"
)

// compatPerftest is the value of --compat.
const compatPerftest = "perftest"

// perftest's programs ask in the enhanced frame, and siw, below them, knows no markers and may
// leave the first octets lying (docs/guides/interop.md). Neither costs another peer more than one
// empty FPDU.
func perftestParam(conn rnic.ConnParam) rnic.ConnParam {
	conn.NoMarkers, conn.Quirks.WakeUp = true, rnic.WakeUpDefault
	return conn
}

func compatFlag(f *pflag.FlagSet, to *string, what string) {
	f.StringVar(to, "compat", "", what)
}

// checkCompat refuses what is not spoken.
func checkCompat(compat string) error {
	if compat != "" && compat != compatPerftest {
		return fmt.Errorf("--compat %q: want %s", compat, compatPerftest)
	}
	return nil
}

// perfProgram reads what a server is to measure with.
func perfProgram(op string) (perf.Op, error) {
	for _, o := range perfOps {
		if o.String() == op {
			return o, nil
		}
	}
	return 0, fmt.Errorf("%q: want write, read or send", op)
}

// servePerftest is perf server --compat perftest.
func servePerftest(ctx context.Context, o *perfServerOptions, args []string, w io.Writer) error {
	if len(args) != 2 {
		return errors.New("--compat perftest: say which program's server this is: write, read or send, " +
			"and bw or lat, as its clients do not")
	}
	op, err := perfProgram(args[0])
	if err != nil {
		return err
	}
	o.test.op = op
	if err := o.test.about(args[1]); err != nil {
		return err
	}
	if err := errors.Join(o.test.check(), o.test.checkPerftest()); err != nil {
		return err
	}
	if !o.test.set.Changed("port") {
		o.port = perftest.DefaultPort
	}
	cfg := perftest.ServerConfig{
		Test: o.test.perftest(), Shape: o.test.shape(), ClientsMax: o.clients, IdleTimeout: o.idle,
		Conn: perftestParam(rnic.ConnParam{NoCRC: o.noCRC}),
	}
	if _, err := perftest.NewServer(cfg); err != nil { // before there is a device
		return err
	}
	return o.listen(ctx, w, func(ctx context.Context, s *endpoint, l *rnic.Listener, out *output,
		done func(error)) error {
		cfg.Adapter = s.dev
		cfg.Done = func(s perftest.Served) {
			out.perftested(s)
			done(s.Err)
		}
		srv, err := perftest.NewServer(cfg)
		if err != nil {
			return err
		}
		return srv.Serve(ctx, l)
	})
}

// perftested tells of a client of perftest's.
func (o *output) perftested(s perftest.Served) {
	if err := cutShort(s.Err); err != nil {
		o.failed(s.Remote, err)
		return
	}
	sizes := fmt.Sprint(s.Test.Size)
	if s.Shape.All {
		sizes = fmt.Sprintf("%d to %d", perfAllFirst, perfAllLast)
	}
	o.do(func(w io.Writer) {
		fmt.Fprintf(w, "measured    %s, messages of %s octets, in %s, by %v\n",
			perftest.Describe(s.Test, s.Shape), sizes, seconds(s.Took), s.Remote)
		if s.Test.Op == perf.Read {
			fmt.Fprintf(w, "served      %d Reads\n", s.Reads)
		} else {
			fmt.Fprintf(w, "placed      %s directly, %s through reassembly\n", octets(s.Direct),
				octets(s.Octets-s.Direct))
		}
		if r := s.Report; r.Iterations > 0 {
			fmt.Fprintf(w, "client      %d messages, %.2f MiB/s on average\n", r.Iterations, r.Average)
		}
	})
}

// measurePerftest is perf write, read and send with --compat perftest: one test.
func (o *perfClient) measurePerftest(ctx context.Context, dev *rnic.Adapter, addr string,
	dialect rnic.Dialect, r *reporter) error {
	conn := perftestParam(o.connParam(dialect, true))
	cfg := perftest.ClientConfig{
		Adapter: dev, Addr: addr, Test: o.perftest(), Shape: o.shape(), Conn: conn,
		Connected: func(qp *rnic.QueuePair) {
			r.remark("%s with %v: %s", perftest.Describe(o.perftest(), o.shape()), qp.RemoteAddr(),
				startupOf(qp))
			if !r.json {
				r.do(func(w io.Writer) { perfHeader(w, o.latency) })
			}
		},
		Measured: func(res perf.Result) { r.do(func(w io.Writer) { printPerf(w, &res, r.json) }) },
	}
	err := o.connecting(ctx, func() error {
		_, err := perftest.Run(ctx, cfg)
		return err
	})
	var rejected *rnic.RejectedError
	if errors.As(err, &rejected) {
		return fmt.Errorf("%w; is it perftest's (-R), or `rnicd perf server --compat perftest`?", err)
	}
	return err
}

// perfItersOther is perftest's default for bandwidths of Reads and Sends.
const perfItersOther = 1000

// perftest is the one test, with perftest's defaults.
func (o *perfOptions) perftest() perf.Test {
	t := o.tests()[0]
	if o.duration == 0 && o.iters == 0 && !o.latency && o.op != perf.Write {
		t.Iterations = perfItersOther
	}
	return t
}

// checkPerftest refuses what perftest's other end would not hear of.
func (o *perfOptions) checkPerftest() error {
	switch {
	case o.warmup != 0:
		return errors.New("--compat perftest: no --warmup: the other end would not know of it")
	case o.all && o.duration != 0:
		return errors.New("--compat perftest: --all and --duration: choose one, as perftest has it")
	case o.latency && (o.both || o.qps > 1):
		return errors.New("--compat perftest: --bidirectional and --qp are for bw, as perftest has it")
	}
	if o.op == perf.Atomic {
		return errors.New("--compat perftest: write, read and send are spoken; siw, and with it " +
			"perftest over it, has no atomics")
	}
	return nil
}

// shape is what perftest's -a, -b and -q say.
func (o *perfOptions) shape() perftest.Shape {
	return perftest.Shape{All: o.all, Both: o.both, QPs: o.qps}
}

// ownOnly refuses what only perftest's programs measure.
func (o *perfOptions) ownOnly() error {
	if o.both || o.qps > 1 {
		return errors.New("--bidirectional and --qp are for --compat perftest: rnicd perf server does " +
			"not measure so")
	}
	return nil
}
