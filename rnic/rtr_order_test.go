package rnic

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/stack"
)

// A Responder that named all kinds learns from the first FPDU which it is, in whatever order
// octets come: here the RTR is lost at first and what was posted after it overtakes it.
func TestRTROvertaken(t *testing.T) {
	for _, kind := range []RTRKinds{RTRSend, RTRWrite, RTRRead} {
		r := newRig(t, turned, rigConfig{faults: true})
		s := r.newEnd(r.server, opts{})
		c := r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: kind}})
		s.postRecv(s.recvAt(1, 0, 100))
		s.postRecv(s.recvAt(2, 100, 100))
		req := r.dial(c, nil)
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		lost := false
		r.until("the RTR's segment lost", func() bool {
			if !lost && c.qp.State() == RTS {
				lost = true
				c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 50)})
				c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(50, 60)})
			}
			return lost
		})
		got := s.await(2)
		require.Equal(t, []Completion{
			{ID: 1, QP: s.qp.Number(), Op: OpRecv, Len: 50}, {ID: 2, QP: s.qp.Number(), Op: OpRecv, Len: 60},
		}, got, "%v", kind)
		require.EqualValues(t, 2, r.stats(s.qp).MessagesRecvd)
		r.close(s, c)
	}
}

// What overtakes an RTR message that may be a Send is held, and not placed before it is known whose
// the first receive buffer is: it need not come again. Where no Send may come as RTR message it is
// placed at once, as far as markers locate it.
func TestWhatOvertakesTheRTR(t *testing.T) {
	const sends = 20
	for _, c := range []struct {
		name              string
		offered, kind     mpa.RTRKinds
		noMarkers, placed bool
	}{
		{"a Send, with markers", mpa.AllRTR, mpa.RTRSend, false, false},
		{"a Send, without", mpa.AllRTR, mpa.RTRSend, true, false},
		{"a Write in place of a Send", mpa.AllRTR, mpa.RTRWrite, false, false},
		{"a Write, of which there can be no Send", mpa.RTRWrite | mpa.RTRRead, mpa.RTRWrite, false, true},
	} {
		t.Run(c.name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{})
			s := r.newEnd(r.server,
				opts{QPOptions: QPOptions{RecvDepth: 32},
					ConnParam: ConnParam{NoMarkers: c.noMarkers, RTR: RTRKinds(c.offered)}})
			for k := range sends {
				s.postRecv(s.recvAt(uint64(k), 700*k, 700))
			}
			p := r.acceptRTR(s, c.offered)
			p.start(mpa.Mode{Markers: !c.noMarkers, CRC: true})
			h, msn := writeTo(qp.RTRSTag, 0), uint32(1)
			if c.kind == mpa.RTRSend {
				h, msn = sendOf(1), 2
			}
			segments := [][]byte{p.frame(fpdu{h, nil})}
			for k := range sends {
				segments = append(segments,
					p.frame(sendFPDU(msn+uint32(k), bytes.Repeat([]byte{byte(k)}, 600))))
			}
			l := s.qp.end.Connection.Load()
			at := l.StreamBase()
			arrive := func(off uint64, octets []byte) {
				buf := l.Pool.Alloc()
				slot := l.Pool.Slot(buf)[l.Pool.Headroom():]
				v := arriveOne(l, off, buf, slot[:copy(slot, octets)])
				require.NotEqual(t, stack.Refused, v)
				if v != stack.Kept {
					l.Pool.Free(buf)
				}
			}
			end := at + uint64(len(segments[0]))
			for _, b := range segments[1:] {
				arrive(end, b)
				end += uint64(len(b))
			}
			require.Equal(t, c.placed, r.stats(s.qp).Receive.OutOfOrder > 0)
			arrive(at, segments[0])
			l.Edge(end)
			for k, done := range s.await(sends) {
				require.Equal(t, Completion{ID: uint64(k), QP: s.qp.Number(), Op: OpRecv, Len: 600}, done)
				require.Equal(t, bytes.Repeat([]byte{byte(k)}, 600), s.inbox.Bytes()[700*k:700*k+600])
			}
			s.qp.Abort()
			s.awaitClosed()
		})
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
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true, DropBadCRC: true}})
		p := r.acceptRTR(s, mpa.RTRWrite)
		h := rdmap.OpWrite.Header(1)
		h.Last, h.Version, h.STag = true, 1, qp.RTRSTag
		b := p.frame(fpdu{h, nil})
		require.Len(t, b, length)
		l := s.qp.end.Connection.Load()
		arrive := func(off uint64, octets []byte) stack.Verdict {
			buf := l.Pool.Alloc()
			slot := l.Pool.Slot(buf)[l.Pool.Headroom():]
			v := arriveOne(l, off, buf, slot[:copy(slot, octets)])
			if v != stack.Kept {
				l.Pool.Free(buf)
			}
			return v
		}
		require.Equal(t, stack.Kept, arrive(l.StreamBase(), b[:cut]), cut)
		l.Edge(l.StreamBase() + uint64(cut))
		require.Equal(t, stack.Taken, arrive(l.StreamBase()+uint64(cut), b[cut:]), cut)
		require.True(t, !s.qp.engine.Unopened(), cut)
		require.Zero(t, r.stats(s.qp).Receive.RefusedUnverified)
	}
}
