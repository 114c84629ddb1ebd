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
		i := must(a.Info(ctx))(t)
		return i
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

// Info says what tcp_info says, while it happens.
func TestInfoOfRecovery(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil)
	i := v.info(a)
	require.Equal(t, tcp.Established, i.TCP.State)
	require.Equal(t, tcp.RecoveryOpen, i.TCP.Recovery)
	require.Equal(t, 1460, i.TCP.PeerMSS)
	require.Equal(t, emss, i.EMSS)
	require.Equal(t, i.TCP.Cwnd, 10*emss)
	require.Equal(t, "cubic", i.Congestion)
	require.NoError(t, i.SoftError)

	var first tcp.Seq // the segment that is lost, however often it is sent
	v.hosts[0].nic.lose = func(f sentFrame) bool {
		if first == 0 && f.size > 0 {
			first = f.seg.Seq
		}
		return f.seg.Seq == first
	}
	v.write(a, string(make([]byte, 3*emss)))
	v.pass(0)
	i = v.info(a)
	require.Equal(t, tcp.RecoveryFast, i.TCP.Recovery, "no time passed: the link takes none")
	require.Equal(t, 1, i.TCP.Resent)
	require.Equal(t, []int{3 * emss, 2 * emss, 2 * emss},
		[]int{i.TCP.Flight, i.TCP.Sacked, int(i.TCP.Delivered)})
	require.Equal(t, 2*emss, v.info(b).TCP.Held)
	require.Zero(t, v.info(b).Unread)
	v.hosts[0].nic.lose = nil
	v.pass(10 * time.Second)
	i = v.info(a)
	require.Equal(t, tcp.RecoveryOpen, i.TCP.Recovery)
	require.Zero(t, i.TCP.Resent)
	require.Equal(t, uint64(2), i.TCP.Retransmits)
	require.Less(t, i.TCP.Ssthresh, 10*emss)
	require.Equal(t, []uint64{3 * emss, 0, 0}, []uint64{i.Acked, i.Unacked, i.Unsent})
	require.Equal(t, uint64(3*emss), v.info(b).Unread)
	n := must(b.TryRead(make([]byte, 1000)))(t)
	require.Equal(t, 1000, n)
	require.Equal(t, uint64(3*emss-1000), v.info(b).Unread)

	v.hosts[0].nic.lose = func(sentFrame) bool { return true }
	v.write(a, string(make([]byte, 20*emss)))
	v.pass(5 * time.Second)
	i = v.info(a)
	require.Equal(t, tcp.RecoveryLoss, i.TCP.Recovery)
	require.ErrorIs(t, i.SoftError, stack.ErrStalled)
	require.Positive(t, i.TCP.Backoff)
	require.Equal(t, uint64(20*emss), i.Unacked)
	require.Greater(t, i.Unsent, uint64(5*emss))
	require.Equal(t, uint64(15*emss), i.Unsent, "five segments left")
	v.hosts[0].nic.lose = nil
	require.NoError(t, a.CloseWrite())
	v.until("FIN-WAIT-2", func() bool { return v.info(a).TCP.State == tcp.FinWait2 })
	require.Equal(t, tcp.CloseWait, v.info(b).TCP.State)
	require.NoError(t, abort(a))
	v.until("ended", dead(a))
	require.Equal(t, tcp.Closed, v.info(a).TCP.State)
	require.Equal(t, uint64(23*emss), v.info(a).Acked)
}
