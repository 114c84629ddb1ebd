package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/tcp"
	"github.com/rnicd/rnicd/mem"
)

const (
	tcpHeaderLen   = 20                              // without options
	checksumOffset = 16                              // of the checksum in a TCP header
	tcpAt          = inet.EthernetLen + inet.IPv4Len // of a frame without a VLAN tag
	headersMax     = inet.EthernetLen + inet.VLANLen + inet.IPv6Len + 60
)

// transmitter is the Poller's sending half.
//
// Who owns a sent Buf. The octets of a data segment stay in the Buf they were pulled into, at a
// fixed place (the pool's headroom), until TCP releases it; headers are written in front of them
// for each transmission. Between putHeaders and the device's Tx the frame also stands in a queue of
// ours: the batch, or the neighbour table's. So a Buf has up to three users, told apart by bits and
// without a count:
//
//   - TCP's sent ring: the owner's hold of mem.Pool, until Release
//   - a queue of ours: bufMeta.queued; if TCP releases the Buf meanwhile, freeAfter remembers to
//     free it
//   - the device: mem.Pool's device hold
//
// A retransmission of a Buf that is still queued is skipped (its first copy has not left: sending
// it twice does not help, and the retransmission timer still runs). One that the device still reads
// is copied to a fresh Buf, as is a part of a Buf (EMSS shrank, window probe), because its headers
// would stand in the middle of the octets.
type transmitter struct {
	frames  []mem.Buf // the batch, and what the device did not take: frames[:n]
	n       int
	ahead   int // frames[:ahead] go before octets (tx_batch.go)
	refused int // so many of the frames are left of what the device was last offered
	chunk   int // connections fill the batch with so many frames with octets before it is offered
	burst   int
	connMax int     // connections are held up from here on; the rest is for replies and ARP
	blocked bool    // the device took less than it was offered in this Turn
	alone   bool    // no more than one connection waits for its turn
	express bool    // what is sent now goes before octets of others
	allow   int     // octets that the connection being served may still send
	gotBack int     // Bufs that it may take in place of those it has given back
	spare   mem.Buf // at hand for the next control frame or Pull
	meta    []bufMeta
	segment tcp.Transmit
	last    headerTemplate // the data segment made last in this Turn
	ask     int            // segments that the connection being served is asked for next
	pulling pulling

	hop      inet.Addr // the last resolved next hop of this Turn
	hopMAC   inet.MAC
	hopKnown bool
}

// bufMeta is what the Poller keeps per Buf.
type bufMeta struct {
	conn   connIndex // whose frame it is, with its life; noConn: no connection's
	life   uint32
	sum    uint16 // ones-complement sum of the payload
	length uint16 // payload octets
	// when the device took it after it had refused it, in units of lateUnit; 0: at once
	late      uint32
	queued    bool // stands in the batch or with a neighbour
	refused   bool // the device did not take it when it was first offered it
	freeAfter bool // free it when it has left
	ahead     bool // goes before octets of others: tx_batch.go
}

// lateUnit shifts nanoseconds to those of bufMeta.late: 65 us each, which 32 bits count for three
// days.
const lateUnit = 16

// left is when the frame left our queues: now when it has not, 0 when it did so at once.
func (m *bufMeta) left(now int64) int64 {
	switch {
	case m.queued:
		return now
	case m.late != 0:
		return now - int64(uint32(now>>lateUnit)-m.late)<<lateUnit
	}
	return 0
}

func newTransmitter(cfg *Config) transmitter {
	return transmitter{
		frames:  make([]mem.Buf, cfg.PendingMax),
		burst:   cfg.BurstMax,
		connMax: cfg.PendingMax - cfg.BurstMax,
		chunk:   cfg.PendingMax - cfg.BurstMax,
		spare:   mem.NoBuf,
		meta:    make([]bufMeta, cfg.Pool.Size()),
	}
}

