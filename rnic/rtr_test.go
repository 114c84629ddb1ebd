package rnic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// acceptRTR has s accept a raw peer-to-peer Initiator, which offers those RTR messages, wants CRC and no markers.
func (r *rig) acceptRTR(s *end, kinds mpa.RTRKinds) *rawInitiator {
	r.t.Helper()
	p := &rawInitiator{rawPeer: r.dialRaw(), r: r}
	party := mpa.Party{CRC: true, PeerToPeer: true, RTR: kinds}
	f := party.Request(RFC6581, nil)
	p.write(f.Append(nil))
	require.NoError(r.t, r.request().Accept(r.ctx, s.qp, nil))
	p.reply(mpa.Reply)
	p.tx.Init(mpa.Mode{CRC: true})
	return p
}

// An RTR message that is a Send takes none of the receive buffers: as many Sends may follow in its segment as were posted.
func TestSendsRightBehindTheRTRSend(t *testing.T) {
	for _, depth := range []int{1, 3, 4} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, QPOptions{RecvDepth: depth, NoMarkers: true})
			for i := range depth {
				require.NoError(t, s.qp.PostRecv(s.recvAt(uint64(i+1), 16*i, 16)))
			}
			p := r.acceptRTR(s, mpa.RTRSend)
			b := p.fpdu(sendOf(1), nil)
			for i := range depth {
				b = append(b, p.fpdu(sendOf(uint32(i+2)), []byte("message"))...)
			}
			p.write(b)
			for i, c := range r.await(s, depth) {
				require.Equal(t, Completion{ID: uint64(i + 1), QP: s.qp.Number(), Op: OpRecv, Len: 7}, c, "%v", s.qp.Err())
			}
		})
	}
}

// A Send that comes first and is no RTR message is the ULP's, into the ULP's first buffer: one with octets, one that is not whole,
// one that does more than send.
func TestFirstSendIsNoRTR(t *testing.T) {
	long, event, part, rest := sendOf(1), sendOf(1), sendOf(1), sendOf(1)
	event.ULP = rdmap.Control(1, rdmap.OpSendSE)
	part.Last = false
	for _, tc := range []struct {
		name string
		say  func(p *rawInitiator) []byte
		want Completion
	}{
		{"octets", func(p *rawInitiator) []byte { return p.fpdu(long, []byte("hello")) }, Completion{Len: 5}},
		{"event", func(p *rawInitiator) []byte { return p.fpdu(event, nil) }, Completion{Solicited: true}},
		{"more to come", func(p *rawInitiator) []byte { return append(p.fpdu(part, nil), p.fpdu(rest, []byte("hello"))...) }, Completion{Len: 5}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, QPOptions{NoMarkers: true})
				require.NoError(t, s.qp.PostRecv(s.recvAt(7, 0, 16)))
				p := r.acceptRTR(s, mpa.AllRTR)
				p.write(tc.say(p))
				tc.want.ID, tc.want.QP, tc.want.Op = 7, s.qp.Number(), OpRecv
				require.Equal(t, []Completion{tc.want}, r.await(s, 1), "%v", s.qp.Err())
				require.EqualValues(t, 1, r.stats(s.qp).MessagesRecvd)
			})
		})
	}
}

// An empty Send with another number is no RTR message either: start-up's own buffer would take the place of the one that it lacks.
func TestFirstSendHasAnotherNumber(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, QPOptions{NoMarkers: true})
		require.NoError(t, s.qp.PostRecv(s.recvAt(7, 0, 16)))
		p := r.acceptRTR(s, mpa.AllRTR)
		p.write(p.fpdu(sendOf(2), nil))
		require.Equal(t, rdmap.NewCause(rdmap.LayerDDP, ddp.TypeUntagged, ddp.CodeNoBuffer), p.terminate().Cause)
		p.closeSend()
		require.Equal(t, []Completion{{ID: 7, QP: s.qp.Number(), Op: OpRecv, Status: Flushed}}, r.await(s, 1))
	})
}

// A Read Response that is not the one an RTR Read asked for is refused, as any is: the Read has no octet to place.
func TestReadResponseOfAnotherRead(t *testing.T) {
	with := func(change func(h *ddp.Header)) ddp.Header {
		h := rdmap.OpReadResponse.Header(1)
		h.Last, h.Version, h.STag = true, 1, rtrSTag
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
				c := r.newEnd(r.client, QPOptions{Dialect: RFC6581, PeerToPeer: true, RTR: RTRRead, NoMarkers: true})
				p := &rawInitiator{rawPeer: r.startConnect(c), r: r}
				p.reply(mpa.Request)
				p.write(unhex(t, hexRep+"5002 0004 8001 4000"))
				p.tx.Init(mpa.Mode{CRC: true})
				require.Equal(t, byte(rdmap.OpReadRequest), p.next()[1]&0x0f)
				p.write(p.fpdu(tc.h, tc.body))
				require.Equal(t, rdmap.NewCause(rdmap.LayerDDP, ddp.TypeTagged, tc.code), p.terminate().Cause)
				p.closeSend()
				r.untilDone(c.qp)
			})
		})
	}
}

