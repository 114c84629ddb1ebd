package rnic

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
)

// It holds whenever it was called: before there is a connection, beside Accept, and right after
// it; and as an option of Accept.
func TestSendFirstAtAnyTime(t *testing.T) {
	first := func(s *end) { require.NoError(s.d.t, s.qp.SendFirst()) }
	for name, at := range map[string]func(r *rig, s *end, accept func()){
		"idle":   func(_ *rig, s *end, accept func()) { first(s); accept() },
		"after":  func(_ *rig, s *end, accept func()) { accept(); first(s) },
		"option": func(_ *rig, s *end, accept func()) { s.conn.Quirks.SendFirst = true; accept() },
		"beside": func(r *rig, s *end, accept func()) {
			if r.kind == turned {
				accept()
				first(s)
				return
			}
			var calls sync.WaitGroup
			calls.Go(func() { first(s) })
			accept()
			calls.Wait()
		},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
				const conns = 10 // all pause at the same time
				var ends [conns]*end
				var peers [conns]*peer
				for i := range conns {
					s := r.newEnd(r.server, opts{})
					p := r.peerDials()
					p.write(request(mpa.Frame{Rev: 1, CRC: true}))
					req := r.request()
					at(r, s, func() { require.NoError(t, req.Accept(r.ctx, s.qp, s.conn)) })
					s.post(s.send(5, 0, 10))
					ends[i], peers[i] = s, p
				}
				for i, s := range ends {
					p := peers[i]
					p.expectReply()
					require.Equal(t, s.source.Bytes()[:10], p.nextFPDU().payload)
					s.expectCompletions(Completion{ID: 5, Len: 10, Op: OpSend})
					s.qp.Abort()
					s.awaitClosed()
					require.ErrorIs(t, s.qp.SendFirst(), ErrState)
				}
			})
		})
	}
}

// An end of ours as Initiator takes what comes right after the Reply, and answers it.
func TestSpokenToFirst(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
		require.NoError(t, s.qp.SendFirst())
		require.NoError(t, c.qp.SendFirst(), "nothing changes at an Initiator")
		c.postRecv(c.recvAt(1, 0, 100))
		require.NoError(t, r.dial(c, nil).Accept(r.ctx, s.qp, s.conn))
		s.post(s.sendQuietly(0, 100))
		c.expectCompletions(Completion{ID: 1, Len: 100, Op: OpRecv})
		require.Equal(t, s.source.Bytes()[:100], c.inbox.Bytes()[:100])
		r.exchange(s, c)
	})
}

// Not sooner than a pause after the Reply: an Initiator that reads both together, as Linux siw,
// would end the connection. One that is known to be ready is spoken to at once, and so is one
// that has spoken meanwhile.
func TestSendFirstPauses(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	for name, tc := range map[string]struct {
		speak func(s *end, p *peer)
		least time.Duration
	}{
		"SendFirst": {func(s *end, _ *peer) { require.NoError(t, s.qp.SendFirst()) }, SendFirstPause},
		"PeerReady": {func(s *end, _ *peer) { require.NoError(t, s.qp.PeerReady()) }, 0},
		"PeerReady in the pause": {func(s *end, _ *peer) {
			require.NoError(t, s.qp.SendFirst())
			require.NoError(t, s.qp.PeerReady())
			require.NoError(t, s.qp.SendFirst(), "takes nothing back")
		}, 0},
		"spoken to in the pause": {func(s *end, p *peer) {
			require.NoError(t, s.qp.SendFirst())
			p.inject(writeFPDU(s.region.STag(), 0, "first"))
		}, 0},
		"late": {func(s *end, _ *peer) {
			r.pass(2 * SendFirstPause)
			require.NoError(t, s.qp.SendFirst())
		}, 2 * SendFirstPause},
	} {
		s := r.newEnd(r.server, opts{})
		p := r.peerDials()
		p.write(request(mpa.Frame{Rev: 1, CRC: true}))
		req := r.request()
		begin := r.time
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		s.post(s.sendQuietly(0, 10))
		p.expectReply()
		tc.speak(s, p)
		due := max(r.time, begin+int64(tc.least))
		require.Equal(t, s.source.Bytes()[:10], p.nextFPDU().payload, name)
		require.GreaterOrEqual(t, r.time, due, name)
		require.Less(t, r.time, due+int64(100*time.Millisecond), name)
	}
}

// A connection that is closed within the pause says what was posted first.
func TestSendFirstAndClose(t *testing.T) {
	_, s, p := served(t, opts{})
	require.NoError(t, s.qp.SendFirst())
	s.post(s.sendQuietly(0, 10))
	s.qp.Disconnect()
	require.Equal(t, s.source.Bytes()[:10], p.nextFPDU().payload)
	p.expectFIN()
	p.closeSend()
	s.expectClosed()
}

// The pause after a Reply that has to be sent again begins when it has come.
func TestSendFirstAwaitsTheReplysAcknowledgment(t *testing.T) {
	r := newRig(t, turned, rigConfig{faults: true})
	s := r.newEnd(r.server, opts{})
	p := r.peerDials()
	p.write(request(mpa.Frame{Rev: 1, CRC: true}))
	req := r.request()
	r.hosts[0].faults(fault.Faults{}, fault.Faults{Drop: 1})
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	s.post(s.sendQuietly(0, 10))
	require.NoError(t, s.qp.SendFirst())
	r.pass(2 * SendFirstPause)
	require.Zero(t, r.stats(s.qp).FPDUsSent)
	r.hosts[0].faults(fault.Faults{}, fault.Faults{})
	p.expectReply()
	came := r.time
	require.Equal(t, s.source.Bytes()[:10], p.nextFPDU().payload)
	require.GreaterOrEqual(t, time.Duration(r.time-came), SendFirstPause/10)
}

// Where an RTR message is to come the Responder waits for that, whatever it was told.
func TestSendFirstAwaitsRTR(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s := r.newEnd(r.server, unmarked)
	p := r.acceptRTR(s, mpa.AllRTR)
	s.post(s.sendQuietly(0, 10))
	require.NoError(t, s.qp.SendFirst())
	require.Zero(t, r.stats(s.qp).FPDUsSent)
	p.inject(writeFPDU(0, 0, ""))
	p.expectFPDU(sendFPDU(1, s.source.Bytes()[:10]))
}
