package rnic

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
)

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
	s, c := r.connect(opts{ConnParam: ConnParam{NoMarkers: true}},
		opts{ConnParam: ConnParam{NoMarkers: true}})
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