// serviceEnd says why a connection's service has ended.
type serviceEnd uint8

const (
	sentAll      serviceEnd = iota // it has no more, or none that may go now
	usedCredit                     // it has sent as many octets as it was allowed
	usedSegments                   // or as many segments
	heldUp                         // the device takes no more, or there is no Buf
)

// transmit pulls and sends while there is room, up to allow octets and most segments, or one
// segment more; p.tx.allow is what is left of allow. waits: c is served again when there are Bufs
// to spare.
func (p *Poller) transmit(c *Conn, allow, most int) (end serviceEnd, waits bool) {
	p.tx.gotBack = p.takeBack(c)
	if p.tx.gotBack > 0 && p.pool.Available() < 2*p.budget.Reserve {
		p.freeDead()
	}
	switch end, waits = p.transmitAll(c, allow, most); {
	case end != sentAll:
		p.gave(c, p.tx.gotBack) // for its next turn
	case !waits && c.tcp.Held() == 0:
		p.leaveGuests(c)
	}
	return end, waits
}

func (p *Poller) transmitAll(c *Conn, allow, most int) (end serviceEnd, waits bool) {
	p.tx.allow, p.tx.ask = allow, 1
	var pieces []tcp.Piece // queued, and not yet sent
	for dry := false; most > 0; {
		if p.tx.allow <= 0 {
			return usedCredit, false
		}
		if !p.room() {
			return heldUp, false
		}
		if !p.haveSpare() {
			if p.abortUnsaid(c) {
				return sentAll, false
			}
			return heldUp, false
		}
		waits = false
		// else the Upper has just said that it has no more; what is posted meanwhile rings
		if len(pieces) == 0 && !dry {
			pieces, waits, dry = p.pull(c, p.atOnce(c, most))
			if !p.haveSpare() {
				return heldUp, false
			}
		}
		t := &p.tx.segment
		if !c.tcp.Next(p.now, max(1, len(pieces)), t) {
			return sentAll, waits
		}
		p.emit(c, t)
		most--
		if len(pieces) > 0 && t.Handle == pieces[0].Handle && !t.Retransmit &&
			t.Off+t.Len == int(pieces[0].Len) {
			p.emitMore(c, t, pieces[1:1+t.More])
			most -= t.More
			pieces = pieces[1+t.More:]
		}
	}
	return usedSegments, false
}

// sendControl sends what of c does not wait for its turn. more: there was no room for all of it.
func (p *Poller) sendControl(c *Conn) (more bool) {
	for p.room() {
		if !p.haveSpare() {
			return !p.abortUnsaid(c)
		}
		if !c.tcp.NextControl(p.now, &p.tx.segment) {
			return false
		}
		p.emit(c, &p.tx.segment)
	}
	return true
}

// abortUnsaid ends a connection that is to be aborted when there is no Buf for its RST: the Bufs
// that it keeps may be the ones that are missing. It returns false when c is not to be aborted.
func (p *Poller) abortUnsaid(c *Conn) bool {
	if c.marks&markAbortDone == 0 {
		return false
	}
	p.n.Own[DropNoBuf]++
	c.tcp.Next(p.now, 1, &p.tx.segment) // the RST: the Conn closes when it has handed it out
	return true
}

// emit builds the frame of t and sends it on its way.
func (p *Poller) emit(c *Conn, t *tcp.Transmit) {
	p.n.Segments++
	p.tx.allow -= t.Len + frameCost
	var b mem.Buf
	var sum uint16
	if t.Len > 0 {
		p.asked++
	}
	if t.Handle == tcp.NoHandle || t.Len == 0 {
		b = p.takeSpare()
		p.tx.meta[b] = bufMeta{conn: c.index, life: c.life, freeAfter: true, ahead: true}
	} else {
		b = mem.Buf(t.Handle)
		m := &p.tx.meta[b]
		whole := t.Off == 0 && t.Len == int(m.length)
		switch {
		case whole && !m.queued && !p.pool.InDevice(b):
			sum, m.late = m.sum, 0
		case whole && m.queued && t.Flags&tcp.FIN == 0:
			p.n.TxSkipped++
			return
		default:
			b, sum = p.copyPart(b, t)
			p.tx.meta[b] = bufMeta{conn: c.index, life: c.life, freeAfter: true}
		}
	}
	if !p.putAgain(c, b, t) {
		p.putHeaders(b, t, t.Len, sum)
		p.remember(c, b, t)
	}
	if t.Len > 0 {
		c.path.left(t)
	}
	p.send(b, c.nextHop)
}

