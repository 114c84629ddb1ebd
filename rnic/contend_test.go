package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What is posted the moment that a QueuePair ends is flushed after what was posted before.
func TestFlushedInOrderAtTheEnd(t *testing.T) {
	const before = 1 << 12
	r := newRig(t, turned, rigConfig{})
	for range 5 {
		cq, err := r.client.CreateCQ(4 * before)
		require.NoError(t, err)
		depth := opts{QPOptions: QPOptions{SendDepth: before, SendCQ: cq, RecvCQ: cq},
			ConnParam: ConnParam{IRD: 1, ORD: 1}}
		_, c := r.connect(opts{ConnParam: ConnParam{IRD: 1, ORD: 1}}, depth)
		require.True(t, cq.q.Reserve(before))
		for i := range before { // as if they had been sent after a Read that is not answered
			c.qp.engine.PretendSent(uint64(i))
		}
		late := make(chan error, 1)
		go func() {
			for c.qp.State() != Closed && r.ctx.Err() == nil {
			}
			late <- errOf(c.qp.PostSend(WorkRequest{Op: OpSend, ID: before}))
		}()
		l := c.qp.end.Connection.Load()
		l.Fail(ErrLinger) // an end that the ULP has not asked for: posting is no error
		c.awaitClosed()
		require.NoError(t, <-late)
		for i, cm := range c.await(before + 1) {
			require.Equal(t, uint64(i), cm.ID)
		}
	}
}

// Where there is neither a shared buffer nor a place for its completion, the buffer is what is
// missing: no overflow.
func TestSharedReceiveQueueEmptyAndCQFull(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		small, err := r.server.CreateCQ(2)
		require.NoError(t, err)
		pd := r.server.AllocPD()
		p := newPool(t, pd, 8, 2)
		s, c := r.connect(
			opts{QPOptions: QPOptions{PD: pd, SRQ: p.SharedReceiveQueue, RecvCQ: small, SendCQ: small}},
			opts{})
		for range 3 {
			r.tell(c, "x")
		}
		s.awaitClosed()
		require.Equal(t, causeNoBuffer, terminated(s.qp.Err()))
		require.Zero(t, r.server.EventCount(EventCQOverflow))
	})
}
