package perftest

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

// Every program, between our own two ends: both make all the messages, and see the connection's
// orderly end.
func TestPrograms(t *testing.T) {
	iterations := sample.Count(120, 300) // more than RxDepth
	for _, p := range Programs {
		for _, size := range sample.Of(t, 1, []int{2, 5000, 65536}) {
			t.Run(p.String(), func(t *testing.T) {
				test := perf.Test{Op: p.Op, Latency: p.Latency, Size: size, Iterations: iterations,
					TxDepth: 128, RxDepth: 100}
				overBoth(t, ServerConfig{Test: test}, func(r *rig) {
					for range 2 { // the server serves on
						res, err := r.run(test, rnic.ConnParam{})
						require.NoError(t, err)
						require.EqualValues(t, iterations, res.Iterations)
						s := r.served()
						require.NoError(t, s.Err)
						checkServed(t, s, res)
					}
				})
			})
		}
	}
}

// A client that was told another length and number than the server goes through with it, where
// neither end waits for the last octet, and the server says what came. Figures that cannot be are
// no reason to say anything else than it was told.
func TestOtherNumbers(t *testing.T) {
	for _, p := range []Program{{perf.Write, false}, {perf.Read, false}, {perf.Read, true}} {
		t.Run(p.String(), func(t *testing.T) {
			told := perf.Test{Op: p.Op, Latency: p.Latency, Size: 5000, Iterations: 300, TxDepth: 16}
			overBoth(t, ServerConfig{Test: told}, func(r *rig) {
				made := told
				made.Size, made.Iterations = 100, 20
				_, err := r.run(made, rnic.ConnParam{})
				require.NoError(r.t, err)
				s := r.served()
				require.NoError(r.t, s.Err)
				require.Equal(r.t, []int{100, 20}, []int{s.Test.Size, s.Test.Iterations})
			})
		})
	}
	for _, report := range []Report{{}, {Iterations: 7}, {Iterations: 1<<64 - 1}} {
		s := Served{Test: plain, Report: report, Octets: 1000}
		s.came()
		require.Equal(t, plain, s.Test)
	}
}

// checkServed: the server's counters say that what the client measured has happened.
func checkServed(t *testing.T, s Served, res perf.Result) {
	t.Helper()
	octets := s.Counters.Placed.Direct + s.Counters.Placed.Reassembled
	switch {
	case s.Test.Op == perf.Read:
		require.EqualValues(t, res.Iterations, s.Counters.ReadsServed)
		require.EqualValues(t, int(res.Iterations)*s.Test.Size, s.Counters.PayloadSent)
	default:
		require.EqualValues(t, int(res.Iterations)*s.Test.Size, octets)
	}
	if !s.Test.Latency && s.Test.Op != perf.Send {
		require.EqualValues(t, res.Iterations, s.Report.Iterations)
		require.InEpsilon(t, res.Bandwidth/(1<<20), s.Report.Average, 1e-9)
	}
}

// -a, -b and -q of every program that has them, one by one and together: all that is due comes, in
// the directions in which it is due, and a line for each length is told.
func TestShapes(t *testing.T) {
	for _, p := range Programs {
		for _, s := range sample.Of(t, 1, []Shape{
			{All: true}, {Both: true}, {QPs: 3}, {All: true, Both: true}, {All: true, QPs: 2},
			{Both: true, QPs: 2}, {All: true, Both: true, QPs: 2},
		}) {
			test := perf.Test{Op: p.Op, Latency: p.Latency, Size: 5000, Iterations: 3, TxDepth: 128,
				RxDepth: 100}
			if _, err := newPlan(test, s); err != nil {
				continue // of latencies
			}
			t.Run(Describe(test, s), func(t *testing.T) {
				overBoth(t, ServerConfig{Test: test, Shape: s}, func(r *rig) {
					p := planOf(t, test, s)
					var seen []int
					res, err := Run(r.ctx, ClientConfig{
						Adapter: r.devs[0], Addr: r.addr, Test: test, Shape: s, ServerFirst: time.Millisecond,
						Measured: func(res perf.Result) { seen = append(seen, res.Size) },
					})
					require.NoError(t, err)
					served := r.served()
					require.NoError(t, served.Err)
					require.EqualValues(t, 3*p.QPs, res.Iterations)
					require.Equal(t, sizesOf(p), seen)
					switch due := p.due(); p.Op {
					case perf.Read:
						require.Equal(t, due, served.Reads)
					case perf.Write:
						require.Equal(t, due, served.Octets)
					default: // with credits
						require.GreaterOrEqual(t, served.Octets, due)
					}
				})
			})
		}
	}
}

