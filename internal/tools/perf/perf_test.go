package perf

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

// Every kind of test, of short and long messages, does as many as it was asked for, moves the
// octets, and the figures fit each other.
func TestKinds(t *testing.T) {
	iterations := sample.Count(60, 300)
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		for _, op := range []Op{Write, Read, Send, Atomic} {
			for _, latency := range []bool{false, true} {
				for _, size := range sample.Of(t, 1, []int{1, 8, 5000, areaMax}) {
					if op == Atomic && size != AtomicSize {
						continue
					}
					name := fmt.Sprintf("%v, latency %v, %d octets", op, latency, size)
					test := Test{Op: op, Latency: latency, Size: size, Iterations: iterations, Warmup: 7,
						TxDepth: 16, RxDepth: 32}
					p := connect(t, devs, test).withCredit().fill(test)
					served := p.serve(test)
					res, err := p.ends[0].Run(p.ctx, test)
					require.NoError(t, err, name)
					require.NoError(t, served(), name)
					checkResult(t, res, test, name)
					p.requireMoved(test, name)
				}
			}
		}
	})
}

func checkResult(t *testing.T, res Result, test Test, name string) {
	t.Helper()
	require.EqualValues(t, test.Iterations, res.Iterations, name)
	require.EqualValues(t, test.Iterations*test.Size, res.Bytes, name)
	require.Positive(t, res.Elapsed, name)
	if test.Latency {
		l := res.Times
		require.True(t, 0 < l.Min && l.Min <= l.Median && l.Median <= l.P99 && l.P99 <= l.P999 &&
			l.P999 <= l.Max, "%s: %+v", name, l)
		require.True(t, l.Min <= l.Average && l.Average <= l.Max, "%s: %+v", name, l)
		return
	}
	require.InEpsilon(t, float64(res.Bytes)/res.Elapsed.Seconds(), res.Bandwidth, 1e-9, name)
	require.InEpsilon(t, float64(res.Iterations)/res.Elapsed.Seconds(), res.MessageRate, 1e-9, name)
	require.GreaterOrEqual(t, res.Peak, res.Bandwidth, name)
}

// Each round of a ping-pong is seen by both: the octet that is looked at counts on beyond 255.
func TestWriteRounds(t *testing.T) {
	rounds := sample.Count(300, 1000)
	test := Test{Op: Write, Latency: true, Size: 3, Iterations: rounds}
	p := connect(t, testnic.Wired(t), test)
	served := p.serve(test)
	res, err := p.ends[0].Run(p.ctx, test)
	require.NoError(t, err)
	require.NoError(t, served())
	require.EqualValues(t, rounds, res.Iterations)
	for _, e := range p.ends {
		last := e.RecvAt + test.Size - 1
		require.Equal(t, byte(rounds), e.Local.Bytes()[last])
		require.Zero(t, e.Local.Bytes()[last+1])
	}
}

// The peer's word goes up by one each time.
func TestAtomicsCount(t *testing.T) {
	test := Test{Op: Atomic, Size: AtomicSize, Iterations: 500, Warmup: 20, TxDepth: 8}
	p := connect(t, testnic.Wired(t), test)
	_, err := p.ends[0].Run(p.ctx, test)
	require.NoError(t, err)
	require.NoError(t, p.serve(test)()) // has nothing to do
	require.Equal(t, byte(520%256), p.ends[1].Local.Bytes()[0])
}

// With credit a sender waits for a slow receiver's buffers; without, the connection ends for want
// of one.
func TestCredit(t *testing.T) {
	test := Test{Op: Send, Size: 64, Iterations: sample.Count(300, 2000), TxDepth: 32, RxDepth: 4}
	p := connect(t, testnic.Wired(t), test).withCredit()
	ran := make(chan error, 1)
	go func() {
		_, err := p.ends[0].Run(p.ctx, test)
		ran <- err
	}()
	for { // all the buffers are used before anybody takes a message
		st, err := p.ends[1].QP.Stats(p.ctx)
		require.NoError(t, err)
		if st.MessagesRecvd == uint64(test.RxDepth) {
			break
		}
	}
	require.NoError(t, p.serve(test)())
	require.NoError(t, <-ran)

	p = connect(t, testnic.Wired(t), test)
	require.ErrorContains(t, errOf(p.ends[0].Run(p.ctx, test)), "no buffer")
}

// A test with a duration takes that long, and the server learns from a Send with Solicited Event
// that it is over.
func TestDuration(t *testing.T) {
	for _, test := range []Test{
		{Op: Send, Size: 100, TxDepth: 16, RxDepth: 32},
		{Op: Send, Size: 100, Latency: true, RxDepth: 32},
	} {
		test.Duration = 50 * time.Millisecond
		p := connect(t, testnic.Wired(t), test).withCredit()
		// has a buffer for the last message, which is none of the test's and waits for no credit
		server := p.ends[1]
		require.NoError(t, errOf(server.QP.PostRecv(rnic.WorkRequest{Local: server.Local.Slice(
			server.RecvAt, test.Size)})))
		served := p.serve(test)
		res, err := p.ends[0].Run(p.ctx, test)
		require.NoError(t, err)
		require.GreaterOrEqual(t, res.Elapsed, test.Duration)
		require.NotZero(t, res.Iterations)
		require.Zero(t, res.Peak)
		require.NoError(t, errOf(p.ends[0].QP.PostSend(rnic.WorkRequest{Op: rnic.OpSend,
			Local: p.ends[0].Local.Slice(0, 1), Solicited: true})))
		require.NoError(t, served())
	}
}

