package rnic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
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
	p.expectReply()
	return p
}

// heard is what the Adapter said after its start-up frame.
func heard(t *testing.T, c *forged, kind mpa.FrameKind) []byte {
	t.Helper()
	_, n, err := mpa.ParseFrame(c.in, kind, mpa.PrivateDataMax)
	require.NoError(t, err)
	require.Positive(t, n, "no start-up frame")
	return c.in[n:]
}

// A Responder that takes all kinds takes each, and what is no RTR message at all.
//
// req: 6581-9.2-5, 6581-1.1-2
func TestResponderTakesAnyRTR(t *testing.T) {
	for _, kind := range []RTRKinds{RTRSend, RTRWrite, RTRRead, RTRSend | RTRRead, 0} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s, c := r.connect(connOpts(ConnParam{IRD: 4, ORD: 9}),
				connOpts(ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: kind, IRD: 3, ORD: 5}))
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
		s := r.newEnd(r.server, unmarked)
		p := r.accepts(s, unhex(t, hexReq+"5002 0004 c001 c001"))
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
			r := newRig(t, turned, rigConfig{})
			s := r.newEnd(r.server, unmarked)
			p := r.accepts(s, unhex(t, hexReq+"5002 0004 c001 c001"))
			p.expectReply()
			tc.say(p)
			p.expectTerminateFor(tc.want)
			p.ends(s)
		})
	}
}

// A Responder that closes before the Initiator's Rtr frame or RTR message has come waits for the
// peer's end as any that closes: the frame that is owed neither shortens that, nor, when it comes
// after all, takes its bound away.
func TestCloseWhileRTRIsOwed(t *testing.T) {
	for _, late := range []bool{false, true} {
		r := newRig(t, turned, rigConfig{})
		s := r.newEnd(r.server, unmarked)
		p := r.accepts(s, unhex(t, hexReq+"5001 0000"))
		p.expectFrame(mpa.Reply)
		s.qp.Disconnect()
		p.untilEnded()
		if late {
			p.write(unhex(t, hexRtr+"4001 0000"))
		}
		r.pass(3 * connect.CloseTimeout)
		require.True(t, isDone(s.qp), "late: %v", late)
		require.ErrorIs(t, s.qp.Err(), ErrLinger)
	}
}

// A QueuePair that is closed between the Reply and the next segment, as another goroutine may do
// over a kernel socket, still owes its RTR message: it goes out, and the FIN after it.
func TestCloseAfterAnOwedRTR(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512, connsMax: 8})
	s := h.newEnd(
		connOpts(ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: RTRWrite, NoMarkers: true}))
	c := h.dialForged(s)
	c.stream = unhex(t, hexRep+"5002 0004 8000 8000")
	l := s.qp.end.Connection.Load()
	require.Equal(t, stack.Taken, arriveOne(l, 0, mem.NoBuf, c.stream))
	require.Equal(t, RTS, s.qp.State(), "%v", s.qp.Err())
	l.Shutdown()
	h.turns(2, time.Microsecond)
	require.Equal(t, unhex(t, withCRC(t, "000e c1 40 00000001 0000000000000000")),
		heard(t, c, mpa.Request))
	require.Equal(t, c.irs+1+tcp.Seq(len(c.in))+1, c.next, "a FIN after it")
	c.sendOctets(0, len(c.stream), tcp.FIN)
	h.turns(4, time.Microsecond)
	require.True(t, isDone(s.qp))
	require.NoError(t, s.qp.Err())
}

// A Send that comes first and is no RTR message is the ULP's, into the ULP's first buffer: one
// with octets, one that is not whole, one that does more than send.
func TestFirstSendIsNoRTR(t *testing.T) {
	long, event, part, rest := sendOf(1), sendOf(1), sendOf(1), sendOf(1)
	event.ULP = rdmap.Control(1, rdmap.OpSendSE)
	part.Last = false
	for _, tc := range []struct {
		name string
		say  []fpdu
		want Completion
	}{
		{"octets", []fpdu{{long, []byte("hello")}}, Completion{Len: 5}},
		{"event", []fpdu{{event, nil}}, Completion{Solicited: true}},
		{"more to come", []fpdu{{part, nil}, {rest, []byte("hello")}}, Completion{Len: 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{})
			s := r.newEnd(r.server, unmarked)
			s.postRecv(s.recvAt(7, 0, 16))
			p := r.acceptRTR(s, mpa.AllRTR)
			p.inject(tc.say...)
			tc.want.ID, tc.want.QP, tc.want.Op = 7, s.qp.Number(), OpRecv
			s.expectCompletions(tc.want)
			require.EqualValues(t, 1, r.stats(s.qp).MessagesRecvd)
		})
	}
}