func sizesOf(p *plan) (all []int) {
	for _, t := range p.tests() {
		all = append(all, t.Size)
	}
	return all
}

// A duration is the client's own where its server has nothing to do, and told to both ends
// otherwise.
func TestDurations(t *testing.T) {
	for _, p := range Programs {
		for _, s := range sample.Of(t, 1, []Shape{{}, {Both: true}, {QPs: 2}}) {
			test := perf.Test{Op: p.Op, Latency: p.Latency, Size: 64, Duration: 50 * time.Millisecond,
				TxDepth: 16, RxDepth: 100}
			if p.Latency { // one round at least, on a busy machine, too
				test.Duration *= 8
			}
			if _, err := newPlan(test, s); err != nil {
				continue
			}
			t.Run(Describe(test, s), func(t *testing.T) {
				told := test
				if !s.Both && p.Op != perf.Send && !(p.Latency && p.Op == perf.Write) {
					told.Duration, told.Iterations = 0, 5
				}
				overBoth(t, ServerConfig{Test: told, Shape: s}, func(r *rig) {
					begin := time.Now()
					res, err := Run(r.ctx, ClientConfig{Adapter: r.devs[0], Addr: r.addr, Test: test, Shape: s,
						ServerFirst: time.Millisecond})
					require.NoError(t, err)
					require.GreaterOrEqual(t, time.Since(begin), test.Duration)
					require.NoError(t, r.served().Err)
					require.NotZero(t, res.Iterations)
					if !p.Latency { // a round that was under way at the end does not count
						require.GreaterOrEqual(t, res.Elapsed, test.Duration)
					}
				})
			})
		}
	}
}

// One end was told -b and the other was not: nothing in the handshake differs, and both would end
// well with half of the test.
func TestOneDirectionIsHalfATest(t *testing.T) {
	t.Parallel()
	var all sync.WaitGroup
	for _, op := range []perf.Op{perf.Write, perf.Read, perf.Send} {
		for _, weAreTold := range []bool{false, true} {
			test := perf.Test{Op: op, Size: 5000, Iterations: 20, TxDepth: 8, RxDepth: 20}
			r := newRig(t, testnic.Sockets(t), ServerConfig{Test: test, Shape: Shape{Both: weAreTold},
				IdleTimeout: 8 * time.Second})
			all.Go(func() {
				_, err := Run(r.ctx, ClientConfig{Adapter: r.devs[0], Addr: r.addr, Test: test,
					Shape: Shape{Both: !weAreTold}})
				require.Error(t, err, "%v, %v", op, weAreTold)
				s := r.served()
				if op == perf.Send {
					require.Error(t, s.Err)
				} else {
					require.Regexp(t, "was told (no )?-b", s.Err.Error(), "%v, %v", op, weAreTold)
				}
			})
		}
	}
	all.Wait()
}

