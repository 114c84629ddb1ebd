package rnic

import (
	"sync"
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

// It holds whenever it was called: before there is a connection, beside Accept, and right behind it.
func TestSpeakFirstAtAnyTime(t *testing.T) {
	for name, at := range map[string]func(r *rig, s *end, accept func()){
		"idle":   func(r *rig, s *end, accept func()) { require.NoError(r.t, s.qp.SpeakFirst()); accept() },
		"behind": func(r *rig, s *end, accept func()) { accept(); require.NoError(r.t, s.qp.SpeakFirst()) },
		"beside": func(r *rig, s *end, accept func()) {
			if r.kind == turned {
				accept()
				require.NoError(r.t, s.qp.SpeakFirst())
				return
			}
			var calls sync.WaitGroup
			calls.Go(func() { require.NoError(r.t, s.qp.SpeakFirst()) })
			accept()
			calls.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
				for range 10 {
					s := r.newEnd(r.server, QPOptions{})
					p := &rawInitiator{rawPeer: r.dialRaw(), r: r}
					p.write(request(mpa.Frame{Rev: 1, CRC: true}))
					req := r.request()
					at(r, s, func() { require.NoError(t, req.Accept(r.ctx, s.qp, nil)) })
					require.NoError(t, s.qp.PostSend(WorkRequest{ID: 5, Local: s.source.Slice(0, 10), Signaled: true}))
					f := p.reply(mpa.Reply)
					p.tx.Init(mpa.Mode{Markers: f.Markers, CRC: true})
					require.Equal(t, s.source.Bytes()[:10], p.next()[ddp.UntaggedLen:])
					require.Equal(t, []Completion{{ID: 5, QP: s.qp.Number(), Len: 10, Op: OpSend}}, r.await(s, 1))
					s.qp.Abort()
					r.untilDone(s.qp)
					require.ErrorIs(t, s.qp.SpeakFirst(), ErrState)
				}
			})
		})
	}
}

// An end of ours as Initiator takes what comes right behind the Reply, and answers it.
func TestSpokenToFirst(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.newEnd(r.server, QPOptions{}), r.newEnd(r.client, QPOptions{})
		require.NoError(t, s.qp.SpeakFirst())
		require.NoError(t, c.qp.SpeakFirst(), "nothing changes at an Initiator")
		require.NoError(t, c.qp.PostRecv(c.recvAt(1, 0, 100)))
		require.NoError(t, r.dial(c, nil).Accept(r.ctx, s.qp, nil))
		require.NoError(t, s.qp.PostSend(WorkRequest{Local: s.source.Slice(0, 100)}))
		require.Equal(t, []Completion{{ID: 1, QP: c.qp.Number(), Len: 100, Op: OpRecv}}, r.await(c, 1))
		require.Equal(t, s.source.Bytes()[:100], c.inbox.Bytes()[:100])
		r.exchange(s, c)
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
