package connect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// acknowledged is inService of a connection in acknowledged mode.
func acknowledged(t *testing.T) (*Connection, *abortable) {
	_, e, tr := starting(t, Param{Acknowledged: true})
	mode := mpa.Mode{CRC: true}
	return initiated(e, tr, mpa.Agreement{Send: mode, Receive: mode, Version: 1}), tr
}

// The time for an answer, or for sending again, is over before that of a connection that closes,
// which goes on.
func TestRetryBeforeLinger(t *testing.T) {
	c, tr := acknowledged(t)
	const wait = time.Second
	c.engine.SetRetry(&qp.Retry{Unanswered: wait, Tries: -1})
	require.NoError(t, c.engine.PostSend(&wq.WQE{Op: wq.OpSend}, nil, nil))
	pullOne(c, make([]byte, 1460))
	require.Equal(t, tr.now+int64(wait), tr.timer)
	tr.progress++ // the peer's TCP has it
	c.Shutdown()
	linger := c.timerAt
	require.Greater(t, linger, tr.now+2*int64(wait))

	tr.now += int64(wait)
	c.Timer(tr.now)
	require.NoError(t, c.Err, "there is an answer")
	require.Equal(t, timerLinger, c.timer)
	require.Equal(t, tr.now+int64(wait), tr.timer)

	c.retryIn(wait, true) // as after NotReady
	tr.now += int64(wait)
	c.Timer(tr.now)
	require.NoError(t, c.Err)
	require.Zero(t, c.retryAt)
	require.Equal(t, timerLinger, c.timer)
	require.Equal(t, linger, tr.timer, "the other time goes on")

	tr.now = linger
	c.Timer(tr.now)
	require.ErrorIs(t, c.Err, ErrLinger)
}

// What is left, or posted late, is flushed where this end has closed the connection; where the peer
// has, its first request says so.
func TestWhoHasClosed(t *testing.T) {
	for name, tc := range map[string]struct {
		end  func(*Connection)
		want wq.Status
	}{
		"this end":             {func(c *Connection) { c.Shutdown(); c.PeerClosed() }, wq.Flushed},
		"the peer":             {(*Connection).PeerClosed, wq.RetryExceeded},
		"the peer, then this":  {func(c *Connection) { c.PeerClosed(); c.Shutdown() }, wq.RetryExceeded},
		"this end, by a reset": {func(c *Connection) { c.Fail(ErrClosed) }, wq.Flushed},
	} {
		c, tr := acknowledged(t)
		tc.end(c)
		engine := c.engine
		for id := range uint64(2) {
			require.NoError(t, engine.PostSend(&wq.WQE{ID: id, Op: wq.OpSend}, nil, nil))
		}
		c.over(nil)
		require.NotZero(t, tr.ends+tr.aborts)
		var got [4]wq.CQE
		n := engine.SendCQ.Poll(got[:])
		require.Equal(t, []wq.CQE{{ID: 0, Op: wq.OpSend, Status: tc.want},
			{ID: 1, Op: wq.OpSend, Status: wq.Flushed}}, got[:n], name)
	}
}
