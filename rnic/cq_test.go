package rnic

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func newTestCQ(t *testing.T, depth int) *CompletionQueue {
	t.Helper()
	a := must(Open(Config{}))
	q := must(a.CreateCQ(depth))
	return q
}

// promised is how many entries are reserved: what is left when all others were taken, which are
// given back as completions are, so that there must be none.
func (q *CompletionQueue) promised() int {
	n := 0
	for n < q.Depth() && q.q.Reserve(1) {
		n++
	}
	for range n {
		q.q.Push(Completion{})
		q.Poll(make([]Completion, 1))
	}
	return q.Depth() - n
}

func TestCreateCQ(t *testing.T) {
	a := must(Open(Config{}))
	for _, depth := range []int{-1, 0, CQDepthMax + 1} {
		_, err := a.CreateCQ(depth)
		require.ErrorContains(t, err, "completion queue depth")
	}
	for _, depth := range []int{1, 2, 3, 1000} {
		q := must(a.CreateCQ(depth))
		require.Equal(t, depth, q.Depth())
		require.Zero(t, q.Poll(make([]Completion, 4)))
	}
}

// A CompletionQueue holds exactly as many promised entries as it is deep; polling one makes room
// for one.
//
// req: 5042-6.4.3.2-3, 5042-6.4.3.2-1, 5040-8.1.2-1
func TestCQReservation(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	cq := must(r.client.CreateCQ(5))
	s, c := r.connect(opts{}, qpOpts(QPOptions{SendCQ: cq, RecvCQ: cq}))
	s.postRecv(s.recvAt(0, 0, 1))
	c.postRecvs(3, 10)
	c.post(c.write(s, 10, 0, 10))
	c.post(c.send(11, 0, 1))
	require.ErrorIs(t, errOf(c.qp.PostRecv(c.recvAt(3, 0, 10))), ErrCQFull)
	require.ErrorIs(t, errOf(c.qp.PostSend(c.write(s, 12, 0, 10))), ErrCQFull)
	require.ErrorIs(t, errOf(c.qp.PostSend(WorkRequest{Op: OpSend})), ErrCQFull)

	require.Equal(t, uint64(10), c.await(2)[0].ID) // polled: their places are free again
	c.postRecv(c.recvAt(3, 0, 10), c.recvAt(4, 0, 10))
	require.ErrorIs(t, errOf(c.qp.PostRecv(c.recvAt(5, 0, 10))), ErrCQFull)
	c.qp.Abort()
	c.awaitClosed()
	c.expectEach(5, Completion{Op: OpRecv, Status: Flushed})
	c.expectNoCompletion()
	require.Zero(t, cq.promised())
}

// One completion at a time, each answered before the next, pushed a little earlier or later each
// time: some fall between the consumer's last look and its sleep.
func TestCQWaitPingPong(t *testing.T) {
	const rounds, delays = 30_000, 600
	q := newTestCQ(t, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	begin := time.Now()
	var turn atomic.Int64 // the round whose completion may be pushed; below 0: no more
	var wg sync.WaitGroup
	wg.Go(func() {
		for i := int64(1); i <= rounds; i++ {
			for spins := 0; turn.Load() != i; spins++ {
				if turn.Load() < 0 {
					return
				}
				if spins > 1000 {
					yield()
				}
			}
			for range i % delays {
				turn.Load()
			}
			q.q.Reserve(1)
			q.q.Push(Completion{ID: uint64(i)})
		}
	})
	var c [1]Completion
	defer wg.Wait()
	defer turn.Store(-1)
	// a busy machine plays fewer
	for i := int64(1); i <= rounds && time.Since(begin) < 3*time.Second; i++ {
		turn.Store(i)
		for range delays / 2 { // the producer has seen it by then
			turn.Load()
		}
		for q.Poll(c[:]) == 0 {
			require.NoErrorf(t, q.Wait(ctx), "round %d", i)
		}
		require.Equal(t, uint64(i), c[0].ID)
	}
}

// A completion says of every request before it that its octets are the application's again: what
// is written over them does not reach the peer any more.
func TestUnsignaledOctetsAreFree(t *testing.T) {
	r, s, c := connected(t, opts{}, opts{})
	want := slices.Clone(c.source.Bytes()[:20000])
	for i := range 10 {
		wr := c.write(s, uint64(i), i*2000, 2000)
		wr.Signaled = i == 9
		c.post(as(OpWrite, wr))
	}
	require.Equal(t, uint64(9), c.await(1)[0].ID)
	clear(c.source.Bytes()[:20000])
	r.close(s, c)
	require.Equal(t, want, s.region.Bytes()[:20000])
}

func TestCompletionString(t *testing.T) {
	for want, c := range map[string]Completion{
		"Receive 7 of queue pair 3: success, 12 octets": {Len: 12, Op: OpRecv},
		"Receive 7 of queue pair 3: success, 12 octets, STag 0x000bad00 invalidated": {Len: 12,
			Op: OpRecv, Invalidated: 0xbad00},
		"Fetch and Add 7 of queue pair 3: success, 8 octets, the word was 0x1234": {Len: 8,
			Op: OpFetchAdd, Original: 0x1234},
		"Compare and Swap 7 of queue pair 3: success, 8 octets, the word was 0x0": {Len: 8,
			Op: OpCompareSwap},
		"Compare and Swap 7 of queue pair 3: flushed, 8 octets": {Len: 8, Op: OpCompareSwap,
			Status: Flushed}, // nobody knows what the word was
	} {
		c.ID, c.QP = 7, 3
		require.Equal(t, want, fmt.Sprintf("%+v", c))
		require.Equal(t, want, c.String())
	}
}
