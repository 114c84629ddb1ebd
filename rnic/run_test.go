package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Receive buffers that are posted together are used in their order, with those that are posted
// alone, and are limited as they are.
func TestPostRecvOfSeveral(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const depth = 40 // more than one run
		s, c := r.connect(opts{QPOptions: QPOptions{RecvDepth: depth}}, opts{})
		var wrs []WorkRequest
		for i := range depth + 3 {
			wrs = append(wrs, s.recvAt(uint64(i), i, 1))
		}
		wrs[9] = WorkRequest{ID: 9, Local: s.inbox.Slice(9, 1), List: []SGE{s.inbox.Slice(900, 4)}}
		n, err := s.qp.PostRecv(wrs[:5]...)
		require.NoError(t, err)
		require.Equal(t, 5, n)
		n, err = s.qp.PostRecv(wrs[5:]...)
		require.ErrorIs(t, err, ErrRecvQueueFull)
		require.Equal(t, depth-5, n)
		n, err = s.qp.PostRecv()
		require.NoError(t, err)
		require.Zero(t, n)

		for i := range depth {
			c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(i, 1)})
		}
		for i, cm := range s.await(depth) {
			require.Equal(t, Completion{ID: uint64(i), QP: s.qp.Number(), Op: OpRecv, Len: 1}, cm)
		}
		require.Equal(t, c.source.Bytes()[:depth], s.inbox.Bytes()[:depth])

		n, err = s.qp.PostRecv(wrs[:20]...) // their places are free again
		require.NoError(t, err)
		require.Equal(t, 20, n)
		s.qp.Abort()
		s.awaitClosed()
		for i, cm := range s.await(20) {
			require.Equal(t, Completion{ID: uint64(i), QP: s.qp.Number(), Op: OpRecv, Status: Flushed}, cm)
		}
		n, err = s.qp.PostRecv(wrs[:3]...)
		require.NoError(t, err)
		require.Equal(t, 3, n)
		require.Equal(t, Flushed, s.await(3)[2].Status)
		require.Zero(t, s.qp.opt.RecvCQ.q.Promised(), "of a run that did not fit, too")
	})
}

// Where a run does not fit as a whole, what fits of it is posted, and the error is about the next.
func TestPostRunStopsWhereItIsFull(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		cq, err := r.client.CreateCQ(20)
		require.NoError(t, err)
		s, c := r.connect(opts{}, opts{QPOptions: QPOptions{SendCQ: cq, RecvCQ: cq}})
		for i := range 20 {
			s.postRecv(s.recvAt(uint64(i), i, 1))
		}
		var wrs []WorkRequest
		for i := range 30 {
			wrs = append(wrs, WorkRequest{ID: uint64(i), Op: OpSend, Local: c.source.Slice(i, 1),
				Signaled: true})
		}
		n, err := c.qp.PostSend(wrs...)
		require.ErrorIs(t, err, ErrCQFull)
		require.Equal(t, 20, n)
		for i, cm := range c.await(20) {
			require.Equal(t, Completion{ID: uint64(i), QP: c.qp.Number(), Op: OpSend, Len: 1}, cm)
		}
		s.await(20)
		require.Equal(t, c.source.Bytes()[:20], s.inbox.Bytes()[:20])
		require.Zero(t, cq.q.Promised())
	})
}

// More requests than the ring has entries: what fits is posted.
func TestPostMoreThanTheRing(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{QPOptions: QPOptions{SendDepth: 4}})
		require.Less(t, c.qp.engine.SQ.Cap(), runMax)
		var wrs []WorkRequest
		for i := range 40 {
			w := c.write(s, uint64(i), i, 1)
			w.Op = OpWrite
			wrs = append(wrs, w)
		}
		for len(wrs) > 0 {
			n, err := c.qp.PostSend(wrs...)
			if n < len(wrs) {
				require.ErrorIs(t, err, ErrSendQueueFull)
			}
			for i, cm := range c.await(n) {
				require.Equal(t, wrs[i].ID, cm.ID)
			}
			wrs = wrs[n:]
		}
		require.Zero(t, c.qp.opt.SendCQ.q.Promised(), "of a run that did not fit, too")
	})
}
