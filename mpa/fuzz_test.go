package mpa

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

func FuzzParseFrame(f *testing.F) {
	for _, g := range goldenFrames {
		f.Add(unhex(f, g.hex), g.f.Kind == Reply, 512)
	}
	f.Add(unhex(f, hexRtr+"40 01 0000"), false, -1) // a negative limit: an Rtr frame is wanted
	f.Add([]byte("GET / HTTP/1.0\r\n"), false, 0)
	f.Fuzz(func(t *testing.T, b []byte, reply bool, limit int) {
		want := Request
		if reply {
			want = Reply
		}
		if limit < 0 {
			want, limit = Rtr, 512
		}
		fr, n, err := ParseFrame(b, want, limit)
		if err != nil {
			if e, ok := err.(*Error); !ok || e.Code != ErrStartup || n != 0 {
				t.Fatalf("error %v, n %d", err, n)
			}
			return
		}
		if n == 0 {
			require.False(t, len(b) >= FrameLen+PrivateDataMax && b[17] > 0, "waits for ever")
			return
		}
		require.LessOrEqual(t, n, len(b))
		require.LessOrEqual(t, len(fr.PrivateData), limit)
		again := fr.Append(nil)
		canonical := append([]byte(nil), b[:n]...)
		canonical[16] &= 0xF0
		if want != Reply {
			canonical[16] &^= flagReject
		}
		if want == Rtr {
			canonical[16] &^= flagS
			canonical[9] = 'r' // the other of the two Keys
		}
		require.True(t, bytes.Equal(canonical, again), "\n%x\n%x", canonical, again)
		if _, m, err := ParseFrame(b[:n-1], want, limit); m != 0 || err != nil {
			t.Fatalf("one octet short: %d, %v", m, err)
		}
	})
}

// FuzzReceiver cuts a stream at will and delivers the segments in any order; sizes and plan are
// the fuzzer's. flags, from the lowest bit: markers, CRC, DropBadCRC, where octets stand in their
// Bufs (3 bits), where the stream begins (2 bits).
func FuzzReceiver(f *testing.F) {
	f.Add(uint8(3), []byte{42, 42, 200, 0, 1, 255, 9}, []byte{20, 3, 1, 80, 0, 2, 255, 1})
	f.Add(uint8(1), []byte{42, 42, 200}, []byte{1})
	f.Add(uint8(7), []byte{255, 255, 255, 3}, []byte{100, 0, 100, 1, 100, 2})
	f.Add(uint8(7), []byte{48, 255}, []byte{48}) // the first segment is late, and ends inside an FPDU
	f.Add(uint8(7), []byte{255, 255, 255}, []byte{48, 48, 48})
	// 32 bits do not hold the offsets
	f.Add(uint8(3|1<<6), []byte{100, 255, 0, 1, 2, 3, 180, 255}, []byte{30, 3, 90, 14, 0, 0, 6, 255})
	f.Add(uint8(1|2<<6), []byte{98, 0, 0, 0, 99, 1, 1, 1}, []byte{0, 1, 2, 3, 4, 5, 6, 7})
	f.Add(uint8(2), []byte{255, 255, 255, 255, 255, 255}, []byte{200, 100, 0})
	f.Add(uint8(0), []byte{0, 0, 0, 0, 255, 0, 0}, []byte{3, 0, 6})
	f.Fuzz(func(t *testing.T, flags uint8, sizes, plan []byte) {
		mode := Mode{Markers: flags&1 != 0, CRC: flags&2 != 0}
		if len(sizes) == 0 || len(sizes) > 40 || len(plan) == 0 || len(plan) > 400 {
			return
		}
		s := &stream{mode: mode}
		for i, n := range sizes {
			s.add(ulpdu(i, int(n)*5))
		}
		r := newRig(t, rigConfig{Mode: mode, Stride: 1664, DropBadCRC: flags&4 != 0,
			Base: pickBase(int(flags >> 6))}, s)
		r.pos = int(flags >> 3 & 7)
		r.play(plan)
		checkAll(t, r)
	})
}

// play sends the stream in segments whose lengths and delays plan gives; what is late or refused
// comes at the end, in order.
func (r *rig) play(plan []byte) {
	var late []segment
	at := 0
	for i := 0; at < len(r.s.octets); i++ {
		k := int(plan[i%len(plan)])
		n := min(1+k*6, 1500, len(r.s.octets)-at)
		g := segment{at, at + n}
		at += n
		if (k+i)%3 == 0 || r.send(g.lo, g.hi).verdict == Refused {
			late = append(late, g)
		}
		if k%7 == 0 && len(late) > 0 { // some come earlier than others
			g := late[len(late)-1]
			if r.send(g.lo, g.hi).verdict != Refused {
				late = late[:len(late)-1]
			}
		}
	}
	for _, g := range late {
		// DropBadCRC doubts what ends inside an FPDU, when the peer's segments were whole so far; it
		// comes again as it was.
		if r.send(g.lo, g.hi).verdict == Refused &&
			(!r.recv.drop || r.insist(g.lo, g.hi).verdict == Refused) {
			r.t.Fatal("refused in order")
		}
	}
}

