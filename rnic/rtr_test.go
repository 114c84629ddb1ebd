package rnic

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// acceptRTR has s accept a raw peer-to-peer Initiator, which offers those RTR messages, wants CRC
// and no markers.
func (r *rig) acceptRTR(s *end, kinds mpa.RTRKinds) *peer {
	r.t.Helper()
	p := r.peerDials()
	party := mpa.Party{CRC: true, PeerToPeer: true, RTR: kinds}
	f := party.Request(mpa.RFC6581, nil)
	p.write(f.Append(nil))
	require.NoError(r.t, r.request().Accept(r.ctx, s.qp, s.conn))
	p.expectFrame(mpa.Reply)
	p.start(mpa.Mode{CRC: true})
	return p
}

// A Read Response that is not the one an RTR Read asked for is refused, as any is: the Read has
// no octet to place.
func TestReadResponseOfAnotherRead(t *testing.T) {
	with := func(change func(h *ddp.Header)) ddp.Header {
		h := rdmap.OpReadResponse.Header(1)
		h.Last, h.Version, h.STag = true, 1, qp.RTRSTag
		change(&h)
		return h
	}
	for _, tc := range []struct {
		name string
		h    ddp.Header
		body []byte
		code uint8
	}{
		{"STag", with(func(h *ddp.Header) { h.STag = 2 }), nil, ddp.CodeInvalidSTag},
		{"TO", with(func(h *ddp.Header) { h.TO = 1 }), nil, ddp.CodeBounds},
		{"octets", with(func(*ddp.Header) {}), []byte{1}, ddp.CodeBounds},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				c := r.newEnd(r.client,
					opts{ConnParam: ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: RTRRead, NoMarkers: true}})
				p := r.peerAccepts(c)
				p.expectFrame(mpa.Request)
				p.write(unhex(t, hexRep+"5002 0004 8001 4000"))
				p.start(mpa.Mode{CRC: true})
				require.Equal(t, byte(rdmap.OpReadRequest), p.nextFPDU().ULP&0x0f)
				p.inject(fpdu{tc.h, tc.body})
				p.expectTerminateFor(rdmap.NewCause(rdmap.LayerDDP, ddp.TypeTagged, tc.code))
				p.closeSend()
				c.awaitClosed()
			})
		})
	}
}

// heard is what the Adapter said after its start-up frame.
func heard(t *testing.T, c *forged, kind mpa.FrameKind) []byte {
	t.Helper()
	_, n, err := mpa.ParseFrame(c.in, kind, mpa.PrivateDataMax)
	require.NoError(t, err)
	require.Positive(t, n, "no start-up frame")
	return c.in[n:]
}

// Each RTR message, octet for octet as the Initiator sends it, before what was posted; the Read's
// is answered; the ULP of neither end sees it, and the Responder may then begin.
//
// req: 6581-1.1-1, 6581-5-1, 6581-9.2-8, 6581-9.1-4, P2P-2, 6581-9.3-2
func TestRTRMessages(t *testing.T) {
	send := func(msn int) string {
		return withCRC(t, fmt.Sprintf("0012 41 43 00000000 00000000 %08x 00000000", msn))
	}
	for _, tc := range []struct {
		kind             RTRKinds
		request, reply   string
		rtr, first, resp string
	}{
		{RTRWrite, "8000 8000", "8000 8000", withCRC(t, "000e c1 40 00000001 0000000000000000"),
			send(1), ""},
		{RTRRead, "8000 4000", "8001 4000",
			withCRC(t, "002e 41 41 00000000 00000001 00000001 00000000 00000001 0000000000000000 00000000 "+
				"00000001 0000000000000000"),
			send(1), withCRC(t, "000e c1 42 00000001 0000000000000000")},
		{RTRSend, "c000 0000", "c000 0000", send(1), send(2), ""},
	} {
		t.Run(tc.kind.String(), func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				request, reply := hexReq+"5002 0004"+tc.request, hexRep+"5002 0004"+tc.reply
				t.Run("initiator", func(t *testing.T) {
					r := newRig(t, r.kind, rigConfig{})
					c := r.newEnd(r.client,
						opts{ConnParam: ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: tc.kind, NoMarkers: true}})
					p := r.peerAccepts(c)
					p.play("< "+request, "> "+reply)
					c.expectInService()
					c.postRecv(c.recvAt(5, 0, 10))
					c.post(WorkRequest{Op: OpSend, ID: 6, Local: c.source.Slice(0, 0), Signaled: true})
					p.play("< "+request, "< "+tc.rtr, "< "+tc.first, "> "+tc.resp, "> "+send(1))
					got := c.await(2)
					require.ElementsMatch(t, []Completion{
						{ID: 6, QP: c.qp.Number(), Op: OpSend}, {ID: 5, QP: c.qp.Number(), Op: OpRecv},
					}, got, "the ULP's own and no other")
					require.Zero(t, r.stats(c.qp).WritesRecvd)
				})
				t.Run("responder", func(t *testing.T) {
					r := newRig(t, r.kind, rigConfig{})
					s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true, RTR: tc.kind}})
					p := r.peerDials()
					s.postRecv(s.recvAt(5, 0, 10))
					p.play("> " + request)
					require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
					s.post(WorkRequest{Op: OpSend, ID: 6, Local: s.source.Slice(0, 0), Signaled: true})
					p.play("< " + reply)
					if r.kind == turned {
						r.pass(time.Second)
						require.Len(t, p.octets(), 24, "the Responder waits")
					}
					p.play("< "+reply, "> "+tc.rtr, "< "+tc.resp, "< "+send(1))
					s.expectCompletions(Completion{ID: 6, Op: OpSend})
					p.write(unhex(t, tc.first))
					s.expectCompletions(Completion{ID: 5, Op: OpRecv})
					require.Zero(t, len(s.done))
				})
			})
		})
	}
}