// An empty Send with another number is no RTR message either: start-up's own buffer would take
// the place of the one that it lacks.
func TestFirstSendHasAnotherNumber(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s := r.newEnd(r.server, unmarked)
	s.postRecv(s.recvAt(7, 0, 16))
	p := r.acceptRTR(s, mpa.AllRTR)
	p.inject(sendFPDU(2, ""))
	p.expectTerminateFor(rdmap.NewCause(rdmap.LayerDDP, ddp.TypeUntagged, ddp.CodeNoBuffer))
	p.closeSend()
	s.expectCompletions(Completion{ID: 7, Op: OpRecv, Status: Flushed})
}

// What looks like an RTR Send and cannot be placed ends the stream while start-up's own buffer is
// posted. That one has no Completion; the ULP's were not touched by the error, and are flushed.
func TestHiddenBufferAtTheEnd(t *testing.T) {
	queue, offset := sendOf(1), sendOf(1)
	queue.QN = 1
	offset.MO = 4
	for name, h := range map[string]ddp.Header{"another queue": queue, "an offset": offset} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{})
			s := r.newEnd(r.server, unmarked)
			for i := range 3 {
				s.postRecv(s.recvAt(uint64(7+i), 16*i, 16))
			}
			p := r.acceptRTR(s, mpa.RTRSend)
			p.inject(fpdu{h, nil})
			p.untilEnded()
			p.ends(s)
			require.Error(t, s.qp.Err())
			s.poll()
			var want []Completion
			for i := range 3 {
				want = append(want, Completion{ID: uint64(7 + i), QP: s.qp.Number(), Op: OpRecv,
					Status: Flushed, Terminate: terminateOf(s.qp.Err())})
			}
			require.Equal(t, want, s.done)
			require.Zero(t, s.cq.promised())
		})
	}
}

// A Responder that may not speak yet has nothing after its Reply, whatever was posted: the
// Reply's last segment is pushed.
func TestReplyIsPushed(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512, connsMax: 8})
	s := h.newEnd(opts{})
	c, req := h.requestAtAClosedWindow()
	require.NoError(t,
		req.Accept(t.Context(), s.qp, ConnParam{NoMarkers: true, PrivateData: make([]byte, longPrivate)}))
	s.post(WorkRequest{Op: OpSend})
	h.turns(2, time.Microsecond)
	require.Empty(t, c.in)
	for range 10 {
		c.sendOctets(len(c.stream), len(c.stream), 0)
		h.turn(time.Microsecond)
	}
	require.Empty(t, heard(t, c, mpa.Reply))
	require.NotZero(t, c.flags&tcp.PSH, "PSH on the Reply")
	s.qp.Abort()
	h.turns(4, time.Microsecond)
	require.True(t, isDone(s.qp))
}

// A peer-to-peer Initiator that owes its Rtr frame, or RTR message, is not waited for without end.
//
// req: D01-6.1-35
func TestRTRTimeout(t *testing.T) {
	for name, frame := range map[string]string{"rtr": hexReq + "5001 0000",
		"rfc6581": hexReq + "5002 0004 8001 c001"} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{})
			s := r.newEnd(r.server, opts{})
			r.accepts(s, unhex(t, frame))
			r.fire(r.server)
			s.expectClosedBy(ErrStartupTimeout)
		})
	}
	// One that owes nothing may take its time, and so may one that has paid.
	r := newRig(t, turned, rigConfig{})
	for frame, paid := range map[string]string{
		"4001 0000": "", "5001 0000": hexRtr + "4001 0000",
		"5002 0004 8001 c001": withCRC(t, "000e c1 40 00000001 0000000000000000"),
	} {
		s := r.newEnd(r.server, unmarked)
		r.accepts(s, unhex(t, hexReq+frame)).write(unhex(t, paid))
		r.pass(time.Minute)
		require.Equal(t, RTS, s.qp.State(), frame)
	}
}

// Under DropBadCRC an RTR message that the path has cut is not waited for longer than for its
// octets: what is shorter than every FPDU must have been cut, and need not come again.
//
// req: D01-7-9, C02-9-7
func TestRTRMessageInPieces(t *testing.T) {
	const length = mpa.HeaderLen + ddp.TaggedLen + mpa.CRCLen // of an RTR Write, without markers
	for cut := 1; cut < length; cut++ {
		r := newRig(t, turned, rigConfig{})
		s := r.newEnd(r.server, connOpts(ConnParam{NoMarkers: true, DropBadCRC: true}))
		p := r.acceptRTR(s, mpa.RTRWrite)
		h := rdmap.OpWrite.Header(1)
		h.Last, h.Version, h.STag = true, 1, qp.RTRSTag
		b := p.frame(fpdu{h, nil})
		require.Len(t, b, length)
		l := s.qp.end.Connection.Load()
		require.Equal(t, stack.Kept, offer(l, l.StreamBase(), b[:cut]), cut)
		l.Edge(l.StreamBase() + uint64(cut))
		require.Equal(t, stack.Taken, offer(l, l.StreamBase()+uint64(cut), b[cut:]), cut)
		require.True(t, !s.qp.engine.Unopened(), cut)
		require.Zero(t, r.stats(s.qp).Receive.RefusedUnverified)
	}
}
