package rnic

import (
	"bytes"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// offence is what a client does wrong, and what the server must call it.
type offence struct {
	name  string
	cause rdmap.Cause
	post  func(t *testing.T, r *rig, s, c *end) error
	recv  Status // of the server's one receive buffer
}

const offenceLen = 2000 // octets of a wrong message: two segments at MTU 1500, one over loopback

// wrong posts a Write of offenceLen octets to the given place.
func (c *end) wrong(s *end, change func(wr *WorkRequest)) error {
	wr := c.write(s, 1, 0, offenceLen)
	change(&wr)
	return errOf(c.qp.PostSend(as(OpWrite, wr)))
}

var offences = []offence{
	{"unknown STag", 0x1100, func(_ *testing.T, r *rig, s, c *end) error {
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteSTag ^= 0x00010000 })
	}, Flushed},
	{"wrong key of an STag", 0x1100, func(_ *testing.T, r *rig, s, c *end) error {
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteSTag++ })
	}, Flushed},
	{"region without RemoteWrite", 0x1100, func(_ *testing.T, r *rig, s, c *end) error {
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteSTag = s.inbox.STag() })
	}, Flushed},
	{"deregistered region", 0x1100, func(_ *testing.T, r *rig, s, c *end) error {
		s.region.Deregister()
		return c.wrong(s, func(*WorkRequest) {})
	}, Flushed},
	{"last octet past the region", 0x1101, func(_ *testing.T, r *rig, s, c *end) error {
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteOffset = regionBytes - offenceLen + 1 })
	}, Flushed},
	{"TO at the region's end", 0x1101, func(_ *testing.T, r *rig, s, c *end) error {
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteOffset = regionBytes })
	}, Flushed},
	{"other domain's STag", 0x1102, func(t *testing.T, r *rig, s, c *end) error {
		m, err := r.server.AllocPD().Register(make([]byte, regionBytes), RemoteWrite)
		require.NoError(t, err)
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteSTag = m.STag() })
	}, Flushed},
	{"STag bound to another queue pair", 0x1102, func(t *testing.T, r *rig, s, c *end) error {
		other, err := r.server.CreateQP(QPOptions{PD: s.pd, SendCQ: s.cq, RecvCQ: s.cq})
		require.NoError(t, err)
		m, err := s.pd.RegisterWith(make([]byte, regionBytes),
			RegisterOptions{Access: RemoteWrite, For: other})
		require.NoError(t, err)
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteSTag = m.STag() })
	}, Flushed},
	{"TO wrap", 0x1103, func(_ *testing.T, r *rig, s, c *end) error {
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteOffset = math.MaxUint64 - 4 })
	}, Flushed},
	{"receive buffer too small", 0x1205, func(_ *testing.T, r *rig, s, c *end) error {
		return errOf(c.qp.PostSend(WorkRequest{Op: OpSend, Local: c.source.Slice(0, offenceLen)}))
	}, LocalLength},
	{"no receive buffer", 0x1202, func(t *testing.T, r *rig, s, c *end) error {
		c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 5)}) // takes the one there is
		return errOf(c.qp.PostSend(WorkRequest{Op: OpSend, Local: c.source.Slice(0, offenceLen)}))
	}, Success},
}

// Each error in what a client sends: the server names layer, type and code, the client hears the
// same, memory outside of what was granted stays as it was, and another connection of the same
// Adapter goes on untouched. It is the same whether it happens in the connection's first message
// or later.
//
// req: DDP-3.2-2, DDP-3.2-3, DDP-9.1-2, DDP-9.1-4, DDP-9.1-6, DDP-9.1-7, DDP-9.1-8, DDP-9.1-9
// req: DDP-9.1-10,
// req: DDP-9.1-11, DDP-9.1-14, DDP-9.2-3, DDP-9.2-4, DDP-9.2-5, DDP-9.2-6, DDP-9.2-10, DDP-9.2-12
// req: 5041-2.1-1,
// req: 5041-8.2-1, 5041-8.2-2, 5041-8.2-3, 5041-8.3.1-1, 5041-8.3.1-2, 5041-8.3.1-4, 5041-8.3.1-5
// req: 5042-2.2.4-1,
// req: 5042-6.1.1-2, 5042-6.1.1-3, 5042-6.1.1-5, 5042-6.3.5-1, 5040-5.4-3, 5040-6.2.1-1, 5040-7-1
// req: 5040-7.1-1
// req: 5041-7.1-1
func TestOffences(t *testing.T) {
	for _, o := range offences {
		for _, first := range []bool{true, false} {
			name := o.name + ", first message"
			if !first {
				name = o.name + ", later"
			}
			t.Run(name, func(t *testing.T) {
				over(t, both, rigConfig{}, func(t *testing.T, r *rig) { o.commit(t, r, first) })
			})
		}
	}
}

