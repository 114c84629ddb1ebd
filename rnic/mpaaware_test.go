package rnic

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/tcp"
)

// logged makes a turned rig whose client's segments towards the server are written down.
func logged(t *testing.T, cfg rigConfig) (*rig, *segmentLog) {
	t.Helper()
	r, logs := bothLogged(t, cfg)
	return r, logs[1]
}

// bothLogged has a log of each host, server and client; the server's is for injecting.
func bothLogged(t *testing.T, cfg rigConfig) (*rig, [2]*segmentLog) {
	t.Helper()
	logs := [2]*segmentLog{{}, {port: rigPort}}
	cfg.wrap = func(i int, q pmd.Queue, pool *mem.Pool) pmd.Queue {
		logs[i].Queue, logs[i].pool = q, pool
		return logs[i]
	}
	return newRig(t, turned, cfg), logs
}

// startupLen is the MPA Request without private data that goes before FPDUs.
const startupLen = 20

// Every segment begins with an FPDU and holds whole FPDUs, retransmissions with the boundaries of
// the first time.
//
// req: D01-3.1.1-1, D01-3.1.1-2, D01-5.3-2, D01-5.3-8, 5044-5.1-3, 5044-A.1-1
// req: C02-5.1.1-1, C02-5.1.1-2, C02-7.3-2, C02-7.3-8
// req: D01-2-3, D01-2-4, C02-4-3, 5044-2-1
func TestSegmentsHoldWholeFPDUs(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			r, log := logged(t, rigConfig{})
			log.lose = func(s loggedSegment) bool { return s.sent%17 == 5 }
			s, c := r.connect(opt, opt)
			for i := range 60 {
				n := 1 + i*i*17%9000
				c.post(c.write(s, uint64(i), 10*i, n))
			}
			c.await(60)
			arrived(c, s)
			bounds := fpduBounds(t, log.stream(), startupLen, !opt.NoMarkers)
			again := map[int]int{}
			resent, packed := 0, 0
			for _, g := range log.segs {
				if g.off < startupLen {
					require.Equal(t, startupLen, g.off+len(g.data), "the Request travels alone")
					continue
				}
				require.True(t, g.aligned(bounds), "a segment at %d, %d octets", g.off, len(g.data))
				for at := g.off + 1; at < g.off+len(g.data); at++ {
					if bounds[at] {
						packed++
						break
					}
				}
				if n, ok := again[g.off]; ok {
					resent++
					require.Equal(t, n, len(g.data), "retransmission of %d", g.off)
				}
				again[g.off] = len(g.data)
			}
			require.Positive(t, resent)
			require.Positive(t, packed)
			r.close(s, c)
		})
	}
}

// All full segments of a long message are equally long, with markers too, so that a device can
// cut them from one: EMSS, and the markers are where they belong.
//
// req: D01-5.1-3, D01-5.1-9, D01-5.1-10, D01-5.1-11, C02-7.1-1, C02-7.1-7, C02-7.1-8, C02-7.1-9
// req: 5044-4.3-4
func TestFullSegmentsAreEquallyLong(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			r, log := logged(t, rigConfig{})
			s, c := r.connectEnds(r.newEndOf(r.server, opt, 1<<18), r.newEndOf(r.client, opt, 1<<18))
			c.post(c.write(s, 1, 0, 200_000))
			arrived(c, s)
			require.True(t, bytes.Equal(c.source.Bytes()[:200_000], s.region.Bytes()[:200_000]))
			const emss = 1448
			short := 0
			for _, g := range log.segs {
				if g.off >= startupLen && len(g.data) != emss {
					short++
				}
			}
			require.LessOrEqual(t, short, 3, "segments of %d", len(log.segs))
			stream := log.stream()
			bounds := fpduBounds(t, stream, startupLen, !opt.NoMarkers)
			for off := 0; !opt.NoMarkers && startupLen+off < len(stream); off += mpa.MarkerSpacing {
				says, is := markedAt(stream, startupLen, off, bounds)
				require.Equal(t, is, says, "marker at %d", off)
			}
			r.close(s, c)
		})
	}
}