// A Responder that takes all kinds takes each, and what is no RTR message at all.
//
// req: 6581-9.2-5, 6581-1.1-2
func TestResponderTakesAnyRTR(t *testing.T) {
	for _, kind := range []RTRKinds{RTRSend, RTRWrite, RTRRead, RTRSend | RTRRead, 0} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s, c := r.connect(opts{ConnParam: ConnParam{IRD: 4, ORD: 9}},
				opts{ConnParam: ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: kind, IRD: 3, ORD: 5}})
			require.Equal(t, Startup{Dialect: RFC6581, Version: 1, PeerToPeer: true, Enhanced: true, IRD: 3,
				ORD: 4, PeerIRD: 4, PeerORD: 3}, c.qp.Startup())
			require.Equal(t, Startup{Dialect: RFC6581, Version: 1, PeerToPeer: true, Enhanced: true, IRD: 4,
				ORD: 3, PeerIRD: 3, PeerORD: 5}, s.qp.Startup())
			r.converse(s, c)
			r.works(s, c)
			r.close(s, c)
		})
	}
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) { // a Write that carries something
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
		p := r.peerDials()
		p.write(unhex(t, hexReq+"5002 0004 c001 c001"))
		require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
		p.start(mpa.Mode{CRC: true})
		p.inject(writeFPDU(s.region.STag(), 0, "hello"))
		r.until("the Write", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
		s.postRecv(s.recvAt(1, 0, 10))
		p.inject(sendFPDU(1, "")) // no RTR any more
		s.expectCompletions(Completion{ID: 1, Op: OpRecv})
	})
}

// A Responder that offers a Read as RTR message has said that it serves one Read at a time, so it
// does: one that may not be read is refused for that, and an empty one is answered whenever it
// comes. A Read Response is taken only when it was asked for.
func TestReadsBesideTheRTR(t *testing.T) {
	read := func(msn uint32, size uint32) fpdu {
		rr := rdmap.ReadRequest{SinkSTag: 7, SrcSTag: 7, Size: size}
		return readFPDU(messageFPDU(rdmap.OpReadRequest, msn, "").Header, rr)
	}
	response := rdmap.OpReadResponse.Header(1)
	response.Last, response.Version, response.STag = true, 1, qp.RTRSTag
	for _, tc := range []struct {
		name string
		say  func(p *peer)
		want rdmap.Cause
	}{
		{"octets", func(p *peer) { p.inject(read(1, 8)) }, rdmap.CauseInvalidSTag},
		{"short", func(p *peer) {
			f := read(1, 0)
			p.inject(fpdu{f.Header, f.payload[:20]})
		}, rdmap.CauseOperation},
		{"later", func(p *peer) {
			p.inject(writeFPDU(0, 0, ""))
			p.inject(read(1, 0))
			require.Equal(p.d.t, uint8(0x42), p.nextFPDU().ULP)
			p.inject(read(2, 1))
		}, rdmap.CauseInvalidSTag},
		{"a response", func(p *peer) { p.inject(fpdu{response, nil}) }, rdmap.CauseOpcode},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
				p := r.peerDials()
				p.write(unhex(t, hexReq+"5002 0004 c001 c001"))
				require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
				p.expectFrame(mpa.Reply)
				p.start(mpa.Mode{CRC: true})
				tc.say(p)
				p.expectTerminateFor(tc.want)
				p.closeSend()
				s.awaitClosed()
			})
		})
	}
}
