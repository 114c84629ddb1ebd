package rnic

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/stack"
)

// What cannot be is refused, among it queues and domains of another owner.
//
// req: 5042-7.1-1, 5040-8.1.1-4
func TestCreateQP(t *testing.T) {
	a := must(Open(Config{}))
	other := must(Open(Config{}))
	cq := must(a.CreateCQ(4))
	foreign := must(other.CreateCQ(4))
	srq := must(a.CreateSRQ(SRQOptions{PD: a.AllocPD()}))
	pd := a.AllocPD()
	good := QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq}
	for _, tc := range []struct {
		change func(o *QPOptions)
		want   string
	}{
		{func(o *QPOptions) { o.PD = nil }, "QPOptions.PD, SendCQ and RecvCQ are needed"},
		{func(o *QPOptions) { o.SendCQ = nil }, "QPOptions.PD, SendCQ and RecvCQ are needed"},
		{func(o *QPOptions) { o.RecvCQ = nil }, "QPOptions.PD, SendCQ and RecvCQ are needed"},
		{func(o *QPOptions) { o.PD = other.AllocPD() }, "QPOptions.PD belongs to another adapter"},
		{func(o *QPOptions) {
			o.SendCQ = foreign
		}, "QPOptions.SendCQ or RecvCQ belongs to another adapter"},
		{func(o *QPOptions) {
			o.RecvCQ = foreign
		}, "QPOptions.SendCQ or RecvCQ belongs to another adapter"},
		{func(o *QPOptions) { o.SendDepth = -1 }, "QPOptions.SendDepth"},
		{func(o *QPOptions) { o.SendDepth = QueueDepthMax + 1 }, "QPOptions.SendDepth"},
		{func(o *QPOptions) { o.RecvDepth = -1 }, "QPOptions.SendDepth"},
		{func(o *QPOptions) { o.RecvDepth = QueueDepthMax + 1 }, "QPOptions.SendDepth"},
		{func(o *QPOptions) { o.SGEMax = SGEMaxLimit + 1 }, "QPOptions.SGEMax 33"},
		{func(o *QPOptions) { o.InlineMax = -2 }, "QPOptions.InlineMax -2"},
		{func(o *QPOptions) { o.SRQ = srq }, "QPOptions.SRQ belongs to another protection domain"},
	} {
		o := good
		tc.change(&o)
		_, err := a.CreateQP(o)
		require.ErrorContains(t, err, tc.want)
	}
	numbers := map[uint32]bool{}
	for range 3 {
		q := must(a.CreateQP(good))
		require.Equal(t, Idle, q.State())
		require.NoError(t, q.Err())
		require.False(t, isDone(q))
		numbers[q.Number()] = true
	}
	require.Len(t, numbers, 3)
	require.Zero(t, a.table.Len(), "it takes no entry before it connects")
}

// What does not fit the state is refused at once.
func TestPostByState(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client, opts{})
	require.ErrorIs(t, errOf(c.qp.PostSend(WorkRequest{Op: OpSend})), ErrState)
	require.ErrorIs(t, errOf(c.qp.PostSend(WorkRequest{Op: OpWrite})), ErrState)
	c.postRecv(c.recvAt(1, 0, 10))
	req := r.dial(c, nil)
	require.Equal(t, Connecting, c.qp.State())
	require.ErrorIs(t, errOf(c.qp.PostSend(WorkRequest{Op: OpSend})), ErrState)
	c.postRecv(c.recvAt(2, 0, 10))
	require.ErrorIs(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn), ErrState, "connected twice")
	s := r.newEnd(r.server, opts{})
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	c.expectState(RTS)
	require.ErrorIs(t, s.qp.StartConnect(r.ctx, r.addr(), s.conn), ErrState,
		"accepted, then connected")
	r.close(s, c)
	require.Equal(t, Closed, c.qp.State())
	require.ErrorIs(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn), ErrState, "in service once only")
	c.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed},
		Completion{ID: 2, Op: OpRecv, Status: Flushed})
}

// A QueuePair that was never connected closes at once.
func TestCloseIdle(t *testing.T) {
	for name, end := range map[string]func(q *QueuePair) error{
		"close": func(q *QueuePair) error { return q.Close(context.Background()) },
		"abort": func(q *QueuePair) error { q.Abort(); return nil },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, sockets, rigConfig{})
			c := r.newEnd(r.client, opts{})
			c.postRecv(c.recvAt(4, 0, 1))
			c.qp.Disconnect() // nothing to disconnect
			require.NoError(t, end(c.qp))
			require.True(t, isDone(c.qp))
			require.Equal(t, Closed, c.qp.State())
			c.expectCompletions(Completion{ID: 4, Op: OpRecv, Status: Flushed})
			require.ErrorIs(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn), ErrState)
		})
	}
}