// What small messages wait for: nothing, or company while octets are unacknowledged.
//
// req: D01-5.3-3, D01-5.3.1-1, D01-5.3.1-2, D01-5.3.2-4, 5044-A.2-1, C02-7.3-3, C02-7.3.1-2
// req: C02-7.3.1-1, C02-7.3.2-3
func TestPacking(t *testing.T) {
	const messages = 200
	run := func(t *testing.T, p Packing) (segments int) {
		r, log := logged(t, rigConfig{})
		s, c := r.connect(qpOpts(QPOptions{RecvDepth: messages}),
			opts{QPOptions: QPOptions{SendDepth: messages}, ConnParam: ConnParam{Packing: p}})
		s.postRecvs(messages, 100)
		for i := range messages {
			c.post(c.send(uint64(i), i, 64))
			r.step()
		}
		got := s.await(messages)
		for i, g := range got {
			require.Equal(t, uint64(i), g.ID)
			require.Equal(t, c.source.Bytes()[i:i+64], s.inbox.Bytes()[100*i:100*i+64])
		}
		bounds := fpduBounds(t, log.stream(), startupLen, true)
		for _, g := range log.segs {
			require.True(t, g.off < startupLen || g.aligned(bounds))
		}
		r.close(s, c)
		return len(log.segs)
	}
	now, full := run(t, PackNow), run(t, PackFull)
	require.Greater(t, now, messages/2, "segments when nothing waits")
	require.Less(t, full, messages/10, "segments when they are filled")
}

// A message is cut to fill what small ones left of a segment, but not into pieces under 128 octets.
//
// req: D01-5.3.2-9, D01-5.3.2-10
// req: C02-7.3.2-8, C02-7.3.2-9
func TestPackFullFillsSegments(t *testing.T) {
	r, log := logged(t, rigConfig{})
	opt := connOpts(ConnParam{Packing: PackFull, NoMarkers: true})
	s, c := r.connect(opt, opt)
	for i := range 40 { // a small one and a long one, over and over
		c.post(c.write(s, uint64(2*i), 0, 100+i*25))
		c.post(c.write(s, uint64(2*i+1), 5000, 4000))
	}
	c.await(80)
	r.close(s, c)
	emss, short := 1448, 0
	stream := log.stream()
	for at := range fpduBounds(t, stream, startupLen, false) {
		if at < len(stream) && binary.BigEndian.Uint16(stream[at:]) < mpa.MULPDUMin {
			require.NotZero(t, stream[at+2]&0x40,
				"a piece under 128 octets is the tail of its message (DDP's L bit)")
		}
	}
	for _, g := range log.segs {
		if len(g.data) < emss-2*mpa.MULPDUMin {
			short++
		}
	}
	require.LessOrEqual(t, short, 4, "segments that were not filled, of %d", len(log.segs))
}