// terminated is what the Terminate says that err becomes.
func terminated(err error) rdmap.Cause {
	return (&qp.TerminateError{Cause: err}).Terminate().Cause
}

func (o *offence) commit(t *testing.T, r *rig, first bool) {
	s, c := r.connect(opts{}, opts{})
	beside := r.newBystander(opts{QPOptions: QPOptions{PD: s.pd}})
	if !first {
		r.exchange(s, c)
	}
	before := bytes.Clone(s.region.Bytes())
	s.postRecv(s.recvAt(50, 0, 100))
	require.NoError(t, o.post(t, r, s, c))
	c.postRecv(c.recvAt(60, 0, 100))
	c.awaitClosed()
	s.awaitClosed()

	var te *TerminateError
	require.ErrorAs(t, s.qp.Err(), &te)
	require.False(t, te.Remote)
	require.Equal(t, o.cause, terminated(te.Cause), "%v", te)
	what, ours := strings.CutPrefix(te.Error(), "rnic: stream terminated: ")
	require.True(t, ours, "%v", te)
	require.ErrorAs(t, c.qp.Err(), &te)
	require.True(t, te.Remote)
	var pe *PeerError
	require.ErrorAs(t, te, &pe)
	require.Equal(t, o.cause, pe.said.Terminate.Cause, "%v", pe)
	require.True(t, pe.said.Terminate.HasDDP)
	require.True(t, pe.said.Terminate.HasSegmentLen)
	require.Contains(t, what, o.cause.String())
	require.EqualError(t, te, "rnic: peer terminated the stream: "+what,
		"both ends have the same words for it")

	s.unharmed(t)
	if o.name == "TO at the region's end" || o.cause != 0x1101 {
		require.True(t, bytes.Equal(before, s.region.Bytes()), "the region was written")
	}
	s.expectCompletions(recvCompletion(s, o.recv))
	c.poll()
	require.Contains(t, c.done, Completion{ID: 60, QP: c.qp.Number(), Op: OpRecv, Status: Flushed})
	for _, cm := range c.done {
		require.Contains(t, []Status{Success, Flushed}, cm.Status)
	}
	beside.goesOn()
	r.close(beside.s, beside.c)
}

func recvCompletion(s *end, st Status) Completion {
	c := Completion{ID: 50, QP: s.qp.Number(), Op: OpRecv, Status: st}
	if st == Success {
		c.Len = 5
	}
	return c
}

