package qp

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// aside calls f on a goroutine of its own, again and again, while g runs.
func aside(f, g func()) {
	var stop atomic.Bool
	var wg sync.WaitGroup
	wg.Go(func() {
		for !stop.Load() {
			f()
		}
	})
	g()
	stop.Store(true)
	wg.Wait()
}

func newCQ(depth int) *CQ {
	q := new(CQ)
	q.Init(mem.NewMPSC(make([]mem.MPSCSlot[wq.CQE], RingSize(depth))), depth)
	return q
}

// Against a counter: reserve never promises more than there is, and gives back what it cannot
// promise.
func TestCQReserveOracle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	const depth = 7
	q := newCQ(depth)
	promised, waiting := 0, 0
	var c [depth]wq.CQE
	for range 20000 {
		switch rng.IntN(4) {
		case 0, 1:
			ok := q.Reserve(1)
			require.Equal(t, promised+waiting < depth, ok)
			if ok {
				promised++
			}
		case 2:
			if promised > 0 {
				promised--
				if rng.IntN(2) == 0 {
					q.unreserve(1)
				} else {
					q.Push(wq.CQE{})
					waiting++
				}
			}
		case 3:
			n := q.Poll(c[:rng.IntN(depth)+1])
			require.LessOrEqual(t, n, waiting)
			waiting -= n
		}
		require.Equal(t, int64(promised+waiting), q.reserved.Load())
	}
}

// A completion without a promised entry is this package's mistake, not to be lost in silence.
func TestCQPushWithoutReservation(t *testing.T) {
	q := newCQ(2)
	q.Push(wq.CQE{})
	q.Push(wq.CQE{})
	require.Panics(t, func() { q.Push(wq.CQE{}) })
}

// A run that does not fit takes no room from others, not for a moment: a shared receive buffer that
// found none would end its stream.
func TestRefusedReservationsTakeNothing(t *testing.T) {
	const tries = 1_000_000
	cq := newCQ(16)
	require.True(t, cq.Reserve(8))
	q := &Engine{Config: Config{RecvDepth: 16}}
	require.True(t, q.postable(8))
	refused := 0
	aside(func() { cq.Reserve(16); q.postable(16) }, func() {
		for range tries {
			if cq.Reserve(1) {
				cq.unreserve(1)
			} else {
				refused++
			}
			if q.postable(1) {
				q.posted.Add(-1)
			} else {
				refused++
			}
		}
	})
	require.Zero(t, refused)
	require.Equal(t, int64(8), cq.reserved.Load())
}

// After the completion of a receive buffer was polled, the next can be posted at once: its place
// in the queue is free.
func TestPolledBufferHasItsPlace(t *testing.T) {
	const rounds = 1_000_000
	q := &Engine{Config: Config{RecvDepth: 1, RecvCQ: newCQ(4)},
		RQ:      mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], 2)),
		service: &service{recv: recvHalf{batch: new(batch)}}}
	var err error
	aside(func() { // the driver
		if w, ok := q.RQ.Pop(); ok {
			q.completeRecv(wq.CQE{ID: w.ID, Op: wq.OpRecv})
			q.publishRecvs()
		} else {
			runtime.Gosched()
		}
	}, func() {
		var cs [1]wq.CQE
		for i := 0; i < rounds && err == nil; i++ {
			err = q.PostRecv(&wq.WQE{ID: uint64(i)}, nil)
			for err == nil && q.RecvCQ.Poll(cs[:]) == 0 {
				runtime.Gosched()
			}
		}
	})
	require.NoError(t, err)
}
