package stream

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

func TestInfo(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	must(a.Write(make([]byte, 5000)))(t)
	must(io.ReadFull(b, make([]byte, 5000)))(t)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	info := func() Info {
		return must(a.Info(ctx))(t)
	}
	l.until("all is acknowledged", func() bool { return info().Acked == 5000 })
	canceled, stop := context.WithCancel(ctx)
	stop()
	require.Error(t, errOf(a.Info(canceled)))
	alive := info()
	require.Zero(t, alive.Unacked)
	require.Greater(t, alive.EMSS, 1000)
	require.GreaterOrEqual(t, alive.TCP.BytesOut, uint64(5000))
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	l.until("over", func() bool { return a.u.state.Load()&stateDead != 0 })
	require.Equal(t, uint64(5000), info().Acked, "after the end")
}

// Info says what tcp_info says, while it happens: what is in flight when nothing arrives any more.
func TestInfoOfAStall(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil)
	i := v.info(a)
	require.Equal(t, tcp.Established, i.TCP.State)
	require.Equal(t, tcp.RecoveryOpen, i.TCP.Recovery)
	require.Equal(t, 1460, i.TCP.PeerMSS)
	require.Equal(t, emss, i.EMSS)
	require.Equal(t, i.TCP.Cwnd, 10*emss)
	require.Equal(t, "cubic", i.Congestion)
	require.NoError(t, i.SoftError)

	v.hosts[0].nic.lose = func(sentFrame) bool { return true }
	v.write(a, string(make([]byte, 20*emss)))
	v.pass(5 * time.Second)
	i = v.info(a)
	require.Equal(t, tcp.RecoveryLoss, i.TCP.Recovery)
	require.ErrorIs(t, i.SoftError, stack.ErrStalled)
	require.Positive(t, i.TCP.Backoff)
	require.Equal(t, uint64(20*emss), i.Unacked)
	require.Equal(t, uint64(9*emss), i.Unsent, "the initial window left, and a probe")
	v.hosts[0].nic.lose = nil
	require.NoError(t, a.CloseWrite())
	v.until("FIN-WAIT-2", func() bool { return v.info(a).TCP.State == tcp.FinWait2 })
	require.Equal(t, tcp.CloseWait, v.info(b).TCP.State)
	require.NoError(t, abort(a))
	v.until("ended", dead(a))
	require.Equal(t, tcp.Closed, v.info(a).TCP.State)
	require.Equal(t, uint64(20*emss), v.info(a).Acked)
}