// What looks like an RTR Send and cannot be placed ends the stream while start-up's own buffer is posted. That one has no
// Completion; the ULP's were not touched by the error, and are flushed.
func TestHiddenBufferAtTheEnd(t *testing.T) {
	queue, offset := sendOf(1), sendOf(1)
	queue.QN = 1
	offset.MO = 4
	for name, h := range map[string]ddp.Header{"another queue": queue, "an offset": offset} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, QPOptions{NoMarkers: true})
				for i := range 3 {
					require.NoError(t, s.qp.PostRecv(s.recvAt(uint64(7+i), 16*i, 16)))
				}
				p := r.acceptRTR(s, mpa.RTRSend)
				p.write(p.fpdu(h, nil))
				require.Error(t, p.untilEnded())
				p.closeSend()
				r.untilDone(s.qp)
				require.Error(t, s.qp.Err())
				s.poll()
				var want []Completion
				for i := range 3 {
					want = append(want, Completion{ID: uint64(7 + i), QP: s.qp.Number(), Op: OpRecv, Status: Flushed})
				}
				require.Equal(t, want, s.done)
				require.Zero(t, s.cq.reserved.Load())
			})
		})
	}
}

// A Responder that closes before the Initiator's Rtr frame or RTR message has come waits for the peer's end as any that closes:
// the frame that is owed neither shortens that, nor, when it comes after all, takes its bound away.
func TestCloseWhileRTRIsOwed(t *testing.T) {
	for _, late := range []bool{false, true} {
		r := newRig(t, turned, rigConfig{})
		s := r.newEnd(r.server, QPOptions{NoMarkers: true})
		p := r.dialRaw()
		p.write(unhex(t, hexReq+"5001 0000"))
		require.NoError(t, r.request().Accept(r.ctx, s.qp, nil))
		waitFrame(r, p, mpa.Reply)
		s.qp.Disconnect()
		require.Error(t, untilEnded(r, p))
		if late {
			p.write(unhex(t, hexRtr+"4001 0000"))
		}
		r.pass(3 * lingerTimeout)
		require.True(t, isDone(s.qp), "late: %v", late)
		require.ErrorIs(t, s.qp.Err(), errLinger)
	}
}

// heard is what the Adapter said behind its start-up frame.
func heard(t *testing.T, c *forged, kind mpa.FrameKind) []byte {
	t.Helper()
	_, n, err := mpa.ParseFrame(c.in, kind, mpa.PrivateDataMax)
	require.NoError(t, err)
	require.Positive(t, n, "no start-up frame")
	return c.in[n:]
}

// A QueuePair that is closed between the Reply and the next segment, as another goroutine may do over a kernel socket, still owes its
// RTR message: it goes out, and the FIN behind it.
func TestCloseBehindAnOwedRTR(t *testing.T) {
	h := newHostile(t, hostileConfig{bufs: 512, connsMax: 8})
	q := h.newQP(QPOptions{Dialect: RFC6581, PeerToPeer: true, RTR: RTRWrite, NoMarkers: true})
	c := h.dialForged(q)
	c.stream = unhex(t, hexRep+"5002 0004 8000 8000")
	l := q.link.Load()
	require.Equal(t, stack.Taken, l.arrive(0, mem.NoBuf, c.stream))
	require.Equal(t, RTS, q.State(), "%v", q.Err())
	l.shutdown()
	h.turns(2, time.Microsecond)
	require.Equal(t, unhex(t, withCRC(t, "000e c1 40 00000001 0000000000000000")), heard(t, c, mpa.Request))
	require.Equal(t, c.irs+1+tcp.Seq(len(c.in))+1, c.next, "a FIN behind it")
	h.octets(c, 0, len(c.stream), tcp.FIN)
	h.turns(4, time.Microsecond)
	require.True(t, isDone(q))
	require.NoError(t, q.Err())
}

// A Responder that may not speak yet has nothing behind its Reply, whatever was posted: the Reply's last segment is pushed.
func TestReplyIsPushed(t *testing.T) {
	h := newHostile(t, hostileConfig{bufs: 512, connsMax: 8})
	q := h.newQP(QPOptions{NoMarkers: true})
	c, req := h.requestAtAClosedWindow()
	require.NoError(t, req.Accept(t.Context(), q, make([]byte, longPrivate)))
	require.NoError(t, q.PostSend(WorkRequest{}))
	h.turns(2, time.Microsecond)
	require.Empty(t, c.in)
	for range 10 {
		h.octets(c, len(c.stream), len(c.stream), 0)
		h.turn(time.Microsecond)
	}
	require.Empty(t, heard(t, c, mpa.Reply))
	require.NotZero(t, c.flags&tcp.PSH, "PSH on the Reply")
	q.Abort()
	h.turns(4, time.Microsecond)
	require.True(t, isDone(q))
}
