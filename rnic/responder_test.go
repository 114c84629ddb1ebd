package rnic

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/stack"
)

// readable registers n random octets that peers may read.
func (r *rig) readable(e *end, n int, access Access) *MemoryRegion {
	r.t.Helper()
	m := must(e.pd.RegisterWith(randomBytes(7, n), RegisterOptions{Access: access, Base: 0x1000}))
	return m
}

// readOf is a Read Request, the msn-th of its queue, for n octets from the given place.
func readOf(msn uint32, stag mem.STag, to uint64, n int) (ddp.Header, rdmap.ReadRequest) {
	h := rdmap.OpReadRequest.Header(1)
	h.Last, h.Version, h.MSN = true, 1, msn
	return h, rdmap.ReadRequest{SinkSTag: 0xfeed0000 + ddp.STag(msn), SinkTO: 1<<40 + uint64(msn),
		Size: uint32(n), SrcSTag: stag, SrcTO: to}
}

func readFPDU(h ddp.Header, rr rdmap.ReadRequest) fpdu {
	b := make([]byte, rdmap.ReadRequestLen)
	rr.Put(b)
	return fpdu{h, b}
}

func atomicFPDU(msn uint32, req rdmap.AtomicRequest) fpdu {
	b := make([]byte, rdmap.AtomicRequestLen)
	req.Put(b)
	return messageFPDU(rdmap.OpAtomicRequest, msn, b)
}

// response reads one whole Read Response, of any number of segments, and returns its octets.
func (p *peer) response(rr rdmap.ReadRequest) []byte {
	p.d.t.Helper()
	var got []byte
	for {
		f := p.nextFPDU()
		require.Equal(p.d.t, ddp.Header{
			Tagged: true, Last: f.Last, Version: 1, ULP: rdmap.Control(1, rdmap.OpReadResponse),
			STag: rr.SinkSTag, TO: rr.SinkTO + uint64(len(got))}, f.Header, "%v", f)
		if got = append(got, f.payload...); f.Last {
			return got
		}
	}
}

// atomicResponse reads the msn-th Atomic Response.
func (p *peer) atomicResponse(msn uint32) rdmap.AtomicResponse {
	p.d.t.Helper()
	f := p.nextFPDU()
	require.Equal(p.d.t, ddp.Header{Last: true, Version: 1, ULP: 0x4b, QN: 3, MSN: msn},
		f.Header, "%v", f)
	a, ok := rdmap.ParseAtomicResponse(f.payload)
	require.True(p.d.t, ok, "%v", f)
	return a
}

// reads are the first n Requests, for so many octets from the region's first, the sizes by turns;
// the last is of the first size.
func reads(m *MemoryRegion, n int, sizes ...int) (burst []fpdu, outstanding []rdmap.ReadRequest) {
	for i := range n {
		h, rr := readOf(uint32(i+1), m.STag(), m.Base(), sizes[(n-1-i)%len(sizes)])
		burst, outstanding = append(burst, readFPDU(h, rr)), append(outstanding, rr)
	}
	return burst, outstanding
}

// One Request more than IRD finds no buffer and ends its stream; another stream of the same
// domain and completion queue has buffers of its own, and goes on. Reads and atomics share them.
//
// req: 5040-6.1-2, 5040-8.1.2-2, 5042-6.4.3.3-1, 5042-6.4.3.3-3, 5042-A-3, 7306-5.2-1, 7306-5.2.2-2
// req: 5040-8.1.1-6, 5042-6.4.3.3-2
// req: 5042-7.2-1
func TestMoreThanIRD(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s := r.newEnd(r.server, connOpts(ConnParam{IRD: 3}))
	other := r.newEnd(r.server, opts{QPOptions: QPOptions{PD: s.pd, SendCQ: s.cq, RecvCQ: s.cq},
		ConnParam: ConnParam{IRD: 3}})
	m := r.readable(s, regionBytes, RemoteRead|RemoteWrite)
	p, _ := r.peerConnects(s, false)
	q, _ := r.peerConnects(other, false)
	burst := func(n int) (b []fpdu, last rdmap.ReadRequest) {
		for msn := range uint32(n) {
			if msn == 1 {
				b = append(b, atomicFPDU(msn+1, rdmap.AtomicRequest{ID: 5, STag: m.STag(), TO: m.Base()}))
				continue
			}
			h, rr := readOf(msn+1, m.STag(), m.Base(), 10)
			b, last = append(b, readFPDU(h, rr)), rr
		}
		return b, last
	}
	b, _ := burst(4)
	p.inject(b...)
	term := p.expectTerminateFor(0x1202)
	require.Equal(t, [2]uint32{1, 4}, [2]uint32{term.DDP.QN, term.DDP.MSN})
	p.ends(s)

	b, last := burst(3)
	q.inject(b...)
	_, first := readOf(1, 0, 0, 10)
	q.response(first)
	require.EqualValues(t, 5, q.atomicResponse(1).ID)
	q.response(last)
	q.closeSend()
	other.expectClosed()
}

