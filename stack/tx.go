package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/inet"
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
// Who owns a sent Buf. The octets of a data segment stay in the Buf they were pulled into, at a fixed place (the
// pool's headroom), until TCP releases it; headers are written in front of them for each transmission. Between
// putHeaders and the device's Tx the frame also stands in a queue of ours: the batch, or the neighbour table's. So a
// Buf has up to three users, told apart by bits and without a count:
//
//   - TCP's sent ring: the owner's hold of mem.Pool, until Release
//   - a queue of ours: bufMeta.queued; if TCP releases the Buf meanwhile, freeAfter remembers to free it
//   - the device: mem.Pool's device hold
//
// A retransmission of a Buf that is still queued is skipped (its first copy has not left: sending it twice helps
// nobody, and the retransmission timer still runs). One that the device still reads is copied to a fresh Buf, as is
// a part of a Buf (EMSS shrank, window probe), because its headers would stand in the middle of the octets.
type transmitter struct {
	frames  []mem.Buf // the batch, and what the device did not take: frames[:n]
	n       int
	connMax int     // connections are held up from here on; the rest is for replies and ARP
	blocked bool    // the device took less than it was offered in this Turn
	spare   mem.Buf // at hand for the next control frame or Pull
	share   int     // segments that each connection may send in this Turn
	reserve int     // Bufs that Pull leaves for reception: ACKs must be able to come in
	proven  int     // beyond it, Bufs for those whose peer has acknowledged something
	meta    []bufMeta
	segment tcp.Transmit
	last    template // the data segment made last in this Turn

	hop      inet.Addr // the last resolved next hop of this Turn
	hopMAC   inet.MAC
	hopKnown bool
}

// bufMeta is what the Poller keeps per Buf.
type bufMeta struct {
	conn      connIndex // whose frame it is, with its life; noConn: nobody's
	life      uint32
	sum       uint16 // ones-complement sum of the payload
	length    uint16 // payload octets
	queued    bool   // stands in the batch or with a neighbour
	freeAfter bool   // free it when it has left
}

func newTransmitter(cfg *Config) transmitter {
	size := cfg.Pool.Size()
	return transmitter{
		frames:  make([]mem.Buf, cfg.PendingMax),
		connMax: cfg.PendingMax - cfg.BurstMax,
		spare:   mem.NoBuf,
		reserve: min(4*cfg.BurstMax, size/4),
		proven:  max(size/8-min(4*cfg.BurstMax, size/4), 0),
		meta:    make([]bufMeta, size),
	}
}

// output serves the connections touched so far. Those touched meanwhile, or with more to do, stand in the list for
// the next Turn. It returns how many segments were made.
func (p *Poller) output() int {
	p.tx.hopKnown = false
	before := p.n.Segments
	p.active, p.serving = p.serving[:0], p.active
	p.tx.last.octets = 0
	p.tx.share = p.shareOf(len(p.serving))
	for todo := p.serving; len(todo) > 0; {
		burst := todo[:min(len(todo), p.cfg.BurstMax)]
		todo = todo[len(burst):]
		if p.table.n >= previewMin {
			p.warm(burst)
		}
		for _, i := range burst {
			p.serve(&p.slab.conns[i])
		}
	}
	return int(p.n.Segments - before)
}

// shareOf is how many segments each of n connections may send in one Turn.
func (p *Poller) shareOf(n int) int {
	if p.cfg.SegmentsMax > 0 {
		return p.cfg.SegmentsMax
	}
	all := min(burstsPerTurnMax*p.cfg.BurstMax, turnOctetsMax/p.cfg.MTU)
	return max(p.cfg.BurstMax, all/max(1, n))
}

// serve does all that one connection has waiting.
func (p *Poller) serve(c *Conn) {
	c.marks &^= markActive
	if c.phase == phaseFree {
		return
	}
	p.obey(c)
	p.followPath(c)
	more, waits := p.transmit(c, p.release(c))
	if len(p.serving) == 1 && !p.tx.blocked { // what follows is bookkeeping: nobody else's frames are waited for
		p.flush()
	}
	if ev := c.tcp.TakeEvents(); ev != 0 {
		p.events(c, ev)
	}
	if c.phase == phaseFree {
		return
	}
	if more {
		p.touch(c)
	}
	if c.tcp.Starved() {
		p.n.MemoryWaits++
		waits = true
	}
	if waits {
		p.starve(c)
	}
	p.timers.arm(c.index, c.due())
}

// obey carries out what was marked.
func (p *Poller) obey(c *Conn) {
	if c.marks&markWindow != 0 {
		c.marks &^= markWindow
		c.tcp.SetReceiveWindow(c.window)
	}
	if c.marks&(markAbort|markAbortDone) == markAbort {
		c.marks |= markAbortDone
		c.tcp.Abort(p.now)
		return
	}
	if c.marks&(markFin|markFinDone) == markFin && c.phase == phaseOpen {
		c.marks |= markFinDone
		c.tcp.CloseSend(p.now)
	}
}