// The path's MTU shrinks while FPDUs are on their way. MULPDU follows EMSS for what is built from
// then on; what was built before is sent all the same, cut where it must be; the stream stays
// regular; and once the rest has drained every segment begins with an FPDU again.
//
// req: C02-5.1.1-3, C02-7.3-5, D01-3.1.1-3, D01-3.2-3, D01-5.3-4, D01-5.3-5, D01-5.3-7, D01-5.3.2-6
// req: 5044-5.1-4
// req: C02-5.2-3, C02-7.3-4, C02-7.3-7, C02-13.1.1.1-4, C02-13.1.1.2-4, D01-11.2.1-4, D01-11.2.2-4
// req: DDP-5-1, DDP-5-2
func TestPathMTUShrinksUnderPostedFPDUs(t *testing.T) {
	for name, opt := range framings {
		t.Run(name, func(t *testing.T) {
			r, log := logged(t, rigConfig{mtu: 9000})
			s, c := r.connect(opt, opt)
			const n, mtu, emss = 60_000, 1500, 1500 - 40 - 12
			// the connection that is too small
			log.lose = func(g loggedSegment) bool { return len(g.data) > emss }
			c.post(c.write(s, 1, 0, n))
			r.until("something was sent", func() bool { return len(log.segs) >= 3 })
			log.tooBig(mtu)
			r.until("EMSS follows", func() bool {
				return c.qp.end.Connection.Load().Transport.EMSS() == emss
			})
			c.await(1)
			arrived(c, s)
			require.Equal(t, c.source.Bytes()[:n], s.region.Bytes()[:n])
			full := must(c.qp.PayloadMax(r.ctx))
			require.Less(t, full, emss)

			before := len(log.segs)
			c.post(c.write(s, 3, 0, n))
			arrived(c, s)
			stream := log.stream()
			bounds := fpduBounds(t, stream, startupLen, !opt.NoMarkers)
			unaligned := 0
			for i, g := range log.segs {
				aligned := g.off < startupLen || g.aligned(bounds)
				if i >= before {
					require.True(t, aligned, "segment at %d, long after the change", g.off)
					require.LessOrEqual(t, len(g.data), emss)
				} else if !aligned {
					unaligned++
				}
			}
			require.Positive(t, unaligned, "FPDUs built for 9000 had to be cut")
			require.Positive(t, r.stats(s.qp).Placed.Reassembled, "and were put together again")
			r.close(s, c)
		})
	}
}

// A receive window smaller than an FPDU: the FPDU goes out in pieces, and arrives.
//
// req: D01-5.3-5, D01-5.3-4
// req: C02-7.3-4
func TestWindowSmallerThanAnFPDU(t *testing.T) {
	r, log := logged(t, rigConfig{tcp: tcp.Config{ReceiveWindow: 1000}})
	s, c := r.connect(opts{}, opts{})
	const n = 20_000
	c.post(c.write(s, 1, 0, n))
	arrived(c, s)
	require.Equal(t, c.source.Bytes()[:n], s.region.Bytes()[:n])
	fpduBounds(t, log.stream(), startupLen, true)
	for _, g := range log.segs {
		require.LessOrEqual(t, len(g.data), 1000)
	}
	r.close(s, c)
}

// Segments beyond a gap reach MPA at once and are placed; what they say is not delivered before
// the gap is filled; nothing is handed up twice, and a later copy with other octets, however
// valid, changes nothing.
//
// req: C02-5.1.2-1, C02-5.1.2-2, C02-5.1.2-3, C02-5.1.2-4, C02-5.1.2-5, C02-5.1.2-6, C02-5.1.2-7
// req: C02-5.1.2-8, C02-5.1.2-12
// req: D01-3.1.2-1, D01-3.1.2-2, D01-3.1.2-3, D01-3.1.2-4, D01-3.1.2-5, D01-3.1.2-6, D01-3.1.2-7
// req: D01-3.1.2-8, 5044-A.3-1
// req: C02-5.1.2-10, D01-3.1.2-10, D01-11.1.1-3, DDP-5-6
func TestSegmentsBeyondAGap(t *testing.T) {
	r, logs := bothLogged(t, rigConfig{})
	log := logs[1]
	// so that only TCP can keep other octets out
	s, c := r.connect(connOpts(ConnParam{NoCRC: true}), connOpts(ConnParam{NoCRC: true}))
	const n = 10_000
	gap := 0
	log.lose = func(g loggedSegment) bool {
		if gap == 0 && g.off > 3000 {
			gap = g.off
		}
		return g.off == gap && gap != 0
	}
	s.postRecv(s.recvAt(9, 0, 100))
	c.post(c.write(s, 1, 0, n))
	c.post(c.send(2, 0, 100))
	stats := func() Stats {
		var v connect.View
		s.qp.end.Connection.Load().View(&v)
		return statsOf(v.Counters)
	}
	want, got := c.source.Bytes()[:n], s.region.Bytes()[:n]
	r.until("the rest is placed", func() bool { return bytes.Equal(want[n-1000:], got[n-1000:]) })
	r.pass(5 * time.Millisecond)
	require.NotEqual(t, want, got, "the gap is open")
	s.poll()
	// req: DDP-3.1-1, 5040-5.5-10
	require.Empty(t, s.done, "placed is not delivered")
	require.Positive(t, stats().TCP.OutOfOrder)

	last := log.segs[0]
	for _, g := range log.segs {
		if g.off > last.off {
			last = g
		}
	}
	require.Greater(t, last.off, gap)
	placed := stats().Placed
	logs[0].inject = append(logs[0].inject, last.forged(), last.frame)
	r.pass(time.Millisecond)
	// req: DDP-5-14, 5041-3-1
	require.Equal(t, placed, stats().Placed, "a duplicate was handed up")

	log.lose = nil
	s.await(1)
	require.Equal(t, want, got)
	r.close(s, c)
}