// A Request that arrives ahead of a gap is placed, and neither looked at nor carried out before
// the gap is filled: a Read after a Write returns what was written, an atomic adds to it.
//
// req: 5040-5.5-5, 7306-5.4-2, 7306-5.2.1-4
func TestNothingBeforeDelivery(t *testing.T) {
	for _, atomic := range []bool{false, true} {
		r := newRig(t, turned, rigConfig{})
		s := r.newEnd(r.server, connOpts(ConnParam{IRD: 4}))
		m := r.readable(s, 4096, RemoteRead|RemoteWrite)
		p := r.peerDials()
		p.write(unhex(t, hexReq+"4001 0000"))
		req := r.request()
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		require.True(t, p.expectReply().Markers)
		value := bytes.Repeat([]byte{9}, 460)
		first := p.frame(writeFPDU(m.STag(), m.Base(), value))
		h, rr := readOf(1, m.STag(), m.Base(), 8)
		second := p.frame(readFPDU(h, rr)) // has the marker at 512, which locates it
		if atomic {
			p.start(mpa.Mode{Markers: true, CRC: true})
			first = p.frame(writeFPDU(m.STag(), m.Base(), value))
			second = p.frame(atomicFPDU(1, rdmap.AtomicRequest{STag: m.STag(), TO: m.Base(), Data: 1}))
		}
		l := req.connection
		at := l.StreamBase()
		require.Equal(t, stack.Taken, offer(l, at+uint64(len(first)), second))
		require.EqualValues(t, 1, s.qp.engine.Stats().Receive.FPDUs, "the Request was placed")
		before := bytes.Clone(m.Bytes())
		r.pass(10 * time.Microsecond)
		p.expectNothing()
		require.Equal(t, before, m.Bytes())
		require.Equal(t, stack.Taken, offer(l, at, first))
		l.Edge(at + uint64(len(first)))
		require.NotEqual(t, before, m.Bytes())
		require.Equal(t, value, m.Bytes()[:460], "the Write alone")
		l.Edge(at + uint64(len(first)+len(second)))
		const nines = 0x0909090909090909
		if atomic {
			require.EqualValues(t, nines, p.atomicResponse(1).Original)
			require.EqualValues(t, nines+1, binary.NativeEndian.Uint64(m.Bytes()))
		} else {
			require.Equal(t, value[:8], p.response(rr))
		}
		s.qp.Abort()
		s.awaitClosed()
	}
}

// What is being read is revoked: the Response ends, no octet leaves from then on, and the
// Terminate's copy of the Request says how far it came.
//
// req: 5040-4.8-10, 5042-6.2.2-2
func TestSourceRevokedMeanwhile(t *testing.T) {
	const n = 256 << 10
	for _, acknowledged := range []bool{false, true} {
		r := newRig(t, turned, rigConfig{})
		s := r.newEnd(r.server, connOpts(ConnParam{IRD: 4, Acknowledged: acknowledged}))
		m := r.readable(s, n, RemoteRead)
		want := bytes.Clone(m.Bytes())
		p, _ := r.peerConnects(s, false)
		h, rr := readOf(1, m.STag(), m.Base(), n)
		p.inject(readFPDU(h, rr))
		r.until("some of it", func() bool { return len(p.octets()) > 5000 })
		m.Revoke()
		clear(m.Bytes())
		var got []byte
		sent := p.untilFIN()
		for _, f := range sent[:len(sent)-1] {
			if f.Tagged { // and not an acknowledgement
				got = append(got, f.payload...)
			}
		}
		term, ok := rdmap.ParseTerminate(sent[len(sent)-1].payload)
		require.True(t, ok)
		rr.Advance(uint32(len(got)))
		require.Equal(t, rdmap.Terminate{
			Cause: rdmap.CauseInvalidSTag, HasDDP: true, HasSegmentLen: true, HasRead: true, SegmentLen: 46,
			DDP: h, Read: rr}, term)
		require.Greater(t, len(got), 1400)
		require.Less(t, len(got), n)
		require.True(t, bytes.Equal(want[:len(got)], got))
		p.ends(s)
		require.ErrorContains(t, s.qp.Err(), rdmap.CauseInvalidSTag.String())
	}
}

// Responses and what was posted take turns, message by message.
//
// req: 5040-5.5-11, 5040-5.5-6
func TestResponsesAndSendsTakeTurns(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s := r.newEnd(r.server, connOpts(ConnParam{IRD: 4}))
	m := r.readable(s, regionBytes, RemoteRead)
	p, _ := r.peerConnects(s, false)
	var burst []fpdu
	for msn := range uint32(3) {
		h, rr := readOf(msn+1, m.STag(), m.Base(), 4000)
		burst = append(burst, readFPDU(h, rr))
	}
	p.inject(burst...)
	for range 5 {
		s.post(s.sendQuietly(0, 10))
	}
	order := ""
	for len(order) < 8 {
		if f := p.nextFPDU(); f.Last {
			order += map[bool]string{true: "R", false: "S"}[f.Tagged]
		}
	}
	require.Contains(t, []string{"RSRSRSSS", "SRSRSRSS"}, order)
}