// Several goroutines post while the connection ends: what a posting call took completes exactly
// once, whatever the moment.
func TestPostWhileEnding(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		seed := uint64(time.Now().UnixNano())
		t.Logf("seed %d", seed)
		rng := rand.New(rand.NewPCG(seed, 0))
		for round := range 12 {
			s, c := r.connect(qpOpts(QPOptions{SendDepth: 8}), qpOpts(QPOptions{SendDepth: 8, RecvDepth: 8}))
			// by goroutine: 0 Writes, 1 Sends of no buffer at the peer's, 2 receives
			var taken [3]atomic.Int64
			var stop atomic.Bool
			var wg sync.WaitGroup
			for g := range taken {
				wg.Go(func() {
					for i := 0; !stop.Load() && i < 100000; i++ {
						wr := c.write(s, uint64(g)<<32|uint64(taken[g].Load()), 0, 100)
						var err error
						if g == 2 {
							_, err = c.qp.PostRecv(as(OpRecv, wr))
						} else {
							_, err = c.qp.PostSend(as(OpWrite, wr))
						}
						switch {
						case err == nil:
							taken[g].Add(1)
						case !errors.Is(err, ErrSendQueueFull) && !errors.Is(err, ErrRecvQueueFull) &&
							!errors.Is(err, ErrCQFull) && !errors.Is(err, ErrClosed):
							t.Errorf("post: %v", err)
							return
						default:
							yield()
						}
					}
				})
			}
			for range rng.IntN(2000) {
				c.poll()
			}
			[]func(){c.qp.Abort, s.qp.Abort, c.qp.Disconnect, s.qp.Disconnect}[round%4]()
			r.until("the end", func() bool { c.poll(); return isDone(c.qp) })
			stop.Store(true)
			wg.Wait()
			c.poll()
			var got [3]int64
			for _, cm := range c.done {
				g := cm.ID >> 32
				require.Equal(t, uint64(got[g]), cm.ID&0xffffffff,
					"completions of one goroutine come in its order")
				got[g]++
			}
			for g := range taken {
				require.Equal(t, taken[g].Load(), got[g], "goroutine %d", g)
			}
			require.Zero(t, c.cq.promised())
		}
	})
}

// A posted range that is not registered, or not any more, ends the connection with LocalProtection.
//
// req: 5040-7.1-1
func TestLocalProtection(t *testing.T) {
	for _, tc := range []struct {
		name string
		sge  func(r *rig, c *end) SGE
	}{
		{"unknown STag", func(_ *rig, c *end) SGE { return SGE{STag: 0x1234500, Length: 10} }},
		{"past the end", func(_ *rig, c *end) SGE {
			return SGE{STag: c.source.STag(), Offset: regionBytes - 9, Length: 10}
		}},
		{"revoked", func(_ *rig, c *end) SGE {
			sge := c.source.Slice(0, 10)
			c.source.Deregister()
			return sge
		}},
		{"other domain", func(r *rig, c *end) SGE {
			m := must(r.client.AllocPD().Register(make([]byte, 10), 0))
			return m.Slice(0, 10)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, s, c := connected(t, opts{}, opts{})
			wr := c.write(s, 7, 0, 10)
			wr.Local, wr.Signaled = tc.sge(r, c), false
			c.post(as(OpWrite, wr))
			c.post(WorkRequest{Op: OpSend, ID: 8})
			c.expectClosedBy(qp.ErrLocalRange)
			c.expectCompletions(Completion{ID: 7, Op: OpWrite, Status: LocalProtection},
				Completion{ID: 8, Op: OpSend, Status: Flushed})
			s.expectClosedBy(stack.ErrReset)
			require.Equal(t, make([]byte, regionBytes), s.region.Bytes())
		})
	}
}

// A receive buffer that is no writable memory of the domain is this host's fault: the message
// that finds it ends the connection, the peer hears of a local catastrophic error.
//
// req: DDP-9.2-2, 5040-4.8-11
func TestReceiveIntoNothing(t *testing.T) {
	for name, sge := range map[string]func(s *end) SGE{
		"read only": func(s *end) SGE { return s.source.Slice(0, 100) },
		"unknown":   func(s *end) SGE { return SGE{STag: 0x777700, Length: 100} },
		"too little": func(s *end) SGE {
			return SGE{STag: s.inbox.STag(), Offset: regionBytes - 5, Length: 100}
		},
	} {
		t.Run(name, func(t *testing.T) {
			_, s, c := connected(t, opts{}, opts{})
			s.postRecv(s.recvAt(1, 0, 100))
			s.postRecv(WorkRequest{ID: 2, Local: sge(s)})
			s.postRecv(s.recvAt(3, 0, 100))
			for range 2 {
				c.post(c.sendQuietly(0, 50))
			}
			awaitClosed(s, c)
			n := s.qp.Number()
			s.expectCompletions(Completion{ID: 1, QP: n, Op: OpRecv, Len: 50},
				Completion{ID: 2, QP: n, Op: OpRecv, Status: LocalProtection},
				Completion{ID: 3, QP: n, Op: OpRecv, Status: Flushed})
			pe := errorAs[*PeerError](t, c.qp.Err())
			require.Equal(t, "DDP local catastrophic error (layer 1, type 0, code 0x00)", pe.Error())
		})
	}
}

// No two QueuePairs have one number, and none has 0, which as a stream is everybody's.
func TestNumbersRunOut(t *testing.T) {
	a := must(Open(Config{}))
	cq := must(a.CreateCQ(4))
	opt := QPOptions{PD: a.AllocPD(), SendCQ: cq, RecvCQ: cq}
	a.nums.Store(1<<32 - 2)
	q := must(a.CreateQP(opt))
	require.EqualValues(t, 1<<32-1, q.Number())
	for range 2 {
		_, err := a.CreateQP(opt)
		require.ErrorContains(t, err, "as many queue pairs as there are numbers")
	}
}