// FuzzReceiverGarbage is a peer that sends anything, in any order: no panic, no leak, and in
// order the oracle's verdict.
func FuzzReceiverGarbage(f *testing.F) {
	for i := range goldenDumps {
		_, f1, _, _ := goldenFigures(f, i)
		f.Add(uint8(3), f1, []byte{9, 1})
	}
	s := streamOf(withMarker, 600, 700, 10)
	f.Add(uint8(1), s.octets, []byte{80, 1, 2})
	f.Add(uint8(0), streamOf(plain, 600, 700, 10).octets, []byte{80})
	f.Fuzz(func(t *testing.T, flags uint8, octets, plan []byte) {
		if len(octets) > 8192 || len(plan) > 400 || len(plan) == 0 {
			return
		}
		mode := Mode{Markers: flags&1 != 0, CRC: flags&2 != 0}
		s := &stream{mode: mode, octets: octets}
		base := pickBase(int(flags >> 6))
		r := newRig(t, rigConfig{Mode: mode, Stride: 1664, Base: base}, s)
		r.play(plan)
		r.recv.Close()
		r.held(0)

		want, _, err := naiveDecode(mode, octets)
		r = newRig(t, rigConfig{Mode: mode, Stride: 1664, DropBadCRC: flags&4 != 0, Base: base}, s)
		for at, i := 0, 0; at < len(octets); i++ {
			n := min(1+int(plan[i%len(plan)])*6, len(octets)-at)
			if r.send(at, at+n).verdict == Refused {
				break
			}
			at += n
		}
		if r.verdict != Refused {
			if (err != nil) != (r.recv.Err() != nil) {
				t.Fatalf("oracle %v, Receiver %v", err, r.recv.Err())
			}
			require.Len(t, want, len(r.got))
		}
		for i := range r.got {
			require.Equal(t, r.got[i], want[i], "FPDU %d differs", i)
		}
		r.recv.Close()
		r.held(0)
	})
}

// FuzzNegotiate has an Initiator read whatever Reply, and a Responder answer whatever Request:
// what both hold to then are the rules that any pair of ends must keep (RFC 6581 section 9).
//
// req: 6581-12-1
func FuzzNegotiate(f *testing.F) {
	f.Add(unhex(f, hexRequest+"10 02 0004 8001C001"), unhex(f, hexReply+"10 02 0004 80018001"),
		uint16(1), uint16(1), uint8(0xff))
	f.Add(unhex(f, hexRequest+"D0 01 0000"), unhex(f, hexReply+"10 01 0000"), uint16(0), uint16(0),
		uint8(0x0f))
	f.Add(unhex(f, hexRequest+"C0 00 0000"), unhex(f, hexReply+"C0 00 0000"), uint16(3),
		uint16(4), uint8(0))
	f.Fuzz(func(t *testing.T, request, reply []byte, ird, ord uint16, flags uint8) {
		p := Party{
			Dialects: FramedDialects, Markers: flags&1 != 0, CRC: flags&2 != 0, PeerToPeer: flags&4 != 0,
			RTR: 1 + RTRKinds(flags>>3)%7,
			IRD: ird & DepthULP, ORD: ord & DepthULP,
		}
		if req, n, err := ParseFrame(request, Request, PrivateDataMax); n > 0 && err == nil {
			fuzzAnswer(t, &p, &req)
		}
		rep, n, err := ParseFrame(reply, Reply, PrivateDataMax)
		if n == 0 || err != nil {
			return
		}
		for _, d := range []Dialect{RDDP01, RFC5044, RTR, RFC6581} {
			req := p.Request(d, nil)
			if !p.Accepts(&req, &rep) {
				continue
			}
			terms, err := p.Conclude(&req, &rep)
			switch {
			case err != nil:
				continue
			case terms.Enhanced && terms.ORD != p.ORD && terms.ORD > terms.Peer.IRD,
				terms.Enhanced && terms.Peer.ORD != DepthULP && terms.Peer.ORD > terms.IRD,
				terms.RTR&^p.RTR != 0, terms.RtrFrame && !req.S, (terms.Version == 0) != (rep.Rev == 0):
				t.Fatalf("%+v of %+v", terms, rep)
			}
		}
	})
}

func fuzzAnswer(t *testing.T, p *Party, req *Frame) {
	if _, ok := p.Dialects.Serve(req); !ok {
		if f, ok := p.Dialects.Refusal(req); !ok || f.Rev >= req.Rev || !f.Reject {
			t.Fatalf("%+v to %+v", f, req)
		}
		return
	}
	rep, terms, err := p.Answer(req, nil)
	if err != nil {
		if _, _, e := req.Enhanced(); e == nil {
			t.Fatal(err)
		}
		return
	}
	e, _, err := rep.Enhanced()
	if err != nil || rep.IsEnhanced() != req.IsEnhanced() || rep.Rev != req.Rev ||
		e.PeerToPeer != terms.Peer.PeerToPeer && req.IsEnhanced() ||
		e.PeerToPeer && e.RTR == 0 || rep.S && !req.S {
		t.Fatalf("%+v to %+v: %v", rep, req, err)
	}
	if _, n, err := ParseFrame(rep.Append(nil), Reply, PrivateDataMax); n == 0 || err != nil {
		t.Fatal("the Reply is no frame")
	}
}