// transmit pulls and sends while there is room, up to the connection's share of a Turn. more: it was held up, or has
// used its share, and is to be served again; waits: once there are Bufs to spare. returned is how many Bufs it has just given
// back.
func (p *Poller) transmit(c *Conn, returned int) (more, waits bool) {
	if returned > 0 && p.pool.Available() < 2*p.tx.reserve {
		p.freeDead()
	}
	dry := false
	for range p.tx.share {
		if p.tx.n >= p.tx.connMax {
			if p.flush(); p.tx.n >= p.tx.connMax {
				p.n.TxWaits++
				return true, false
			}
		}
		if !p.haveSpare() {
			return !p.abortUnsaid(c), false
		}
		starved := false
		if !dry { // else the Upper has just said that it has no more; what is posted meanwhile rings
			starved, dry = p.pull(c, returned > 0)
			returned--
			if !p.haveSpare() {
				return true, false
			}
		}
		if !c.tcp.Next(p.now, &p.tx.segment) {
			return false, starved
		}
		p.emit(c, &p.tx.segment)
	}
	return true, false
}

// abortUnsaid ends a connection that is to be aborted although there is no Buf for its RST: the Bufs it keeps may be the
// ones that are missing. False: c is not to be aborted.
func (p *Poller) abortUnsaid(c *Conn) bool {
	if c.marks&markAbortDone == 0 {
		return false
	}
	p.n.Own[DropNoBuf]++
	c.tcp.Next(p.now, &p.tx.segment) // the RST: the Conn closes when it has handed it out
	return true
}

// haveSpare sees to a Buf at hand: Next must not be asked for a segment that could not be built.
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

func (p *Poller) takeSpare() mem.Buf {
	b := p.tx.spare
	p.tx.spare = mem.NoBuf
	return b
}

