package connect

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// The time for an answer, or for sending again, is over before that of a connection that closes,
// which goes on.
func TestRetryBeforeLinger(t *testing.T) {
	_, e, tr := starting(t, Param{Acknowledged: true})
	mode := mpa.Mode{CRC: true}
	c := initiated(e, tr, mpa.Agreement{Send: mode, Receive: mode, Version: 1})
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