// What only a broken peer sends is answered by a Terminate with the segment's header, then by a
// FIN.
//
// req: DDP-9.1-1, DDP-9.1-3, DDP-9.1-5, DDP-9.1-12, DDP-9.2-7, DDP-9.2-8, DDP-9.2-11, DDP-9.2-13
// req: 5040-7.2-2,
// req: 5040-7.2-3, 5040-7.1-3, 5040-6.2.1-3, 5040-5.4-1, DDP-8.2.2-3, 5041-4.1-2, DDP-6.1-11
func TestTerminateOnWire(t *testing.T) {
	write := func(change func(h *ddp.Header)) func(s *end) ddp.Header {
		return func(s *end) ddp.Header {
			h := writeTo(s.region.STag(), 0)
			change(&h)
			return h
		}
	}
	send := func(change func(h *ddp.Header)) func(s *end) ddp.Header {
		return func(*end) ddp.Header {
			h := sendOf(1)
			change(&h)
			return h
		}
	}
	for _, tc := range []struct {
		name   string
		cause  rdmap.Cause
		header func(s *end) ddp.Header
	}{
		{"reserved opcode", 0x0206, write(func(h *ddp.Header) { h.ULP = 0x4c })},
		{"Atomic Response nobody asked for", 0x0206, send(func(h *ddp.Header) {
			h.ULP, h.QN = 0x4b, rdmap.QNAtomic
		})},
		{"immediate data of 7 octets", 0x02ff, send(func(h *ddp.Header) { h.ULP = 0x48 })},
		{"tagged Send", 0x0206, write(func(h *ddp.Header) { h.ULP = rdmap.Control(1, rdmap.OpSend) })},
		{"untagged Write", 0x0206, send(func(h *ddp.Header) { h.ULP = rdmap.Control(1, rdmap.OpWrite) })},
		{"Send on the Terminate queue", 0x0206, send(func(h *ddp.Header) { h.QN = rdmap.QNTerminate })},
		{"Read Request, not served", 0x0206, send(func(h *ddp.Header) {
			h.ULP, h.QN = rdmap.Control(1, rdmap.OpReadRequest), rdmap.QNRead
		})},
		{"Read Response nobody asked for", 0x0206, write(func(h *ddp.Header) {
			h.ULP = rdmap.Control(1, rdmap.OpReadResponse)
		})},
		{"Send with Invalidate of no STag", 0x0109, send(func(h *ddp.Header) {
			h.ULP = rdmap.Control(1, rdmap.OpSendInv)
		})},
		{"RDMAP version 0", 0x0205, write(func(h *ddp.Header) {
			h.ULP = rdmap.Control(0, rdmap.OpWrite)
		})},
		{"RDMAP version 3", 0x0205, send(func(h *ddp.Header) { h.ULP = rdmap.Control(3, rdmap.OpSend) })},
		{"DDP version 0, tagged", 0x1104, write(func(h *ddp.Header) { h.Version = 0 })},
		{"DDP version 2, untagged", 0x1206, send(func(h *ddp.Header) { h.Version = 2 })},
		{"queue that RDMAP does not know", 0x1201, send(func(h *ddp.Header) { h.QN = 4 })},
		{"highest queue, and an opcode for none", 0x1201, send(func(h *ddp.Header) {
			h.QN, h.ULP = math.MaxUint32, 0x4f
		})},
		{"MSN 0", 0x1203, send(func(h *ddp.Header) { h.MSN = 0 })},
		{"MSN above what is posted", 0x1202, send(func(h *ddp.Header) { h.MSN = 3 })},
		{"MO past the buffer", 0x1204, send(func(h *ddp.Header) { h.MO = 101 })},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{})
				s.postRecv(s.recvAt(50, 0, 100))
				p, _ := r.peerConnects(s, false)
				h := tc.header(s)
				p.inject(fpdu{h, []byte("payload")})
				p.inject(writeFPDU(s.region.STag(), 0, "beyond")) // dropped silently
				p.expectTerminate(rdmap.Terminate{
					Cause: tc.cause, HasDDP: true, HasSegmentLen: true, SegmentLen: uint16(h.Len() + 7), DDP: h,
				})
				p.expectFIN() // nothing after the Terminate
				p.closeSend()
				s.awaitClosed()
				require.ErrorContains(t, s.qp.Err(), "rnic: stream terminated: ")
				require.Equal(t, tc.cause, terminated(errors.Unwrap(s.qp.Err())))
				require.Equal(t, make([]byte, regionBytes), s.region.Bytes())
				s.unharmed(t)
			})
		})
	}
}

// A ULPDU too short for its header is a local catastrophic error: no header is copied.
//
// req: DDP-8.2.2-3
func TestShortULPDU(t *testing.T) {
	for n, want := range map[int]rdmap.Cause{0: 0x1000, 1: 0x1000, 13: 0x1000} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{})
			p, _ := r.peerConnects(s, false)
			p.write(p.frameULPDU(make([]byte, n)))
			p.expectTerminate(rdmap.Terminate{Cause: want})
			p.closeSend()
			s.awaitClosed()
		})
	}
}