// The octets have been delivered when Flush returns, and that time counts.
func TestFlush(t *testing.T) {
	test := Test{Op: Write, Size: 100, Iterations: 10, TxDepth: 10}
	p := connect(t, testnic.Wired(t), test)
	var flush time.Duration
	p.ends[0].Flush = func(ctx context.Context) error {
		const enough = 20 * time.Millisecond // more than the ten Writes take
		for began := time.Now(); flush < enough && ctx.Err() == nil; flush = time.Since(began) {
			runtime.Gosched()
		}
		return ctx.Err()
	}
	res, err := p.ends[0].Run(p.ctx, test)
	require.NoError(t, err)
	require.NotZero(t, flush)
	require.GreaterOrEqual(t, res.Elapsed, flush)
}

// A peer that goes away ends a test, whatever is waited for; so does the caller's context.
func TestPeerGone(t *testing.T) {
	for _, test := range []Test{
		{Op: Write, Size: 10, Latency: true}, {Op: Send, Size: 10, Latency: true, RxDepth: 4},
		{Op: Read, Size: 10, Latency: true},
		{Op: Send, Size: 10, TxDepth: 4, RxDepth: 4},
	} {
		for _, how := range []string{"closes", "aborts", "is silent"} {
			test.Iterations = 1 << 30
			p := connect(t, testnic.Wired(t), test).withCredit()
			ctx, cancel := context.WithCancel(p.ctx)
			defer cancel()
			var begun atomic.Bool
			ran := make(chan error, 1)
			go func() {
				begun.Store(true)
				_, err := p.ends[0].Run(ctx, test)
				ran <- err
			}()
			require.Eventually(t, begun.Load, patience, time.Millisecond)
			switch how {
			case "closes":
				p.ends[1].QP.Disconnect()
			case "aborts":
				p.ends[1].QP.Abort()
			default:
				cancel()
			}
			err := <-ran
			require.Error(t, err, "%+v %s", test, how)
			if how == "is silent" {
				require.ErrorIs(t, err, context.Canceled)
			}
		}
	}
}

// A server whose client leaves in order, without a number of iterations to wait for, has served.
func TestServeUntilClosed(t *testing.T) {
	test := Test{Op: Write, Size: 10, Latency: true}
	p := connect(t, testnic.Wired(t), test)
	served := p.serve(test)
	p.ends[0].QP.Disconnect()
	require.NoError(t, served())

	test.Iterations = 1000
	p = connect(t, testnic.Wired(t), test)
	served = p.serve(test)
	p.ends[0].QP.Disconnect()
	require.ErrorIs(t, served(), ErrEnded)
}

// A latency test without a single round has no figures.
func TestNoRoundIsAnError(t *testing.T) {
	s := rounds{r: &run{Test: Test{Op: Write, Latency: true, Duration: time.Millisecond}}, done: 1,
		timing: newHistogram()}
	require.ErrorContains(t, errOf(s.result(2)), "the 1ms were over before one round")
	s.done++
	res, err := s.result(2)
	require.NoError(t, err)
	require.EqualValues(t, 1, res.Iterations)
}

// What cannot be is refused before anything is posted.
func TestRefused(t *testing.T) {
	good := Test{Op: Send, Size: 10, Iterations: 1, TxDepth: 4, RxDepth: 4}
	p := connect(t, testnic.Wired(t), good)
	for name, change := range map[string]func(*Test, *End){
		"op":            func(x *Test, _ *End) { x.Op = 7 },
		"size 0":        func(x *Test, _ *End) { x.Size = 0 },
		"outside":       func(x *Test, _ *End) { x.Size = memory },
		"atomic":        func(x *Test, _ *End) { x.Op = Atomic },
		"iterations":    func(x *Test, _ *End) { x.Iterations = -1 },
		"tx-depth":      func(x *Test, _ *End) { x.TxDepth = 0 },
		"rx-depth":      func(x *Test, _ *End) { x.RxDepth = DepthMax + 1 },
		"far":           func(_ *Test, e *End) { e.RecvAt = 1 << 62 },
		"before":        func(_ *Test, e *End) { e.SendAt = -1 },
		"no word":       func(_ *Test, e *End) { e.Credit = &Credit{Local: 2} },
		"nothing at it": func(_ *Test, e *End) { e.SendCQ = nil },
	} {
		test, end := good, *p.ends[0]
		change(&test, &end)
		require.Error(t, errOf(end.Run(p.ctx, test)), name)
		require.Error(t, end.Serve(p.ctx, test), name)
		require.Error(t, end.Prepare(test, true), name)
	}
	good.Iterations = 0
	require.Error(t, errOf(p.ends[0].Run(p.ctx, good)))
}

// Open where the STag table is full is an error, and leaves nothing.
func TestOpenWithoutRoom(t *testing.T) {
	dev := testnic.Open(t, rnic.Config{RegionsMax: 1})
	m, err := dev.AllocPD().Register(make([]byte, 1), 0)
	require.NoError(t, err)
	defer m.Deregister()
	e, err := Open(dev, &Test{Op: Write, Size: 8, TxDepth: 1, RxDepth: 1}, 8, true)
	require.ErrorContains(t, err, "in use")
	require.Nil(t, e)
}