// emitMore is emit of pieces that go with t, which emit has just had: they differ from it in
// nothing but octets, sequence number and PSH.
func (p *Poller) emitMore(c *Conn, t *tcp.Transmit, pieces []tcp.Piece) {
	if len(pieces) == 0 {
		return
	}
	size := t.Len
	p.n.Segments += uint64(len(pieces))
	p.tx.allow -= len(pieces) * (size + frameCost)
	if p.alike(c, t, len(pieces)) {
		p.emitAlike(c, t, pieces)
		return
	}
	for i := range pieces {
		b := mem.Buf(pieces[i].Handle)
		t.Seq, t.Flags = t.Seq+tcp.Seq(size), flagsOf(t, &pieces[i])
		if !p.putAgain(c, b, t) {
			p.putHeaders(b, t, size, p.tx.meta[b].sum)
		}
		p.send(b, c.nextHop)
	}
}

// flagsOf is those of t, with PSH as p has it.
func flagsOf(t *tcp.Transmit, p *tcp.Piece) tcp.Flags {
	if p.Push {
		return t.Flags | tcp.PSH
	}
	return t.Flags &^ tcp.PSH
}

// alike says whether the frames of n segments like t are the template's, except for their octets,
// sequence number and PSH, and go to the end of the batch.
func (p *Poller) alike(c *Conn, t *tcp.Transmit, n int) bool {
	x := &p.tx
	return x.last.of(c, t.Len) && x.hopKnown && x.hop == c.nextHop && !x.express &&
		x.n+n <= len(x.frames)
}

// emitAlike is emitMore of those: each stage runs once for all.
func (p *Poller) emitAlike(c *Conn, t *tcp.Transmit, pieces []tcp.Piece) {
	l := &p.tx.last
	head := l.headers[:l.length]
	copy(head, p.tx.hopMAC[:])
	seq, size := uint32(t.Seq), uint32(t.Len)
	meta := bufMeta{conn: c.index, life: c.life, length: uint16(size), queued: true}
	for i := range pieces {
		b := mem.Buf(pieces[i].Handle)
		p.tx.meta[b] = meta
		*p.pool.Desc(b) = l.desc
		h := p.pool.Slot(b)[l.desc.Off:][:len(head)]
		copy(h, head)
		header := (*[tcp.HeaderLenMin]byte)(h[l.desc.CsumStart:])
		seq += size
		binary.BigEndian.PutUint32(header[tcpSeqAt:], seq)
		header[tcpFlagsAt] = byte(flagsOf(t, &pieces[i]))
		p.tx.frames[p.tx.n+i] = b
	}
	p.tx.n += len(pieces)
}

// copyPart copies the octets of t from b to the spare Buf and returns that with their sum.
func (p *Poller) copyPart(b mem.Buf, t *tcp.Transmit) (mem.Buf, uint16) {
	p.n.TxCopied++
	h := p.pool.Headroom()
	fresh := p.takeSpare()
	dst := p.pool.Slot(fresh)[h : h+t.Len]
	copy(dst, p.pool.Slot(b)[h+t.Off:])
	if p.cfg.Caps.TxChecksum {
		return fresh, 0
	}
	return fresh, inet.Fold(inet.Sum(dst, 0))
}
