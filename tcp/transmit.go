package tcp

import "encoding/binary"

// Transmit is one segment to send. The caller writes the header with Put before the payload
// (Handle's octets [Off, Off+Len)) and computes the checksum. Window is as it stands on the wire,
// scaled.
type Transmit struct {
	ID         ID
	Seq, Ack   Seq
	Flags      Flags
	TOS        uint8 // for the IP header: DS field and ECN
	Window     uint16
	Options    Options
	Handle     Handle
	Off, Len   int
	Retransmit bool

	// More is how many segments, queued after this one, go with it: as long, and the same except for
	// sequence number, handle, and PSH, of which the pieces that were pushed tell.
	More int
}

// HeaderLen is the length of header and options, a multiple of 4, at most headerLenMax.
func (t *Transmit) HeaderLen() int { return HeaderLenMin + t.Options.wireLen() }

// Put writes HeaderLen octets to b; the checksum field is zero. URG is never set (RFC 9293 section
// 3.8.5, SHLD-13).
func (t *Transmit) Put(b []byte) {
	n := t.HeaderLen()
	b = b[:n]
	h := (*[HeaderLenMin]byte)(b)
	binary.BigEndian.PutUint16(h[0:], t.ID.LocalPort)
	binary.BigEndian.PutUint16(h[2:], t.ID.RemotePort)
	binary.BigEndian.PutUint32(h[4:], uint32(t.Seq))
	binary.BigEndian.PutUint32(h[8:], uint32(t.Ack))
	h[12] = byte(n / 4 << 4)
	h[13] = byte(t.Flags)
	binary.BigEndian.PutUint16(h[14:], t.Window)
	binary.BigEndian.PutUint32(h[16:], 0)
	t.Options.put(b[HeaderLenMin:])
}

// ResetFor makes the RST that answers a segment without a connection (RFC 9293 section 3.10.7.1);
// false when s carries RST. id.Local is the address the segment was sent to. A listener answers an
// ACK with it, too. Timestamps are answered with timestamps, without a clock (RFC 7323 section
// 5.2).
func ResetFor(id ID, s *Segment, t *Transmit) bool {
	if s.Flags&RST != 0 {
		return false
	}
	*t = Transmit{ID: id, Handle: NoHandle}
	t.Options.clear()
	if s.Options.HasTimestamps {
		t.Options.HasTimestamps, t.Options.TSecr = true, s.Options.TSval
	}
	if s.Flags&ACK != 0 {
		t.Seq, t.Flags = s.Ack, RST
		return true
	}
	t.Ack, t.Flags = s.Seq+Seq(s.SeqLen()), RST|ACK
	return true
}
