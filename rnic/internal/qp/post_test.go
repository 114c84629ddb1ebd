package qp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
)

// Requests are queued together from two on, all of them or none: as many as the ring has, while
// there is room for their completions. What was refused has promised no completion.
func TestPostTogether(t *testing.T) {
	const depth = 4
	newEngine := func(completions int) *Engine {
		return &Engine{
			Config: Config{SendCQ: newCQ(completions), RecvCQ: newCQ(completions), SendDepth: depth,
				RecvDepth: depth},
			SQ: mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], depth)),
			RQ: mem.NewMPSC(make([]mem.MPSCSlot[wq.WQE], depth)),
		}
	}
	sends := func(q *Engine, n int) int { return q.PostSends(make([]wq.WQE, n)) }
	recvs := func(q *Engine, n int) int { return q.PostRecvs(make([]wq.WQE, n)) }
	for _, tc := range []struct {
		completions, n, sends, recvs int
	}{
		{8, 1, 0, 0}, {8, 2, 2, 2}, {8, depth, depth, depth},
		{8, depth + 1, depth, 0}, // of requests the ring's number is tried, the rest come next
		{3, depth, 0, 0}, {depth, depth, depth, depth},
	} {
		q := newEngine(tc.completions)
		require.Equal(t, tc.sends, sends(q, tc.n), "%+v", tc)
		require.EqualValues(t, tc.sends, q.SendCQ.reserved.Load(), "%+v", tc)
		require.Equal(t, tc.recvs, recvs(q, tc.n), "%+v", tc)
		require.EqualValues(t, tc.recvs, q.RecvCQ.reserved.Load(), "%+v", tc)
		require.EqualValues(t, tc.recvs, q.posted.Load(), "%+v", tc)
	}

	q := newEngine(8)
	require.Equal(t, 2, sends(q, 2))
	require.Zero(t, sends(q, depth-1), "the ring has room for one less")
	require.EqualValues(t, 2, q.SendCQ.reserved.Load())
	require.Equal(t, 2, recvs(q, 2))
	require.Zero(t, recvs(q, depth-1))
	require.EqualValues(t, 2, q.RecvCQ.reserved.Load())
}

// A request that succeeds unsignaled gives back the place that its completion would have had; a
// failure, and a receive buffer, completes whatever its flags, and a receive buffer is posted no
// more.
func TestWhatCompletes(t *testing.T) {
	for _, tc := range []struct {
		wr   wq.WQE
		st   wq.Status
		want bool
	}{
		{wq.WQE{ID: 1, Op: wq.OpLocalInvalidate}, wq.Success, false},
		{wq.WQE{ID: 2, Op: wq.OpLocalInvalidate, Flags: wq.FlagSignaled}, wq.Success, true},
		{wq.WQE{ID: 3, Op: wq.OpLocalInvalidate}, wq.Flushed, true},
		{wq.WQE{ID: 4, Op: wq.OpRead}, wq.Success, false},
		{wq.WQE{ID: 5, Op: wq.OpRecv}, wq.Success, true},
		{wq.WQE{ID: 6, Op: wq.OpRecv}, wq.Flushed, true},
	} {
		q := &Engine{Config: Config{Number: 9}}
		cq := newCQ(1)
		require.True(t, cq.Reserve(1))
		q.posted.Store(3)
		q.complete(cq, &tc.wr, 7, tc.st)
		var want []wq.CQE
		if tc.want {
			want = []wq.CQE{{ID: tc.wr.ID, QP: 9, Len: 7, Op: tc.wr.Op, Status: tc.st}}
		}
		require.Equal(t, want, drainCQ(nil, cq), "%+v", tc)
		require.Zero(t, cq.reserved.Load(), "%+v", tc)
		posted := 3
		if tc.wr.Op == wq.OpRecv {
			posted--
		}
		require.EqualValues(t, posted, q.posted.Load(), "%+v", tc)
	}
}
