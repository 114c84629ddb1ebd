package qp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// Requests are queued together from two on, all of them or none: as many as the ring has, while
// there is room for their completions. What was refused has promised no completion.
func TestPostTogether(t *testing.T) {
	const depth = 4
	newEngine := func(completions int) *Engine {
		return &Engine{
			Config: Config{SendCQ: newCQ(completions), RecvCQ: newCQ(completions), SendDepth: depth, RecvDepth: depth},
			SQ:     mem.NewMPSC(make([]mem.MPSCSlot[WQE], depth)), RQ: mem.NewMPSC(make([]mem.MPSCSlot[WQE], depth)),
		}
	}
	sends := func(q *Engine, n int) int { return q.PostSends(make([]WQE, n)) }
	recvs := func(q *Engine, n int) int { return q.PostRecvs(make([]WQE, n)) }
	for _, tc := range []struct {
		completions, n, sends, recvs int
	}{
		{8, 1, 0, 0}, {8, 2, 2, 2}, {8, depth, depth, depth},
		{8, depth + 1, depth, 0}, // of requests the ring's number is tried, the rest come next
		{3, depth, 0, 0}, {depth, depth, depth, depth},
	} {
		q := newEngine(tc.completions)
		require.Equal(t, tc.sends, sends(q, tc.n), "%+v", tc)
		require.EqualValues(t, tc.sends, q.SendCQ.Promised(), "%+v", tc)
		require.Equal(t, tc.recvs, recvs(q, tc.n), "%+v", tc)
		require.EqualValues(t, tc.recvs, q.RecvCQ.Promised(), "%+v", tc)
		require.EqualValues(t, tc.recvs, q.posted.Load(), "%+v", tc)
	}

	q := newEngine(8)
	require.Equal(t, 2, sends(q, 2))
	require.Zero(t, sends(q, depth-1), "the ring has room for one less")
	require.EqualValues(t, 2, q.SendCQ.Promised())
	require.Equal(t, 2, recvs(q, 2))
	require.Zero(t, recvs(q, depth-1))
	require.EqualValues(t, 2, q.RecvCQ.Promised())
}
