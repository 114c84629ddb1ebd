package stack

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/stretchr/testify/require"
)

// fitful is a device that is full now and then, and keeps book of the frames it has not taken.
type fitful struct {
	pmd.Queue
	max     func() int
	waits   map[mem.Buf]bool
	waited  uint64
	refusal uint64
}

func (f *fitful) Tx(bufs []mem.Buf) int {
	n := f.Queue.Tx(bufs[:min(len(bufs), f.max())])
	for _, b := range bufs[:n] {
		delete(f.waits, b)
	}
	for _, b := range bufs[n:] {
		f.refusal++
		if !f.waits[b] {
			f.waits[b] = true
			f.waited++
		}
	}
	return n
}

// A frame that the device does not take at once is counted once, however often it is offered, and
// whatever is put before it meanwhile.
func TestDeferredFramesAreCountedOnce(t *testing.T) {
	r := dice(t)
	l := newLab(t, func(i int, cfg *Config) { cfg.PendingMax = 64 })
	l.listen(l.b, 7, 16)
	f := &fitful{Queue: l.a.tx.queue, max: func() int {
		return []int{1000, 0, 0, 1, 3}[r.IntN(5)]
	}, waits: map[mem.Buf]bool{}}
	l.a.tx.queue = f
	for range 8 {
		l.dial(l.a, l.b, 7, 100_000)
	}
	there := 0
	l.until("all there", func() bool {
		for there < len(l.accepted) && l.accepted[there].edge >= 100_000 {
			there++
		}
		if n := len(l.accepted); n > 0 && r.IntN(8) == 0 {
			l.accepted[n-1].send(100) // ACKs of l.a go before what waits
		}
		return there == 8
	})
	n := l.a.counters()
	require.Equal(t, f.waited, n.TxDeferred)
	require.Greater(t, f.refusal, 2*f.waited, "offered again and again")
	require.LessOrEqual(t, n.TxDeferred, n.TxFrames+uint64(n.Pending))
	f.max = func() int { return 1000 }
}
