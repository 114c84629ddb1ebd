package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
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
//   - a queue of ours: bufMeta.queued; if TCP releases the Buf meanwhile, freeAfter remembers to free it
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
	repeats bool           // segment is of this call of transmit, and last is its template
	run     runRoom

	hop      inet.Addr // the last resolved next hop of this Turn
	hopMAC   inet.MAC
	hopKnown bool
}

// bufMeta is what the Poller keeps per Buf.
type bufMeta struct {
	conn      connIndex // whose frame it is, with its life; noConn: no connection's
	life      uint32
	sum       uint16 // ones-complement sum of the payload
	length    uint16 // payload octets
	late      uint32 // when the device took it after it had refused it, in units of lateUnit; 0: at once
	queued    bool   // stands in the batch or with a neighbour
	refused   bool   // the device did not take it when it was first offered it
	freeAfter bool   // free it when it has left
	ahead     bool   // goes before octets of others: tx_batch.go
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

// transmit pulls and sends while there is room, up to allow octets and most segments, or one segment
// more; p.tx.allow is what is left of allow. waits: c is served again when there are Bufs to spare.
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
	dry := false
	p.tx.repeats = false
	p.tx.allow = allow
	for left := most; left > 0; left-- {
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
		if !dry { // else the Upper has just said that it has no more; what is posted meanwhile rings
			if n := p.pullRun(c, left); n > 0 {
				left -= n - 1
				continue
			}
			sent := false
			waits, dry, sent = p.pull(c)
			if sent {
				continue
			}
			if !p.haveSpare() {
				return heldUp, false
			}
		}
		if !c.tcp.Next(p.now, &p.tx.segment) {
			return sentAll, waits
		}
		p.emit(c, &p.tx.segment)
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
	c.tcp.Next(p.now, &p.tx.segment) // the RST: the Conn closes when it has handed it out
	return true
}

// pull lets the Upper fill the next segment, if one may be sent. waits: it found no Buf. dry: the
// Upper says that this was its last segment. sent: there is nothing to ask Next for, because it was
// like the segment before and has been sent.
func (p *Poller) pull(c *Conn) (waits, dry, sent bool) {
	if c.phase != phaseOpen || c.upper == nil || c.marks&(markFin|markAbort) != 0 {
		return false, false, false
	}
	room := c.tcp.Room(p.now)
	if room <= 0 {
		c.marks &^= markFlows
		return false, false, false
	}
	granted, lent, waits := p.grant(c)
	if !granted {
		return waits, false, false
	}
	h := p.pool.Headroom()
	b := p.tx.spare
	slot := p.pool.Slot(b)
	room = min(room, len(slot)-h)
	n := c.upper.Pull(c, slot[h:h+room:h+room])
	if n == 0 || c.marks&markAbort != 0 {
		c.marks &^= markFlows
		return false, false, false
	}
	p.tx.gotBack--
	if lent {
		p.loans.lent++
	}
	if n < 0 || n > room {
		panic("stack: Pull returned more than it was given room for")
	}
	m := &p.tx.meta[b]
	*m = bufMeta{conn: c.index, life: c.life, length: uint16(n)}
	if !p.cfg.Caps.TxChecksum {
		m.sum = inet.Fold(inet.Sum(slot[h:h+n], 0))
	}
	p.takeSpare()
	psh := true
	if c.ahead != nil {
		dry = !c.ahead.More(c)
		psh = c.ahead.Pushed(c) || dry
	}
	sent = p.tx.repeats && p.tx.last.of(c, n) && c.tcp.Repeat(p.now, tcp.Handle(b), n, psh, &p.tx.segment)
	if sent {
		p.emitAgain(c, b, &p.tx.segment)
	} else {
		c.tcp.Push(p.now, tcp.Handle(b), n, psh)
	}
	return false, dry, sent
}

// grant says whether c may have a Buf: in place of one that it has given back, so that others
// cannot drive it out of the memory it works with; of those to spare; or lent. waits: there is
// none, and nothing of c is in flight whose acknowledgment would bring it back.
func (p *Poller) grant(c *Conn) (granted, lent, waits bool) {
	if p.tx.gotBack > 0 && p.pool.Available() > p.loans.lentMax {
		return true, false, false
	}
	free, held := p.spareBufs(), c.tcp.Held()
	switch {
	case free < p.floor(c):
		p.demand(c)
		if p.lends(c) {
			return true, true, false
		}
		p.n.NoBufWaits++
		return false, false, held == 0
	case held*100 > free*p.cfg.BufShare || held > 0 && p.claimed(free):
		if free < p.budget.Proven {
			p.demand(c)
		}
		if p.lends(c) {
			return true, true, false
		}
		p.n.ShareWaits++
		return false, false, false
	}
	return true, false, false
}

// haveSpare makes sure that a Buf is at hand. It comes before every tcp.Conn.Next, which must not
// be asked for a segment that could not be built.
func (p *Poller) haveSpare() bool {
	if p.tx.spare != mem.NoBuf {
		return true
	}
	if p.tx.spare = p.pool.Alloc(); p.tx.spare == mem.NoBuf {
		p.n.NoBufWaits++
		return false
	}
	return true
}

// emit builds the frame of t and sends it on its way.
func (p *Poller) emit(c *Conn, t *tcp.Transmit) {
	p.n.Segments++
	p.tx.allow -= t.Len + frameCost
	p.tx.repeats = false
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
	p.tx.repeats = t.Len > 0 && t.Len == p.tx.last.octets && !t.Retransmit && t.Flags&tcp.FIN == 0
	p.send(b, c.nextHop)
}

// emitAgain is emit of a segment that tcp.Conn.Repeat has made: nothing but its octets, sequence
// number and PSH is not as in the template.
func (p *Poller) emitAgain(c *Conn, b mem.Buf, t *tcp.Transmit) {
	p.n.Segments++
	p.tx.allow -= t.Len + frameCost
	p.asked++
	p.tx.last.put(p.pool, b, t)
	p.send(b, c.nextHop)
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

func (p *Poller) takeSpare() mem.Buf {
	b := p.tx.spare
	p.tx.spare = mem.NoBuf
	return b
}
