package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// headerTemplate is the headers of the last data segment made in this Turn, and what they were made
// from. Where the device completes the checksum, the next segment of the same connection differs
// only in its sequence number and perhaps its flags: the rest is copied, the sum of the
// pseudo-header too.
type headerTemplate struct {
	octets      int // of payload; 0: there is no template
	conn        connIndex
	life        uint32
	ack         tcp.Seq
	window      uint16
	tos         uint8
	stamped     bool
	tsVal, tsEc uint32
	desc        mem.Desc
	length      int // of all headers
	headers     [headersMax]byte
}

// putAgain is putHeaders of a segment that the template fits; false: it does not.
func (x *transmitter) putAgain(c *Conn, b mem.Buf, t *tcp.Transmit) bool {
	l := &x.last
	o := &t.Options
	if t.Len == 0 || !l.of(c, t.Len) || !plain(t) || t.Ack != l.ack ||
		t.Window != l.window || t.TOS != l.tos || o.HasTimestamps != l.stamped || o.TSval != l.tsVal ||
		o.TSecr != l.tsEc {
		return false
	}
	l.put(x.pool, b, t)
	return true
}

// of says whether l is the template of a segment of c with n octets.
func (l *headerTemplate) of(c *Conn, n int) bool {
	return l.octets == n && l.conn == c.index && l.life == c.life
}

// put writes the headers of t in front of b's octets.
func (l *headerTemplate) put(pool *mem.Pool, b mem.Buf, t *tcp.Transmit) {
	*pool.Desc(b) = l.desc
	h := pool.Slot(b)[l.desc.Off:][:l.length]
	copy(h, l.headers[:])
	header := (*[tcp.HeaderLenMin]byte)(h[l.desc.CsumStart:])
	binary.BigEndian.PutUint32(header[4:], uint32(t.Seq))
	header[tcpFlagsAt] = byte(t.Flags)
}

// putHeaders writes t's headers in front of the n payload octets at the pool's headroom, whose sum
// is given, all but the Ethernet destination.
func (x *transmitter) putHeaders(b mem.Buf, t *tcp.Transmit, n int, sum uint16) {
	hlen := t.HeaderLen()
	at := x.l2 + iphost.IPLen(&t.ID.Remote) // of the TCP header in the frame
	h := x.pool.Headroom()
	off := h - hlen - at
	frame := x.pool.Slot(b)[off : h+n]
	if t.ID.Remote.Is4() {
		x.putEthernet(frame, inet.EtherTypeIPv4)
		ip := inet.IPv4{
			TOS: t.TOS, DF: true, TTL: x.cfg.TTL, Proto: inet.ProtoTCP, Src: t.ID.Local, Dst: t.ID.Remote,
			HdrLen: inet.IPv4Len, TotalLen: inet.IPv4Len + hlen + n,
		}
		ip.Put(frame[x.l2:])
	} else {
		x.putEthernet(frame, inet.EtherTypeIPv6)
		ip := inet.IPv6{
			TrafficClass: t.TOS, PayloadLen: hlen + n, NextHeader: inet.ProtoTCP,
			HopLimit: x.host.HopLimit(&t.ID.Remote),
			Src:      t.ID.Local, Dst: t.ID.Remote,
		}
		ip.Put(frame[x.l2:])
	}
	header := frame[at : at+hlen]
	t.Put(header)
	pseudo := inet.PseudoSum(t.ID.Local, t.ID.Remote, inet.ProtoTCP, hlen+n)
	d := x.pool.Desc(b)
	d.Off, d.Len, d.Flags = uint32(off), uint32(len(frame)), 0
	if x.cfg.Caps.TxChecksum {
		d.Flags = mem.TxChecksum
		d.CsumStart, d.CsumOffset = uint16(at), checksumOffset
		binary.BigEndian.PutUint16(header[checksumOffset:], inet.Fold(pseudo))
		return
	}
	// The header is a whole number of 32-bit words, so the payload's sum may be added as it is.
	binary.BigEndian.PutUint16(header[checksumOffset:], inet.Checksum(header, pseudo+uint64(sum)))
}

// remember makes t, whose headers have just been written in front of b's octets, the template.
func (x *transmitter) remember(c *Conn, b mem.Buf, t *tcp.Transmit) {
	l := &x.last
	if l.octets = 0; t.Len == 0 || !x.cfg.Caps.TxChecksum || !plain(t) {
		return
	}
	d := x.pool.Desc(b)
	l.octets, l.conn, l.life, l.desc = t.Len, c.index, c.life, *d
	l.ack, l.window, l.tos = t.Ack, t.Window, t.TOS
	l.stamped, l.tsVal, l.tsEc = t.Options.HasTimestamps, t.Options.TSval, t.Options.TSecr
	l.length = copy(l.headers[:], x.pool.Slot(b)[d.Off:x.pool.Headroom()])
}

// plain says that t has no options but timestamps.
func plain(t *tcp.Transmit) bool { return t.Flags&tcp.SYN == 0 && t.Options.SACKCount == 0 }
