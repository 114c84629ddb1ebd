package interop

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/internal/tools/perftest"
	"github.com/rnicd/rnicd/rnic"
)

// What perftest's programs are told, and our end with them.
const (
	perfIterations = 200
	perfLong       = 20000 // octets: several FPDUs
)

// perftestWay is how start-up goes. The program has no say in it.
type perftestWay struct {
	name   string
	module string // how siw is loaded
	opt    rnic.ConnParam
}

var perftestWays = []perftestWay{
	{"no CRC", "std", rnic.ConnParam{NoMarkers: true, NoCRC: true}},
	{"CRC", "std", rnic.ConnParam{NoMarkers: true}},
}

// overPerftest runs a test over both transports, each way and each program, of a short and a long
// message.
func overPerftest(t *testing.T, f func(r *rig, w perftestWay, test perf.Test)) {
	for _, p := range perftest.Programs {
		t.Run(p.String(), func(t *testing.T) {
			for _, w := range perftestWays {
				for _, size := range []int{2, perfLong} {
					if *quick && w.opt.NoCRC != (size == 2) {
						continue
					}
					t.Run(fmt.Sprintf("%s, %d octets", w.name, size), func(t *testing.T) {
						over(t, func(r *rig) {
							r.siw(w.module)
							f(r, w, perf.Test{Op: p.Op, Latency: p.Latency, Size: size, Iterations: perfIterations,
								TxDepth: 64, RxDepth: 64})
						})
					})
				}
			}
		})
	}
}

// perftestFlags are those that both ends of a program are told.
func perftestFlags(test perf.Test, port int) string {
	s := fmt.Sprintf("-R -F -d siw0 -p %d -s %d -n %d", port, test.Size, test.Iterations)
	if !test.Latency {
		s += fmt.Sprintf(" -t %d", test.TxDepth)
	}
	if test.Op == perf.Send {
		s += fmt.Sprintf(" -r %d", test.RxDepth)
	}
	return s
}

// A perftest's program in the guest measures our server: it prints its table and succeeds, and all
// its messages have come.
func TestSiwPerftestClient(t *testing.T) {
	overPerftest(t, func(r *rig, w perftestWay, test perf.Test) {
		gone := make(chan perftest.Served, 1)
		s, err := perftest.NewServer(perftest.ServerConfig{
			Adapter: r.adapter, Test: test, Conn: w.opt, IdleTimeout: patience,
			Done: func(s perftest.Served) { gone <- s },
		})
		require.NoError(r.t, err)
		l := r.listen()
		ctx, stop := context.WithCancel(r.ctx)
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, l) }()
		defer func() { stop(); require.NoError(r.t, <-served) }()
		begin := time.Now()
		job := r.start("exec %v %s %s", perftest.Program{Op: test.Op, Latency: test.Latency},
			perftestFlags(test, r.port), r.host)
		var out perftest.Served
		select {
		case out = <-gone:
		case <-r.ctx.Done():
			require.FailNow(r.t, "our server is not done with its client", "%s", job)
		}
		require.NoError(r.t, out.Err, "%s", job)
		r.ends(job)
		table(r, job.String(), test)
		counted(r.t, out, test)
		r.t.Logf("%.1f s", time.Since(begin).Seconds())
	})
}

// table: the program printed a line of figures.
func table(r *rig, printed string, test perf.Test) {
	r.t.Helper()
	require.Regexp(r.t, fmt.Sprintf(`(?m)^\s*%d\s+%d\s+[0-9.]+\s+[0-9.]+\s+[0-9.]+`, test.Size,
		test.Iterations), printed)
}

// counted: our end's counters tell of all the messages.
func counted(t *testing.T, out perftest.Served, test perf.Test) {
	t.Helper()
	octets := test.Size * test.Iterations
	if test.Op == perf.Read {
		require.EqualValues(t, test.Iterations, out.Counters.ReadsServed)
		require.EqualValues(t, octets, out.Counters.PayloadSent)
	} else {
		require.EqualValues(t, octets, out.Counters.Placed.Direct+out.Counters.Placed.Reassembled)
	}
	if !test.Latency && test.Op != perf.Send {
		require.EqualValues(t, []uint64{uint64(test.Size), uint64(test.Iterations)},
			[]uint64{out.Report.Size, out.Report.Iterations})
	}
}

// Our end measures a program of perftest's in the guest, which succeeds.
func TestSiwPerftestServer(t *testing.T) {
	overPerftest(t, func(r *rig, w perftestWay, test perf.Test) {
		port := newPort()
		job := r.start("exec %v %s", perftest.Program{Op: test.Op, Latency: test.Latency},
			perftestFlags(test, port))
		_, err := vm.Run(r.ctx, fmt.Sprintf("listening %d", port))
		require.NoError(r.t, err, "%s", job)
		opt := w.opt
		opt.Quirks.WakeUp = rnic.WakeUpDefault
		res, err := perftest.Run(r.ctx, perftest.ClientConfig{
			Adapter: r.adapter, Addr: net.JoinHostPort(guestAddr.Addr().String(), strconv.Itoa(port)),
			Test: test, Conn: opt,
		})
		require.NoError(r.t, err, "%s", job)
		require.EqualValues(r.t, test.Iterations, res.Iterations)
		r.ends(job)
	})
}
