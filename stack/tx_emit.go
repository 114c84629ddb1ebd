package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
)

const (
	tcpHeaderLen   = 20                              // without options
	checksumOffset = 16                              // of the checksum in a TCP header
	tcpAt          = inet.EthernetLen + inet.IPv4Len // of a frame without a VLAN tag
	headersMax     = inet.EthernetLen + inet.VLANLen + inet.IPv6Len + 60
)

// transmitter makes frames and gets them to the device: it writes headers, finds the next hop,
// keeps the batch, and frees what has left. What may be sent, and when, its callers decide: the
// sender for connections, the SYN cache and the Host for the rest.
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
	cfg        *Config
	queue      pmd.Queue
	pool       *mem.Pool
	counters   *Counters
	dead       *dead
	host       *iphost.Host
	neighbours *inet.Neighbours[mem.Buf]
	l2         int // octets of the Ethernet headers we send

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
	mute    bool    // what is answered now came to another member of the Group, which answers
	spare   mem.Buf // at hand for the next control frame or Pull
	meta    []bufMeta
	segment tcp.Transmit
	last    headerTemplate // the data segment made last in this Turn
	resets  inet.Bucket    // RSTs to segments without a connection
	asked   uint64         // segments, or runs of them, that were sent with octets

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

func newTransmitter(p *Poller) transmitter {
	cfg := &p.cfg
	return transmitter{
		cfg: cfg, queue: cfg.Queue, pool: cfg.Pool, counters: &p.n, dead: &p.dead, host: p.host,
		neighbours: p.neighbours, l2: p.host.LinkLen(),
		frames:  make([]mem.Buf, cfg.PendingMax),
		burst:   cfg.BurstMax,
		connMax: cfg.PendingMax - cfg.BurstMax,
		chunk:   cfg.PendingMax - cfg.BurstMax,
		spare:   mem.NoBuf,
		meta:    make([]bufMeta, cfg.Pool.Size()),
		resets:  inet.NewBucket(p.now, cfg.RSTPerSec),
	}
}

// begin begins the sending of a Turn. alone: no more than one connection waits for its turn.
func (x *transmitter) begin(alone bool) {
	x.forgetHop()
	x.last.octets = 0
	x.alone = alone
}

// forgetHop is for what is sent outside of that: the last next hop was that of a Turn before.
func (x *transmitter) forgetHop() { x.hopKnown = false }

// sendControl sends what of c does not wait for its turn, before octets of others. more: there was
// no room for all of it.
func (x *transmitter) sendControl(now int64, c *Conn) (more bool) {
	x.express = true
	more = x.sendAhead(now, c)
	x.express = false
	return more
}

func (x *transmitter) sendAhead(now int64, c *Conn) (more bool) {
	for x.room(now) {
		if !x.haveSpare() {
			return !x.abortUnsaid(now, c)
		}
		if !c.tcp.NextControl(now, &x.segment) {
			return false
		}
		x.emit(now, c, &x.segment)
	}
	return true
}

// abortUnsaid ends a connection that is to be aborted when there is no Buf for its RST: the Bufs
// that it keeps may be the ones that are missing. It returns false when c is not to be aborted.
func (x *transmitter) abortUnsaid(now int64, c *Conn) bool {
	if c.marks&markAbortDone == 0 {
		return false
	}
	x.counters.Own[DropNoBuf]++
	c.tcp.Next(now, 1, &x.segment) // the RST: the Conn closes when it has handed it out
	return true
}

// emit builds the frame of t and sends it on its way.
func (x *transmitter) emit(now int64, c *Conn, t *tcp.Transmit) {
	x.counters.Segments++
	var b mem.Buf
	var sum uint16
	if t.Len > 0 {
		x.asked++
	}
	if t.Handle == tcp.NoHandle || t.Len == 0 {
		b = x.takeSpare()
		x.meta[b] = bufMeta{conn: c.index, life: c.life, freeAfter: true, ahead: true}
	} else {
		b = mem.Buf(t.Handle)
		m := &x.meta[b]
		whole := t.Off == 0 && t.Len == int(m.length)
		switch {
		case whole && !m.queued && !x.pool.InDevice(b):
			sum, m.late = m.sum, 0
		case whole && m.queued && t.Flags&tcp.FIN == 0:
			x.counters.TxSkipped++
			return
		default:
			b, sum = x.copyPart(b, t)
			x.meta[b] = bufMeta{conn: c.index, life: c.life, freeAfter: true}
		}
	}
	if !x.putAgain(c, b, t) {
		x.putHeaders(b, t, t.Len, sum)
		x.remember(c, b, t)
	}
	if t.Len > 0 {
		c.path.left(t)
	}
	x.send(now, b, c.nextHop)
}

// emitMore is emit of pieces that go with t, which emit has just had: they differ from it in
// nothing but octets, sequence number and PSH.
func (x *transmitter) emitMore(now int64, c *Conn, t *tcp.Transmit, pieces []tcp.Piece) {
	if len(pieces) == 0 {
		return
	}
	size := t.Len
	x.counters.Segments += uint64(len(pieces))
	if x.alike(c, t, len(pieces)) {
		x.emitAlike(c, t, pieces)
		return
	}
	for i := range pieces {
		b := mem.Buf(pieces[i].Handle)
		t.Seq, t.Flags = t.Seq+tcp.Seq(size), flagsOf(t, &pieces[i])
		if !x.putAgain(c, b, t) {
			x.putHeaders(b, t, size, x.meta[b].sum)
		}
		x.send(now, b, c.nextHop)
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
func (x *transmitter) alike(c *Conn, t *tcp.Transmit, n int) bool {
	return x.last.of(c, t.Len) && x.hopKnown && x.hop == c.nextHop && !x.express &&
		x.n+n <= len(x.frames)
}

// emitAlike is emitMore of those: each stage runs once for all.
func (x *transmitter) emitAlike(c *Conn, t *tcp.Transmit, pieces []tcp.Piece) {
	l := &x.last
	head := l.headers[:l.length]
	copy(head, x.hopMAC[:])
	seq, size := uint32(t.Seq), uint32(t.Len)
	meta := bufMeta{conn: c.index, life: c.life, length: uint16(size), queued: true}
	for i := range pieces {
		b := mem.Buf(pieces[i].Handle)
		x.meta[b] = meta
		*x.pool.Desc(b) = l.desc
		h := x.pool.Slot(b)[l.desc.Off:][:len(head)]
		copy(h, head)
		header := (*[tcp.HeaderLenMin]byte)(h[l.desc.CsumStart:])
		seq += size
		binary.BigEndian.PutUint32(header[tcpSeqAt:], seq)
		header[tcpFlagsAt] = byte(flagsOf(t, &pieces[i]))
		x.frames[x.n+i] = b
	}
	x.n += len(pieces)
}

// copyPart copies the octets of t from b to the spare Buf and returns that with their sum.
func (x *transmitter) copyPart(b mem.Buf, t *tcp.Transmit) (mem.Buf, uint16) {
	x.counters.TxCopied++
	h := x.pool.Headroom()
	fresh := x.takeSpare()
	dst := x.pool.Slot(fresh)[h : h+t.Len]
	copy(dst, x.pool.Slot(b)[h+t.Off:])
	if x.cfg.Caps.TxChecksum {
		return fresh, 0
	}
	return fresh, inet.Fold(inet.Sum(dst, 0))
}
