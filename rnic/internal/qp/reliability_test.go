package qp

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mpa"
)

// newRTRPair is a pair whose second end is the Responder, after an RTR message of this kind.
func newRTRPair(t *testing.T, kind mpa.RTRKinds) *pair {
	responder := false
	return newPair(t, func(_ *Config, o *StartOptions) {
		o.Terms.RTR, o.Responder, o.Opened = kind, responder, !responder
		responder = true
	})
}

// NotReady may come before the answer to the RTR message, which nothing takes back.
func TestNotReadyAfterRTR(t *testing.T) {
	for _, kind := range []mpa.RTRKinds{mpa.RTRRead, mpa.RTRWrite, mpa.RTRSend} {
		p := newRTRPair(t, kind)
		a, b := p.ends[0], p.ends[1]
		a.post(1, wq.OpSend, 0, 10)
		a.post(2, wq.OpRead, 100, 8)
		p.settleAll()
		require.NoError(t, a.err)
		require.NotZero(t, a.effects&EffectNotReady)
		b.postRecv(7, 200, 100)
		p.settleAll()
		require.NoError(t, a.err)
		require.NoError(t, b.err)
		require.Equal(t, []wq.CQE{sent(1, wq.OpSend, 10), sent(2, wq.OpRead, 8)},
			drainCQ(nil, a.SendCQ))
		require.True(t, a.Idle())
	}
}

// The masks of an atomic are kept with it, in a queue pair whose requests have one range each.
func TestMasksAreSentAgain(t *testing.T) {
	p := newPair(t, func(c *Config, _ *StartOptions) { c.SGEMax, c.InlineMax = 1, 0 })
	a, b := p.ends[0], p.ends[1]
	b.m.Bytes()[0] = 0x12
	a.post(1, wq.OpSend, 0, 10)
	w := wq.WQE{ID: 2, Op: wq.OpCompareSwap, Flags: wq.FlagSignaled, More: 1,
		RemoteSTag: b.m.STag(), RemoteOffset: b.m.Base(), Operands: [3]uint64{2, 0xff}}
	require.NoError(t, a.PostSend(&w, []wq.SGE{wq.Masks(0x0f, 0xf0)}, nil))
	p.settleAll()
	require.EqualValues(t, 0x12, b.m.Bytes()[0], "not executed")
	b.postRecv(7, 200, 100)
	p.settleAll()
	got := drainCQ(nil, a.SendCQ)
	require.Len(t, got, 2)
	require.EqualValues(t, 0x12, got[1].Original)
	require.EqualValues(t, 0xf2, b.m.Bytes()[0])
}

// An end that has accepted messages is not idle until it has said so: nothing can be said after its
// half is closed.
func TestAcceptedIsNotIdle(t *testing.T) {
	p := newPair(t, nil)
	a, b := p.ends[0], p.ends[1]
	a.post(1, wq.OpWrite, 0, 10)
	b.post(2, wq.OpWrite, 100, 10)
	a.pull(4)
	b.pull(4)
	a.arrive(4)
	a.SendAcknowledgements()
	a.pull(4)
	b.arrive(4) // a's Write, and that it has accepted b's
	require.Equal(t, []wq.CQE{sent(2, wq.OpWrite, 10)}, drainCQ(nil, b.SendCQ))
	require.False(t, b.Idle())
	require.NotZero(t, b.effects&EffectSendLater)
	b.SendAcknowledgements()
	b.pull(4)
	require.True(t, b.Idle())
}

// Counters and places wrap: what is before them and after them is told apart as elsewhere.
func TestReliabilityWraps(t *testing.T) {
	for before := range uint32(4) {
		p := newPair(t, nil)
		a, b := p.ends[0], p.ends[1]
		for _, h := range p.ends {
			k := &h.ack
			k.next, k.cut, k.acked, k.accepted, k.told = -before, -before, -before, -before, -before
			k.cursor, h.requester.sent.head, k.entry = -before, -before, -before
			k.inMSN, k.outMSN = -before, -before
		}
		for i := range uint64(3) {
			a.post(2*i, wq.OpSend, 0, 10)
			a.post(2*i+1, wq.OpRead, 100, 8)
			p.settleAll() // not ready
			b.postRecv(i, 200, 100)
			p.settleAll()
			require.NoError(t, a.err)
			require.NoError(t, b.err)
			require.Equal(t, []wq.CQE{sent(2*i, wq.OpSend, 10), sent(2*i+1, wq.OpRead, 8)},
				drainCQ(nil, a.SendCQ))
			require.Len(t, drainCQ(nil, b.RecvCQ), 1)
			require.EqualValues(t, 2*(i+1)-uint64(before), uint64(int64(int32(a.ack.acked))))
		}
		require.EqualValues(t, 3, a.Stats().NotReadyRecvd)
	}
}

// A peer that cannot place a Response has refused no request.
func TestRefusedResponse(t *testing.T) {
	p := newPair(t, nil)
	a, b := p.ends[0], p.ends[1]
	a.post(1, wq.OpSend, 0, 10)
	b.post(2, wq.OpRead, 100, 8)
	b.pull(4)
	a.arrive(4)
	b.m.Deregister()
	a.pull(4)
	b.arrive(4)
	b.pull(4)
	a.arrive(4)
	require.Error(t, a.err)
	a.Finish()
	require.Equal(t, []wq.CQE{{ID: 1, Op: wq.OpSend, Status: wq.Flushed,
		Terminate: wq.TerminatePeer | 1<<12 | 1<<8}}, drainCQ(nil, a.SendCQ))
}

// The time to send again may be over after a Terminate, which is the last that an end sends.
func TestNothingAfterTerminate(t *testing.T) {
	for _, end := range []func(a, b *half){
		func(a, _ *half) { a.Terminate(errReliability) },
		func(a, b *half) { b.Terminate(errReliability); b.pull(4); a.arrive(4) },
	} {
		p := newPair(t, nil)
		a, b := p.ends[0], p.ends[1]
		a.post(1, wq.OpSend, 0, 10)
		a.pull(4)
		b.arrive(4)
		b.pull(4)
		a.arrive(4)
		require.NotZero(t, a.effects&EffectNotReady)
		end(a, b)
		a.pull(4)
		a.Resume()
		require.Zero(t, a.pull(4))
		require.True(t, a.Idle())
	}
}

// Octets of a Response are answers, and no more of them than were asked for: a peer may send them
// over and over.
func TestAnsweredByAResponse(t *testing.T) {
	a := newPair(t, nil).ends[0]
	a.post(1, wq.OpRead, 0, 100)
	a.pull(1)
	before := a.Answered()
	for responded, want := range map[uint64]uint64{0: 0, 60: 60, 100: 100, 1000: 100} {
		a.ack.responded = responded
		require.Equal(t, want, a.Answered()-before)
	}
}
