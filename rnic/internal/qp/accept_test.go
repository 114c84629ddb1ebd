package qp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rdmap"
)

// A Reliability Message about what was not sent, or was accepted before, changes nothing and cannot
// be.
func TestReliabilityThatCannotBe(t *testing.T) {
	not := func(count, sends uint32) rdmap.Reliability {
		return rdmap.Reliability{Kind: rdmap.NotReady, Timer: 1, Count: count, SendMSN: sends, ReadMSN: 1}
	}
	ack := func(count uint32) rdmap.Reliability {
		return rdmap.Reliability{Kind: rdmap.Acknowledge, Count: count}
	}
	for name, m := range map[string]rdmap.Reliability{
		"acknowledges what was not sent":  ack(4),
		"goes back":                       ack(0),
		"goes back by half":               ack(1 << 31),
		"not ready for what was not sent": not(3, 4),
		"not ready for what it accepted":  not(0, 1),
		"another MSN":                     not(1, 3),
	} {
		p := newPair(t, nil)
		a := p.ends[0]
		for id := range uint64(3) {
			a.post(id, wq.OpSend, 0, 10)
		}
		a.pull(4)
		first := ack(1)
		require.True(t, a.heardOf(&first))
		require.False(t, a.heardOf(&m), name)
		require.EqualValues(t, 1, a.ack.acked, name)
	}
}

// Resume without NotReady ends the stream; so does any Reliability Message without the mode.
func TestReliabilityUnasked(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := startReceiver(t, 8, func(_ *Config, o *StartOptions) { o.Acknowledged = on })
		m := rdmap.Reliability{Kind: rdmap.Resume}
		body := make([]byte, rdmap.ReliabilityLen)
		m.Put(body)
		r.untagged(rdmap.OpReliability, rdmap.QNReliability, 1, body)
		r.arrive(0, len(r.stream))
		fx, err := r.TakeEffects()
		require.Equal(t, EffectLeave, fx)
		require.Error(t, err)
	}
}

// Send with Immediate ends the stream without the mode, as any opcode that is not assigned.
func TestSendWithImmediateWithoutTheMode(t *testing.T) {
	for _, on := range []bool{true, false} {
		r := startReceiver(t, 8, func(_ *Config, o *StartOptions) { o.Acknowledged = on })
		require.NoError(t, r.PostRecv(&wq.WQE{ID: 7, Op: wq.OpRecv}, nil))
		r.untagged(rdmap.OpSendImm, rdmap.QNSend, 1, nil)
		r.arrive(0, len(r.stream))
		fx, err := r.TakeEffects()
		if on {
			require.NoError(t, err)
			require.Equal(t, []wq.CQE{{ID: 7, Op: wq.OpRecv, WithImmediate: true, BesideSend: true}},
				drainCQ(nil, r.RecvCQ))
			continue
		}
		require.Equal(t, EffectLeave, fx)
		require.Equal(t, rdmap.CauseOpcode, terminateFor(err).Cause)
	}
}

// A peer that is never ready costs Tries repetitions, or as many as it says.
func TestNeverReady(t *testing.T) {
	neverReady(t, Retry{Tries: 2}, Retry{})
	neverReady(t, Retry{Tries: -1}, Retry{PeerTries: 3})
	neverReady(t, Retry{Tries: 7}, Retry{PeerTries: 3})
	p := newPair(t, nil)
	p.ends[0].SetRetry(Retry{})
	p.ends[1].SetRetry(Retry{PeerTries: rdmap.TriesForEver + 1})
	p.ends[0].post(1, wq.OpSend, 0, 10)
	for range 20 {
		p.settleAll()
	}
	require.NoError(t, p.ends[0].err)
}

func neverReady(t *testing.T, own, peers Retry) {
	t.Helper()
	p := newPair(t, nil)
	a := p.ends[0]
	a.SetRetry(own)
	p.ends[1].SetRetry(peers)
	a.post(1, wq.OpSend, 0, 10)
	a.post(2, wq.OpSend, 0, 10)
	for range 3 {
		require.NoError(t, a.err)
		p.settleAll()
	}
	require.ErrorIs(t, a.err, ErrReceiverNotReady)
	a.Finish()
	require.Equal(t, []wq.CQE{{ID: 1, Op: wq.OpSend, Status: wq.RNRRetryExceeded},
		{ID: 2, Op: wq.OpSend, Status: wq.Flushed}}, drainCQ(nil, a.SendCQ))
}
