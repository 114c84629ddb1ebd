package rnic

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"

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

	{"last octet past the region", 0x1101, func(_ *testing.T, r *rig, s, c *end) error {
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteOffset = regionBytes - offenceLen + 1 })
	}, Flushed},
	{"TO at the region's end", 0x1101, func(_ *testing.T, r *rig, s, c *end) error {
		return c.wrong(s, func(wr *WorkRequest) { wr.RemoteOffset = regionBytes })
	}, Flushed},

	{"receive buffer too small", 0x1205, func(_ *testing.T, r *rig, s, c *end) error {
		return errOf(c.qp.PostSend(c.sendQuietly(0, offenceLen)))
	}, LocalLength},
	{"no receive buffer", 0x1202, func(t *testing.T, r *rig, s, c *end) error {
		c.post(c.sendQuietly(0, 5)) // takes the one there is
		return errOf(c.qp.PostSend(c.sendQuietly(0, offenceLen)))
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
				r := newRig(t, turned, rigConfig{})
				o.commit(t, r, first)
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
	beside := r.newBystander(qpOpts(QPOptions{PD: s.pd}))
	if !first {
		r.exchange(s, c)
	}
	before := bytes.Clone(s.region.Bytes())
	s.postRecv(s.recvAt(50, 0, 100))
	require.NoError(t, o.post(t, r, s, c))
	c.postRecv(c.recvAt(60, 0, 100))
	awaitClosed(c, s)

	te := errorAs[*TerminateError](t, s.qp.Err())
	require.False(t, te.Remote)
	require.Equal(t, o.cause, terminated(te.Cause), "%v", te)
	what, ours := strings.CutPrefix(te.Error(), "rnic: stream terminated: ")
	require.True(t, ours, "%v", te)
	require.ErrorAs(t, c.qp.Err(), &te)
	require.True(t, te.Remote)
	pe := errorAs[*PeerError](t, te)
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
	require.Contains(t, c.done, Completion{ID: 60, QP: c.qp.Number(), Op: OpRecv, Status: Flushed,
		Terminate: terminateOf(te)})
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

type (
	readReq   = rdmap.ReadRequest
	atomicReq = rdmap.AtomicRequest
)

// victim is a Responder of ours, and m, 64 octets that its peer may read and write.
type victim struct {
	r *rig
	s *end
	m *MemoryRegion
}

// mistake is what only a broken peer says, and what the Terminate calls it.
type mistake struct {
	name  string
	cause rdmap.Cause
	say   func(x *victim) fpdu
}

func badWrite(change func(h *ddp.Header)) func(*victim) fpdu {
	return func(x *victim) fpdu {
		f := writeFPDU(x.s.region.STag(), 0, "payload")
		change(&f.Header)
		return f
	}
}

func badSend(change func(h *ddp.Header)) func(*victim) fpdu {
	return func(*victim) fpdu {
		f := sendFPDU(1, "payload")
		change(&f.Header)
		return f
	}
}

func badNumber(op rdmap.Opcode, msn uint32) func(*victim) fpdu {
	return func(*victim) fpdu { return messageFPDU(op, msn, "") }
}

func badRead(change func(x *victim, q *readReq)) func(*victim) fpdu {
	return func(x *victim) fpdu {
		h, q := readOf(1, x.m.STag(), x.m.Base(), 1)
		change(x, &q)
		return readFPDU(h, q)
	}
}

func badAtomic(change func(x *victim, a *atomicReq)) func(*victim) fpdu {
	return func(x *victim) fpdu {
		a := rdmap.AtomicRequest{STag: x.m.STag(), TO: x.m.Base(), Data: 1, Mask: 1}
		change(x, &a)
		return atomicFPDU(1, a)
	}
}

var mistakes = []mistake{
	{"reserved opcode", 0x0206, badWrite(func(h *ddp.Header) { h.ULP = 0x4c })},
	{"Atomic Response not asked for", 0x0206, badSend(func(h *ddp.Header) { h.ULP, h.QN = 0x4b, 3 })},
	{"tagged Send", 0x0206, badWrite(func(h *ddp.Header) { h.ULP = 0x43 })},
	{"untagged Write", 0x0206, badSend(func(h *ddp.Header) { h.ULP = 0x40 })},
	{"Send on the Terminate queue", 0x0206, badSend(func(h *ddp.Header) { h.QN = rdmap.QNTerminate })},
	{"Read Response nobody asked for", 0x0206, badWrite(func(h *ddp.Header) { h.ULP = 0x42 })},
	{"Send with Invalidate of no STag", 0x0109, badSend(func(h *ddp.Header) { h.ULP = 0x44 })},
	{"RDMAP version 0", 0x0205, badWrite(func(h *ddp.Header) { h.ULP = 0x00 })},
	{"RDMAP version 3", 0x0205, badSend(func(h *ddp.Header) { h.ULP = 0xc3 })},
	{"DDP version 0, tagged", 0x1104, badWrite(func(h *ddp.Header) { h.Version = 0 })},
	{"DDP version 2, untagged", 0x1206, badSend(func(h *ddp.Header) { h.Version = 2 })},
	{"queue that RDMAP does not know", 0x1201, badSend(func(h *ddp.Header) { h.QN = 4 })},
	{"highest queue, and an opcode for none", 0x1201, badSend(func(h *ddp.Header) {
		h.QN, h.ULP = math.MaxUint32, 0x4f
	})},
	{"MSN 0", 0x1203, badSend(func(h *ddp.Header) { h.MSN = 0 })},
	{"MSN above what is posted", 0x1202, badSend(func(h *ddp.Header) { h.MSN = 3 })},
	{"MSN half the numbers ahead", 0x1202, badNumber(rdmap.OpSend, 1<<31)},
	{"MSN long over", 0x1203, badNumber(rdmap.OpSend, 1<<32-1)},
	{"MSN of a Read above IRD", 0x1202, badNumber(rdmap.OpReadRequest, 5)},
	{"MSN 0 of a Read", 0x1203, badNumber(rdmap.OpReadRequest, 0)},
	{"second Terminate", 0x1202, badNumber(rdmap.OpTerminate, 2)},
	{"MSN 0 of a Terminate", 0x1203, badNumber(rdmap.OpTerminate, 0)},
	{"MO past the buffer", 0x1204, badSend(func(h *ddp.Header) { h.MO = 101 })},

	{"Read of an unknown STag", 0x0100, badRead(func(_ *victim, q *readReq) { q.SrcSTag = 0xdead })},
	{"Swap", 0x0206, badAtomic(func(_ *victim, a *atomicReq) { a.Code = 1 })},
	{"reserved atomic code", 0x0206, badAtomic(func(_ *victim, a *atomicReq) { a.Code = 15 })},
}

// Each mistake is answered by a Terminate with the segment's header, for a Read's source with the
// Request too, then by a FIN; memory stays as it was.
//
// req: DDP-9.1-1, DDP-9.1-3, DDP-9.1-5, DDP-9.1-12, DDP-9.2-7, DDP-9.2-8, DDP-9.2-11, DDP-9.2-13
// req: 5040-7.2-2, 5040-7.2-3, 5040-7.1-3, 5040-6.2.1-3, 5040-5.4-1, DDP-8.2.2-3, 5041-4.1-2
// req: DDP-6.1-11, 5040-5.2.1-8, 5040-7.2-5, 5040-7.2-6, 5040-7.2-7, 5040-7.1-4, 5040-4.8-9
// req: 5042-6.3.5-1, 7306-5.1.1-1, 7306-5.1.2-2, 7306-5.2.1-2, 7306-8.2-1, 7306-8.2-2, 7306-1.1-2
// req: 7306-6.3-2
func TestTerminateOnWire(t *testing.T) {
	for _, m := range mistakes {
		m.make(t, 4)
	}
	for off := range uint64(7) {
		for _, code := range []rdmap.AtomicCode{rdmap.FetchAdd, rdmap.CompareSwap} {
			m := mistake{fmt.Sprintf("%v at %d", code, off+1), 0x0207,
				badAtomic(func(_ *victim, a *atomicReq) { a.TO, a.Code = a.TO+off+1, code })}
			m.make(t, 4)
		}
	}
	for op, right := range map[rdmap.Opcode]int{rdmap.OpReadRequest: rdmap.ReadRequestLen,
		rdmap.OpAtomicRequest: rdmap.AtomicRequestLen, rdmap.OpImmediate: rdmap.ImmediateLen} {
		for _, n := range []int{0, right - 1, right + 1} {
			m := mistake{fmt.Sprintf("%v of %d octets", op, n), rdmap.CauseOperation,
				func(*victim) fpdu { return messageFPDU(op, 1, make([]byte, n)) }}
			m.make(t, 4)
		}
		if op == rdmap.OpImmediate {
			continue
		}
		m := mistake{fmt.Sprintf("%v, not served", op), rdmap.CauseOpcode,
			func(*victim) fpdu { return messageFPDU(op, 1, make([]byte, right)) }}
		m.make(t, 0)
	}
}

// make has a peer make the mistake while so many Requests are served.
func (m *mistake) make(t *testing.T, ird int) {
	t.Run(m.name, func(t *testing.T) {
		r, s, p := served(t, connOpts(ConnParam{IRD: ird}))
		s.postRecv(s.recvAt(50, 0, 100))
		x := &victim{r, s, r.readable(s, 64, RemoteRead|RemoteWrite)}
		before := bytes.Clone(x.m.Bytes())
		f := m.say(x)
		p.inject(f, writeFPDU(s.region.STag(), 0, "beyond")) // dropped silently
		want := rdmap.Terminate{Cause: m.cause, HasDDP: true, HasSegmentLen: true, DDP: f.Header,
			SegmentLen: uint16(f.Len() + len(f.payload))}
		if f.ULP == 0x41 && m.cause>>8 == 0x01 {
			want.Read, want.HasRead = rdmap.ParseReadRequest(f.payload)
		}
		p.expectTerminate(want)
		p.expectFIN() // nothing after the Terminate
		p.ends(s)
		require.ErrorContains(t, s.qp.Err(), "rnic: stream terminated: ")
		require.ErrorContains(t, s.qp.Err(), m.cause.String())
		require.Equal(t, m.cause, terminated(errors.Unwrap(s.qp.Err())))
		require.Equal(t, make([]byte, regionBytes), s.region.Bytes())
		require.Equal(t, before, x.m.Bytes())
		s.unharmed(t)
	})
}

// A ULPDU too short for its header is a local catastrophic error: no header is copied.
//
// req: DDP-8.2.2-3
func TestShortULPDU(t *testing.T) {
	for n, want := range map[int]rdmap.Cause{0: 0x1000, 1: 0x1000, 13: 0x1000} {
		_, s, p := served(t, opts{})
		p.write(p.frameULPDU(make([]byte, n)))
		p.expectTerminate(rdmap.Terminate{Cause: want})
		p.ends(s)
	}
}

// A bad CRC after a good frame, or a marker that points elsewhere in one whose CRC is right, is
// answered by a Terminate of the lower layer, once and without headers: what was in front of it
// stays placed, nothing of it or after it is; we close our half, and wait for the peer's.
//
// req: D01-7-2, D01-7-4, D01-7-10, D01-7-11, D01-7-12, 5040-7.1-2, DDP-9-1, DDP-8.2.2-2
func TestTerminateBadCRC(t *testing.T) {
	type damage struct {
		do    func(b []byte)
		cause rdmap.Cause
		code  mpa.ErrorCode
	}
	each(t, rigConfig{}, map[string]damage{
		"CRC": {func(b []byte) { b[20] ^= 0x10 }, rdmap.LLPCause(rdmap.LLPCRC), mpa.ErrCRC},
		"marker": {func(b []byte) {
			b[512-28+3] ^= 4
			binary.LittleEndian.PutUint32(b[len(b)-4:], crc32c(b[:len(b)-4]))
		}, rdmap.LLPCause(rdmap.LLPMarker), mpa.ErrMarker},
	}, func(t *testing.T, r *rig, x damage) {
		s, p := r.served(opts{})
		s.postRecv(s.recvAt(1, 0, 100))
		stag := s.region.STag()
		p.inject(writeFPDU(stag, 0, "good"))
		b := p.frame(writeFPDU(stag, 1000, randomBytes(1, 600))) // over the marker at 512
		x.do(b)
		p.write(b)
		p.inject(writeFPDU(stag, 8, "withheld"), sendFPDU(1, "withheld"))
		p.expectTerminate(rdmap.Terminate{Cause: x.cause})
		p.expectFIN() // one message, and no more
		p.inject(writeFPDU(stag, 8, "late"))
		p.ends(s)
		want := make([]byte, regionBytes)
		copy(want, "good")
		require.Equal(t, want, s.region.Bytes())
		s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
		s.expectMPAError(x.code)
		all := r.server.CountersOf(r.hosts[0].poller) // after the end, too
		require.Equal(t, x.code == mpa.ErrCRC, all.CRCErrors == 1)
		require.EqualValues(t, 1, all.Terminated)
		require.EqualValues(t, 1, all.ServicesMade)
	})
}

// What was whole before an error is still delivered, in the same burst too.
//
// req: DDP-7.4-2, 5040-7.1-5
func TestDeliveredBeforeError(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s := r.newEnd(r.server, opts{})
	s.postRecv(s.recvAt(1, 0, 100))
	s.postRecv(s.recvAt(2, 100, 100))
	p, _ := r.peerConnects(s, false)
	p.inject(sendFPDU(1, "first"), writeFPDU(0xdead, 0, "wrong"), writeFPDU(0xdead, 1<<63, "worse"),
		sendFPDU(2, "second"))
	term := p.expectTerminateFor(0x1100)
	require.Zero(t, term.DDP.TO, "the first error is reported")
	p.ends(s)
	s.expectCompletions(Completion{ID: 1, Op: OpRecv, Len: 5},
		Completion{ID: 2, Op: OpRecv, Status: Flushed})
	require.Equal(t, "first", string(s.inbox.Bytes()[:5]))
	require.Equal(t, make([]byte, 6), s.inbox.Bytes()[100:106])
}

// The peer's Terminate ends the connection in an error that names what it said, even cut short, and
// is not answered. It is the last thing that the peer says: what follows is neither placed nor
// delivered.
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
		{"empty", nil, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, s, p := served(t, opts{})
			s.postRecv(s.recvAt(1, 0, 100))
			p.inject(terminateFPDU(tc.body))
			s.expectState(Terminating)
			p.inject(writeFPDU(s.region.STag(), s.region.Base(), "written"), sendFPDU(1, "sent"))
			p.expectFIN()
			p.ends(s)
			require.True(t, errorAs[*TerminateError](t, s.qp.Err()).Remote)
			require.EqualValues(t, 1, r.server.CountersOf(r.hosts[0].poller).TerminatesIn)
			if tc.body != nil {
				s.expectToldOf(tc.want)
			}
			require.Equal(t, make([]byte, 7), s.region.Bytes()[:7])
			require.Equal(t, make([]byte, 4), s.inbox.Bytes()[:4])
			s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
		})
	}
}