// A bad CRC after a good frame is answered by a Terminate of the lower layer, without headers.
//
// req: D01-7-2, D01-7-4, D01-7-10, D01-7-11, D01-7-12, 5040-7.1-2, DDP-9-1, DDP-8.2.2-2
func TestTerminateBadCRC(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		p, _ := r.peerConnects(s, false)
		p.inject(writeFPDU(s.region.STag(), 0, "good"))
		b := p.frame(writeFPDU(s.region.STag(), 4, "bad"))
		b[20] ^= 0x10
		p.write(b)
		p.inject(writeFPDU(s.region.STag(), 8, "withheld"))
		p.expectTerminate(rdmap.Terminate{Cause: rdmap.LLPCause(rdmap.LLPCRC)})
		p.expectFIN()
		p.closeSend()
		s.awaitClosed()
		require.Equal(t, append([]byte("good"), make([]byte, 12)...), s.region.Bytes()[:16])
		var me *mpa.Error
		require.ErrorAs(t, s.qp.Err(), &me)
		require.Equal(t, mpa.ErrCRC, me.Code)
	})
}

// What was whole before an error is still delivered, in the same burst too.
//
// req: DDP-7.4-2, 5040-7.1-5
func TestDeliveredBeforeError(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		s.postRecv(s.recvAt(1, 0, 100))
		s.postRecv(s.recvAt(2, 100, 100))
		p, _ := r.peerConnects(s, false)
		p.inject(sendFPDU(1, "first"), writeFPDU(0xdead, 0, "wrong"), writeFPDU(0xdead, 1<<63, "worse"),
			sendFPDU(2, "second"))
		term := p.expectTerminateFor(0x1100)
		require.Zero(t, term.DDP.TO, "the first error is reported")
		p.closeSend()
		s.awaitClosed()
		s.expectCompletions(
			Completion{ID: 1, Op: OpRecv, Len: 5},
			Completion{ID: 2, Op: OpRecv, Status: Flushed},
		)
		require.Equal(t, "first", string(s.inbox.Bytes()[:5]))
		require.Equal(t, make([]byte, 6), s.inbox.Bytes()[100:106])
	})
}

// The peer's Terminate ends the connection in an error that names what it said, even cut short.
//
// req: 5040-5.4-2, 5040-5.4-3, 5040-5.4-4, 5040-6.2.1-2
func TestPeerTerminates(t *testing.T) {
	for _, tc := range []struct {
		name string
		body []byte
		want rdmap.Cause
	}{
		{"whole", []byte{0x11, 0x01, 0, 0}, 0x1101},
		{"announces a header that is not there", []byte{0x02, 0x06, 0xc0, 0}, 0x0206},
		{"longest", make([]byte, qp.TerminateLenMax), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{})
				s.postRecv(s.recvAt(1, 0, 100))
				p, _ := r.peerConnects(s, false)
				p.inject(terminateFPDU(tc.body))
				p.expectFIN() // a Terminate is not answered
				p.closeSend()
				s.awaitClosed()
				var pe *PeerError
				require.ErrorAs(t, s.qp.Err(), &pe)
				require.Equal(t, tc.want, pe.said.Terminate.Cause)
				s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
			})
		})
	}
}

// The peer's Terminate is the last thing it says, even an empty one: what follows is neither
// placed nor delivered.
func TestNothingAfterATerminate(t *testing.T) {
	for name, body := range map[string][]byte{"whole": {0x11, 0x01, 0, 0}, "empty": nil} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{})
				s.postRecv(s.recvAt(1, 0, 100))
				p, _ := r.peerConnects(s, false)
				p.inject(terminateFPDU(body))
				s.expectState(Terminating)
				p.inject(writeFPDU(s.region.STag(), s.region.Base(), "written"))
				p.inject(sendFPDU(1, "sent"))
				p.closeSend()
				s.awaitClosed()
				var te *TerminateError
				require.ErrorAs(t, s.qp.Err(), &te)
				require.True(t, te.Remote)
				require.Equal(t, make([]byte, 7), s.region.Bytes()[:7])
				require.Equal(t, make([]byte, 4), s.inbox.Bytes()[:4])
				s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
			})
		})
	}
}

// With the smallest segments a peer can ask for, a Terminate arrives.
func TestTerminateInTinySegments(t *testing.T) {
	const mss = 1
	h := newSegmentRig(t, segmentRigConfig{bufs: 1024, connsMax: 8})
	s := h.newEnd(opts{})
	c := h.startUp(4000, mss, s)
	c.inject(writeFPDU(0x1234, 0, "x"))
	for range 10 {
		h.turn(10 * time.Millisecond)
		c.sendOctets(len(c.stream), len(c.stream), 0)
	}
	c.expectTerminateFor(0x1100) // invalid STag
	c.expectNothing()
}