// pull lets the Upper fill the next segment if one may be sent. entitled: c takes the place of a Buf it has just given back,
// so that nobody drives it out of what it works with. starved: it had to wait for Bufs. dry: that was the last, as the Upper says.
func (p *Poller) pull(c *Conn, entitled bool) (starved, dry bool) {
	if c.phase != phaseOpen || c.upper == nil || c.marks&(markFin|markAbort) != 0 {
		return false, false
	}
	room := c.tcp.Room(p.now)
	if room <= 0 {
		return false, false
	}
	switch free := p.pool.Available() - p.tx.reserve; {
	case entitled:
	case free < p.floor(c):
		p.n.NoBufWaits++
		p.stall.want(c.index)
		return c.tcp.Held() == 0, false // else the acknowledgment of what it holds brings it back
	case c.tcp.Held()*100 > free*p.cfg.BufShare || c.tcp.Held() > 0 && p.claimed(free):
		p.n.ShareWaits++
		if free < p.tx.proven {
			p.stall.want(c.index)
		}
		return false, false
	}
	h := p.pool.Headroom()
	b := p.tx.spare
	slot := p.pool.Slot(b)
	room = min(room, len(slot)-h)
	n := c.upper.Pull(c, slot[h:h+room:h+room])
	if n == 0 || c.marks&markAbort != 0 {
		return false, false
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
	c.tcp.Push(p.now, tcp.Handle(b), n, psh)
	if c.owedTo <= c.acked {
		c.owe()
	}
	return false, dry
}

// emit builds the frame of t and sends it on its way.
func (p *Poller) emit(c *Conn, t *tcp.Transmit) {
	p.n.Segments++
	var b mem.Buf
	var sum uint16
	if t.Handle == tcp.NoHandle || t.Len == 0 {
		b = p.takeSpare()
		p.tx.meta[b] = bufMeta{conn: c.index, life: c.life, freeAfter: true}
	} else {
		b = mem.Buf(t.Handle)
		m := &p.tx.meta[b]
		whole := t.Off == 0 && t.Len == int(m.length)
		switch {
		case whole && !m.queued && !p.pool.InDevice(b):
			sum = m.sum
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

// putHeaders writes t's headers in front of the n payload octets at the pool's headroom, whose sum is given, all but
// the Ethernet destination.
func (p *Poller) putHeaders(b mem.Buf, t *tcp.Transmit, n int, sum uint16) {
	hlen := t.HeaderLen()
	at := p.host.l2 + ipLen(&t.ID.Remote) // of the TCP header in the frame
	h := p.pool.Headroom()
	off := h - hlen - at
	frame := p.pool.Slot(b)[off : h+n]
	if t.ID.Remote.Is4() {
		p.putEthernet(frame, inet.EtherTypeIPv4)
		ip := inet.IPv4{
			TOS: t.TOS, DF: true, TTL: p.cfg.TTL, Proto: inet.ProtoTCP, Src: t.ID.Local, Dst: t.ID.Remote,
			HdrLen: inet.IPv4Len, TotalLen: inet.IPv4Len + hlen + n,
		}
		ip.Put(frame[p.host.l2:])
	} else {
		p.putEthernet(frame, inet.EtherTypeIPv6)
		ip := inet.IPv6{
			TrafficClass: t.TOS, PayloadLen: hlen + n, NextHeader: inet.ProtoTCP, HopLimit: p.host.hopLimit6,
			Src: t.ID.Local, Dst: t.ID.Remote,
		}
		ip.Put(frame[p.host.l2:])
	}
	header := frame[at : at+hlen]
	t.Put(header)
	pseudo := inet.PseudoSum(t.ID.Local, t.ID.Remote, inet.ProtoTCP, hlen+n)
	d := p.pool.Desc(b)
	d.Off, d.Len, d.Flags = uint32(off), uint32(len(frame)), 0
	if p.cfg.Caps.TxChecksum {
		d.Flags = mem.TxChecksum
		d.CsumStart, d.CsumOffset = uint16(at), checksumOffset
		binary.BigEndian.PutUint16(header[checksumOffset:], inet.Fold(pseudo))
		return
	}
	// The header is a whole number of 32-bit words, so the payload's sum may be added as it is.
	binary.BigEndian.PutUint16(header[checksumOffset:], inet.Checksum(header, pseudo+uint64(sum)))
}

// send finds the next hop's MAC and puts the frame into the batch, or leaves it with the neighbour table.
func (p *Poller) send(b mem.Buf, hop inet.Addr) {
	p.tx.meta[b].queued = true
	if !p.tx.hopKnown || p.tx.hop != hop {
		mac, known, queued, ask := p.neighbours.Lookup(p.now, hop, b)
		if ask {
			to := inet.Broadcast
			if known {
				to = mac
			}
			p.ask(hop, to)
		}
		if !known {
			if !queued {
				p.n.Own[DropNeighbourFull]++
				p.unqueue(b)
			}
			return
		}
		p.tx.hop, p.tx.hopMAC, p.tx.hopKnown = hop, mac, true
	}
	p.batch(b, p.tx.hopMAC)
}

// reply sends the frame in b to mac and frees b afterwards; false when there is no room: b stays the caller's.
func (p *Poller) reply(b mem.Buf, mac inet.MAC) bool {
	if p.overheard {
		return false
	}
	if p.tx.n == len(p.tx.frames) {
		p.n.Own[DropTxFull]++
		return false
	}
	p.tx.meta[b] = bufMeta{conn: noConn, queued: true, freeAfter: true}
	p.batch(b, mac)
	return true
}

// batch appends a frame; without room it is dropped and counted, which only frames that waited for a neighbour meet.
func (p *Poller) batch(b mem.Buf, mac inet.MAC) {
	if p.tx.n == len(p.tx.frames) {
		p.n.Own[DropTxFull]++
		p.unqueue(b)
		return
	}
	copy(p.pool.Data(b), mac[:])
	p.tx.frames[p.tx.n] = b
	p.tx.n++
}

// flush offers the batch to the device. What it does not take stays, in order, for the next Turn.
func (p *Poller) flush() {
	if p.tx.n == 0 || p.tx.blocked {
		p.freeDead()
		return
	}
	n := p.queue.Tx(p.tx.frames[:p.tx.n])
	for _, b := range p.tx.frames[:n] {
		p.n.TxFrames++
		p.n.TxOctets += uint64(p.pool.Desc(b).Len)
		p.unqueue(b)
	}
	p.tx.blocked = n < p.tx.n
	copy(p.tx.frames, p.tx.frames[n:p.tx.n])
	p.tx.n -= n
	p.freeDead()
}

// unqueue says that b has left our queues.
func (p *Poller) unqueue(b mem.Buf) {
	m := &p.tx.meta[b]
	m.queued = false
	if m.freeAfter {
		m.freeAfter = false
		p.discard(b)
	}
}

// dropOwner ends TCP's use of b.
func (p *Poller) dropOwner(b mem.Buf) {
	if m := &p.tx.meta[b]; m.queued {
		m.freeAfter = true
		return
	}
	p.discard(b)
}

// discard frees b, together with others.
func (p *Poller) discard(b mem.Buf) {
	if len(p.dead) == cap(p.dead) {
		p.freeDead()
	}
	p.dead = append(p.dead, b)
}

func (p *Poller) freeDead() {
	if len(p.dead) > 0 {
		p.pool.FreeN(p.dead)
		p.dead = p.dead[:0]
	}
}

// abandonFrames drops what was never sent, at the end of the Poller.
func (p *Poller) abandonFrames() {
	for _, b := range p.tx.frames[:p.tx.n] {
		p.n.Own[DropStopped]++
		p.unqueue(b)
	}
	p.tx.n = 0
	p.abandonNeighbours()
	if p.tx.spare != mem.NoBuf {
		p.discard(p.takeSpare())
	}
	p.freeDead()
}