// segmentLog is a Queue that writes down the TCP payload of every segment that leaves a host
// towards a port.
type segmentLog struct {
	pmd.Queue
	pool *mem.Pool
	port uint16
	irs  tcp.Seq // of the first SYN seen
	segs []loggedSegment
	// lose says which of the logged segments do not reach the cable.
	lose   func(s loggedSegment) bool
	latest []byte   // the frame of the last of them
	inject [][]byte // frames for Rx
}

type loggedSegment struct {
	off   int // stream offset after the SYN
	data  []byte
	sent  int    // how many segments had been logged before
	frame []byte // all of it
}

func (q *segmentLog) Tx(bufs []mem.Buf) int {
	n := 0
	for _, b := range bufs {
		if s, ok := q.segment(b); ok {
			q.segs = append(q.segs, s)
			if q.lose != nil && q.lose(s) {
				n++
				continue
			}
		}
		if q.Queue.Tx([]mem.Buf{b}) == 0 {
			return n
		}
		n++
	}
	return n
}

func (q *segmentLog) segment(b mem.Buf) (loggedSegment, bool) {
	_, packet, drop := inet.ParseEthernet(q.pool.Data(b))
	if drop != inet.DropNone {
		return loggedSegment{}, false
	}
	ip, octets, drop := inet.ParseIPv4(packet, true)
	if drop != inet.DropNone || ip.Proto != inet.ProtoTCP {
		return loggedSegment{}, false
	}
	var s tcp.Segment
	if tcp.Parse(octets, &s) != tcp.DropNone || s.DstPort != q.port {
		return loggedSegment{}, false
	}
	if s.Flags&tcp.SYN != 0 {
		q.irs = s.Seq
	}
	if s.Len == 0 {
		return loggedSegment{}, false
	}
	q.latest = append(q.latest[:0], q.pool.Data(b)...)
	data := append([]byte(nil), octets[s.HdrLen:s.HdrLen+s.Len]...)
	return loggedSegment{s.Seq.Sub(q.irs + 1), data, len(q.segs), append([]byte(nil), q.latest...)},
		true
}

// forged is the frame of s with its last payload octets changed, and checksums that are right all
// the same.
func (s loggedSegment) forged() []byte {
	f := append([]byte(nil), s.frame...)
	for i := len(f) - len(s.data) + 20; i < len(f); i++ {
		f[i] ^= 0x55
	}
	ip, segment, _ := inet.ParseIPv4(f[inet.EthernetLen:], true)
	segment[16], segment[17] = 0, 0
	binary.BigEndian.PutUint16(segment[16:],
		inet.Checksum(segment, inet.PseudoSum(ip.Src, ip.Dst, inet.ProtoTCP, len(segment))))
	return f
}

// stream is all that was sent, in order, each octet as it was sent first.
func (q *segmentLog) stream() []byte {
	end := 0
	for _, s := range q.segs {
		end = max(end, s.off+len(s.data))
	}
	b := make([]byte, end)
	for i := len(q.segs) - 1; i >= 0; i-- {
		copy(b[q.segs[i].off:], q.segs[i].data)
	}
	return b
}

