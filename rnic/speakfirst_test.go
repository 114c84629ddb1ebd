package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
)

// A Responder that was told to speaks before the Initiator has said anything; one that was not stays silent, which
// TestResponderWaitsForFirstFPDU shows.
func TestSpeakFirst(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, QPOptions{})
		require.ErrorIs(t, s.qp.SpeakFirst(), ErrState)
		p, _ := r.startRaw(s, false)
		require.NoError(t, s.qp.PostSend(WorkRequest{ID: 5, Local: s.source.Slice(0, 10), Signaled: true}))
		require.NoError(t, s.qp.SpeakFirst())
		u := p.next()
		require.Equal(t, s.source.Bytes()[:10], u[ddp.UntaggedLen:])
		require.Equal(t, []Completion{{ID: 5, QP: s.qp.Number(), Len: 10, Op: OpSend}}, r.await(s, 1))
		require.NoError(t, s.qp.SpeakFirst(), "once more changes nothing")
		p.write(p.fpdu(writeTo(s.region.STag(), 0), []byte("late")))
		r.until("the Initiator's octets in memory", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
	})
}

// Where an RTR message is to come the Responder waits for that, whatever it was told.
func TestSpeakFirstAwaitsRTR(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, QPOptions{NoMarkers: true})
		p := r.acceptRTR(s, mpa.AllRTR)
		require.NoError(t, s.qp.PostSend(WorkRequest{Local: s.source.Slice(0, 10)}))
		require.NoError(t, s.qp.SpeakFirst())
		require.Zero(t, r.stats(s.qp).FPDUsSent)
		p.write(p.fpdu(writeTo(0, 0), nil))
		u := p.next()
		require.Equal(t, s.source.Bytes()[:10], u[ddp.UntaggedLen:])
	})
}
