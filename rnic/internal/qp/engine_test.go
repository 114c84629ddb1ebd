package qp

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
)

// What is posted the moment that an engine ends is flushed after what was posted before.
func TestFlushedInOrderAtTheEnd(t *testing.T) {
	const before = 1 << 12
	late := make(chan error, 1)
	var q *Engine
	var ids []uint64
	cq := new(CQ)
	cq.InitSink(func(c wq.CQE) {
		if ids = append(ids, c.ID); len(ids) == 1 {
			require.Equal(t, wq.Closed, q.State())
			go func() {
				err := q.PostSend(&wq.WQE{ID: before, Op: wq.OpSend}, nil, nil)
				q.Flush()
				late <- err
			}()
		}
		runtime.Gosched()
	})
	q = start(t, newPool(t, 8, 2048), mpa.Mode{}, func(c *Config, _ *StartOptions) {
		c.SendCQ, c.SendDepth = cq, before
	})
	for id := range uint64(before) { // as if they had been sent after a Read that is not answered
		q.requester.sent.push(sentRequest{id: id, op: wq.OpWrite, signaled: true,
			flushStatus: wq.Flushed})
	}
	q.Finish()
	require.NoError(t, <-late)
	require.Len(t, ids, before+1)
	for i, id := range ids {
		require.EqualValues(t, i, id)
	}
}

// The control region is no memory that a request may invalidate.
func TestControlRegionIsNotInvalidated(t *testing.T) {
	q := start(t, newPool(t, 8, 2048), mpa.Mode{}, func(*Config, *StartOptions) {})
	own := q.control.region.STag()
	require.NoError(t, q.PostSend(
		&wq.WQE{ID: 1, Op: wq.OpLocalInvalidate, RemoteSTag: own}, nil, nil))
	n, _ := q.Pull([][]byte{make([]byte, 1460)}, false)
	require.Zero(t, n)
	require.Equal(t, []wq.CQE{{ID: 1, Op: wq.OpLocalInvalidate, Status: wq.LocalOperation}},
		drainCQ(nil, q.SendCQ))
	require.True(t, q.control.region.Valid())
}