// fpduBounds walks MPA's stream as an ordered receiver does, by ULPDU_Length, and returns where
// FPDUs begin, and the end of the last one, as offsets of the TCP stream. base is where MPA
// begins.
func fpduBounds(t *testing.T, stream []byte, base int, markers bool) map[int]bool {
	t.Helper()
	at := base
	skip := func(n int) { // n octets of content, and the markers among them
		for ; n > 0; n-- {
			if markers && (at-base)%512 == 0 {
				at += 4
			}
			at++
		}
	}
	bounds := map[int]bool{}
	for at < len(stream) {
		bounds[at] = true
		if markers && (at-base)%512 == 0 {
			at += 4
		}
		ulpdu := int(binary.BigEndian.Uint16(stream[at:]))
		content := 2 + ulpdu
		skip(content + (4-content%4)%4)
		if markers && (at-base)%512 == 0 { // a marker may stand between the pad and the CRC
			at += 4
		}
		at += 4
	}
	require.Equal(t, len(stream), at, "the stream ends with an FPDU")
	bounds[at] = true
	return bounds
}

// aligned says whether a segment begins and ends where FPDUs do.
func (s loggedSegment) aligned(bounds map[int]bool) bool {
	return bounds[s.off] && bounds[s.off+len(s.data)]
}

// Rx delivers what inject left before what comes from the cable.
func (q *segmentLog) Rx(bufs []mem.Buf) int {
	n := 0
	for ; n < len(bufs) && len(q.inject) > 0; n++ {
		b := q.pool.Alloc()
		q.pool.Desc(b).Len = uint32(len(q.inject[0]))
		copy(q.pool.Data(b), q.inject[0])
		q.inject = q.inject[1:]
		bufs[n] = b
	}
	return n + q.Queue.Rx(bufs[n:])
}

// tooBig makes a router on the way say of the latest segment that its link carries no more than
// mtu (RFC 1191 section 4).
func (q *segmentLog) tooBig(mtu int) {
	quoted := q.latest[inet.EthernetLen : inet.EthernetLen+inet.IPv4Len+8]
	from, _, _ := inet.ParseIPv4(q.latest[inet.EthernetLen:], true)
	frame := make([]byte, inet.EthernetLen+inet.IPv4Len+inet.ICMPLen+len(quoted))
	eth := inet.Ethernet{Dst: inet.MAC(q.latest[6:12]), Src: inet.MAC(q.latest[0:6]),
		Type: inet.EtherTypeIPv4}
	eth.Put(frame)
	ip := inet.IPv4{Proto: inet.ProtoICMP, Src: from.Dst, Dst: from.Src, HdrLen: inet.IPv4Len,
		TotalLen: len(frame) - inet.EthernetLen}
	ip.Put(frame[inet.EthernetLen:])
	icmp := frame[inet.EthernetLen+inet.IPv4Len:]
	icmp[0], icmp[1] = inet.ICMPUnreachable, inet.ICMPFragNeeded
	binary.BigEndian.PutUint16(icmp[6:], uint16(mtu))
	copy(icmp[inet.ICMPLen:], quoted)
	binary.BigEndian.PutUint16(icmp[2:], inet.Checksum(icmp, 0))
	q.inject = append(q.inject, frame)
}

// The segment in which a message ends has PSH, though another message is queued after it.
//
// req: 9293-MUST-61
func TestPushAtTheEndOfEachMessage(t *testing.T) {
	r, log := logged(t, rigConfig{})
	s, c := r.connect(unmarked, unmarked)
	before := len(log.segs)
	for i := range uint64(3) {
		c.post(c.write(s, i, 0, 4000))
	}
	c.await(3)
	var flags []bool
	for _, g := range log.segs[before:] {
		flags = append(flags, g.frame[inet.EthernetLen+inet.IPv4Len+13]&byte(tcp.PSH) != 0)
	}
	require.Equal(t, []bool{false, false, true, false, false, true, false, false, true}, flags)
}