// Ends that run different programs, or were told different things: a client that ends with an error
// says what it may come of, and has told of no figures before, of which nobody would know that they
// are of no test.
func TestMismatchHasNoFigures(t *testing.T) {
	t.Parallel()
	test := func(p Program, n int) perf.Test {
		return perf.Test{Op: p.Op, Latency: p.Latency, Size: 64, Iterations: n, TxDepth: 8, RxDepth: 100}
	}
	var all sync.WaitGroup
	for _, there := range Programs {
		for _, here := range Programs {
			for _, n := range []int{20, 40} {
				r := newRig(t, testnic.Sockets(t),
					ServerConfig{Test: test(there, 20), IdleTimeout: time.Second})
				all.Go(func() {
					figures := 0
					_, err := Run(r.ctx, ClientConfig{Adapter: r.devs[0], Addr: r.addr, Test: test(here, n),
						ServerFirst: time.Millisecond, Measured: func(perf.Result) { figures++ }})
					if err == nil {
						require.Equal(t, 1, figures, "%v, %v", there, here)
						return
					}
					require.Zero(t, figures, "%v, %v: %v", there, here, err)
					require.ErrorContains(t, err, "do both ends run the same program", "%v, %v", there, here)
				})
			}
		}
	}
	all.Wait()
}

// A server that goes through with the handshake of a test in both directions, and sends nothing,
// has not made it.
func TestServerSendsNothingBack(t *testing.T) {
	t.Parallel()
	r := newRig(t, testnic.Sockets(t), ServerConfig{Test: plain})
	es := r.second(r.firstGreeted())
	es[0].plan = planOf(t, plain, Shape{Both: true})
	require.ErrorContains(t, es.checkBoth(r.ctx, es[0].plan),
		"0 octets came of the other end, where 1280 were due")
}

// What a client writes beyond the memory that the server has given is what both ends say, although
// the client then leaves on the connection of the handshake, too.
func TestWritesBeyond(t *testing.T) {
	told := perf.Test{Op: perf.Write, Size: 64, Iterations: 20, TxDepth: 4}
	overBoth(t, ServerConfig{Test: told}, func(r *rig) {
		made := told
		made.Size = 65536
		_, err := r.run(made, rnic.ConnParam{})
		require.ErrorContains(t, err, "base or bounds violation")
		s := r.served()
		require.ErrorContains(t, s.Err, "base or bounds violation")
		require.ErrorContains(t, s.Err, "the same -n and -s")
	})
	// and at once, although the client says no more
	overBoth(t, ServerConfig{Test: told, IdleTimeout: time.Hour}, func(r *rig) {
		es := r.second(r.firstGreeted())
		theirs, err := r.control.begin(r.ctx, es[0].plan.program(), es.places())
		require.NoError(t, err)
		require.NoError(t, errOf(es[0].QP.PostSend(rnic.WorkRequest{Op: rnic.OpWrite,
			Local: es[0].Local.Slice(0, 64), RemoteSTag: theirs[0].STag,
			RemoteOffset: theirs[0].Offset + 8192,
		})))
		require.ErrorContains(t, r.served().Err, "base or bounds violation")
	})
}

// A server that writes beyond the client's memory is the reason that the client gives.
func TestServerWritesBeyond(t *testing.T) {
	test := perf.Test{Op: perf.Write, Latency: true, Size: 64, Iterations: 20}
	overBoth(
		t, ServerConfig{Test: perf.Test{Op: perf.Write, Latency: true, Size: 65536, Iterations: 20}},
		func(r *rig) {
			_, err := r.run(test, rnic.ConnParam{})
			require.ErrorContains(t, err, "base or bounds violation")
			require.ErrorContains(t, r.served().Err, "base or bounds violation")
		})
}

// Connections that do not all come are an error that says how many there were.
func TestTooFewConnections(t *testing.T) {
	t.Parallel()
	overBoth(t, ServerConfig{Test: plain, Shape: Shape{QPs: 3}, GreetTimeout: 3 * time.Second},
		func(r *rig) {
			_, err := r.run(plain, rnic.ConnParam{})
			require.Error(t, err)
			require.ErrorContains(t, r.served().Err, "connection 2 of the 3 to be measured")
		})
}
