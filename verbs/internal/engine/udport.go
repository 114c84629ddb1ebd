package engine

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"sync/atomic"
	"syscall"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// udPort carries the datagrams of all queue pairs of the process: those that are sent, in batches,
// and those that come, to whom they are for. The goroutine that looks at doorbells has it.
type udPort struct {
	engine  *Engine
	index   uint32 // of the slot
	carrier udCarrier
	memory  *rnic.Memory
	all     [numbersMax]*ud // by the lower bits of the number
	blocked udLine          // until the carrier can send again
	waiting udLine          // for a neighbour: others need not wait
	groups  map[gid]*udGroup
	out     [udBatch]udOut
	before  [udBatch]uint32 // where the ring stood before each of out
}

// udCarrier takes datagrams to the network.
type udCarrier interface {
	// carry sends datagrams, says how many it has dealt with, and why not the one after those.
	carry(out []udOut) (n int, why udStop)
	// settle delivers what carry has kept that does not leave the process.
	settle()
}

// udStop is why a carrier does not send a datagram.
type udStop uint8

const (
	udSent       udStop = iota // it does: there are no more
	udFault                    // the program's memory that it is in cannot be read
	udBusy                     // it may in the next Turn
	udBlocked                  // it calls port.blocked.goOn when it can send again
	udUnresolved               // it calls port.waiting.goOn when it knows more of where this one goes
)

// udOut is a datagram to be sent.
type udOut struct {
	request wq.Request
	header  [udHeaderLen]byte
	parts   [][]byte // of the message
	size    int      // octets, with the header
	udPath
}

// udPath is where a datagram goes, and how.
type udPath struct {
	destination gid
	source      gid // zero: whichever the host chooses
	class       uint8
	port        uint16
}

const (
	udBatch   = 32 // datagrams that are sent, or received, by one call
	udBatches = 4  // of a queue pair's, before others have their turn
)

// datagrams is the port of the process, which the first queue pair for datagrams makes.
func (e *Engine) datagrams() (*udPort, error) {
	if !e.roce || !e.polled && e.poller == nil {
		return nil, syscall.EOPNOTSUPP
	}
	s, err := e.claim()
	if err != nil {
		return nil, err
	}
	e.slotting.Lock()
	defer e.slotting.Unlock()
	if e.udPort != nil {
		return e.udPort, nil
	}
	p := &udPort{engine: e, index: s.index, memory: e.adapter.NewMemory(),
		groups: map[gid]*udGroup{}, blocked: udLine{bit: 1}, waiting: udLine{bit: 2}}
	for i := range p.out {
		o := &p.out[i]
		o.request.List, o.request.Data = make([]wq.SGE, sgeMax), make([]byte, inlineMax)
		o.parts = make([][]byte, 0, sgeMax)
	}
	if e.ownTCP {
		err = newUDStack(p, e.poller)
	} else {
		err = newUDSocket(p, s.datagram)
	}
	if err != nil {
		return nil, fmt.Errorf("datagrams: %w", err)
	}
	e.udPort = p
	return p, nil
}

// drop counts a datagram that was dropped. An operator who looks is told of the first of a kind.
func (p *udPort) drop(why int) {
	if atomic.AddUint64(&p.engine.area.Drops[why], 1) == 1 {
		p.engine.tellLog("a datagram was dropped, and more may be: %s", udDrops[why])
	}
}

var udDrops = [ring.Drops]string{
	ring.DropMalformed: "no datagram of ours, or not from the port of its source",
	ring.DropNumber:    "no queue pair receives by this number",
	ring.DropQKey:      "another Q_Key",
	ring.DropNoBuffer:  "no receive buffer",
	ring.DropTooLong:   "longer than the receive buffer",
	ring.DropUnsent:    "the host does not send it",
	ring.DropStranger:  "from an address that is not allowed (rnicd run --allow)",
}

// send sends what u has posted, as much as may be in a Turn.
func (p *udPort) send(u *ud) {
	if len(p.blocked.all) > 0 {
		p.blocked.add(u)
		return
	}
	for range udBatches {
		if !p.sendBatch(u) {
			return
		}
	}
	p.again(u)
}

// udLine are queue pairs that cannot send now what they have to send, each once.
type udLine struct {
	bit uint8 // of ud.lines
	all []*ud
}

func (l *udLine) add(u *ud) {
	if u.lines&l.bit == 0 {
		u.lines |= l.bit
		l.all = append(l.all, u)
	}
}

// goOn has all try again. Those that still cannot add themselves anew.
func (l *udLine) goOn() {
	all := l.all
	l.all = nil
	for _, u := range all {
		u.lines &^= l.bit
		u.doorbell()
	}
}

// sendBatch sends some datagrams of u, and says whether there may be more.
func (p *udPort) sendBatch(u *ud) (more bool) {
	more = p.carryBatch(u)
	p.carrier.settle()
	return more
}

func (p *udPort) carryBatch(u *ud) (more bool) {
	p.memory.Enter()
	n, st := p.gather(u)
	sent, why := p.carrier.carry(p.out[:n])
	p.memory.Exit()
	wakes := false
	for i := range p.out[:sent] {
		r := &p.out[i].request
		if r.Signaled() {
			u.complete(u.scq, r, wq.Success, 0)
			wakes = !u.underway.Complete() || wakes
		}
	}
	if wakes {
		p.engine.progress()
	}
	switch {
	case why == udFault:
		st = wq.LocalProtection
		u.complete(u.scq, &p.out[sent].request, st, 0)
		u.sends.head = p.before[sent]
		u.sends.taken(1 + uint32(p.out[sent].request.Following()))
		u.fail()
		return false
	case why != udSent:
		u.sends.head = p.before[sent]
		switch why {
		case udBusy:
			p.again(u)
		case udBlocked:
			p.blocked.add(u)
		case udUnresolved:
			p.waiting.add(u)
		}
		return false
	case st != wq.Success:
		u.complete(u.scq, &p.out[n].request, st, 0)
		u.fail()
		return false
	case u.sends.broken:
		u.broken()
		return false
	}
	return n == udBatch
}

// gather takes requests of u until the batch is full. Another status than Success is that of the
// request after those n, which cannot be carried out.
func (p *udPort) gather(u *ud) (n int, st wq.Status) {
	for ; n < udBatch; n++ {
		o := &p.out[n]
		p.before[n] = u.sends.head
		entries := u.sends.peek(&o.request)
		if entries == 0 {
			break
		}
		u.sends.count(&u.underway)
		u.sends.taken(entries)
		if st = p.prepare(u, o); st != wq.Success {
			break
		}
	}
	return n, st
}

// prepare makes the datagram of a request.
func (p *udPort) prepare(u *ud, o *udOut) wq.Status {
	r := &o.request
	switch {
	case r.Op != wq.OpSend:
		return wq.LocalOperation
	case r.Total() > ring.DatagramMax:
		return wq.LocalLength
	}
	o.parts, o.size = o.parts[:0], udHeaderLen+int(r.Total())
	if r.Inline() {
		if r.Local.Offset != 0 { // a copy, made when it was posted
			if _, ok := p.memory.Find(u.pd, r.Local, 0); !ok {
				return wq.LocalProtection
			}
		}
		o.parts = append(o.parts, r.Data[:r.Local.Length])
	} else if !p.find(u, o, r.Local) {
		return wq.LocalProtection
	}
	for _, s := range r.List[:r.More] {
		if !p.find(u, o, s) {
			return wq.LocalProtection
		}
	}
	h := udHeader{source: u.number, destination: uint32(r.RemoteOffset) & 0xffffff,
		qkey: uint32(r.RemoteSTag)}
	if r.Solicited() {
		h.flags = udSolicited
	}
	if r.RemoteOffset&wq.DatagramImmediate != 0 {
		h.flags |= udImmediate
		binary.NativeEndian.PutUint32(h.immediate[:], uint32(r.Operands[2]))
	}
	h.put(&o.header)
	o.destination, o.port = gidOf(r.Operands[0], r.Operands[1]), portOf(h.destination)
	if h.destination == groupNumber {
		o.port = groupPort
	}
	o.source = p.source(uint8(r.RemoteOffset >> wq.DatagramSourceShift))
	o.class = uint8(r.RemoteOffset >> wq.DatagramClassShift)
	return wq.Success
}

// source is the GID that has an index.
func (p *udPort) source(index uint8) gid {
	from := 2 * (index % ring.GIDsMax)
	all := &p.engine.area.Sources
	return gidOf(atomic.LoadUint64(&all[from]), atomic.LoadUint64(&all[from+1]))
}

// find has the octets of a range sent.
func (p *udPort) find(u *ud, o *udOut, s wq.SGE) bool {
	b, ok := p.memory.Find(u.pd, s, 0)
	if len(b) > 0 {
		o.parts = append(o.parts, b)
	}
	return ok
}

// udIn is a datagram that has come.
type udIn struct {
	octets              []byte // header and message
	source, destination gid
	class               uint8
	port                uint16 // the sender's
	stays               bool   // where it is, if it has to wait for a buffer
}

// udPatience is how many Turns datagrams wait for a buffer since the queue pair had one: time for
// a program that takes completions and posts their buffers anew. One without any delays others no
// more than once.
const udPatience = 64

// receive has a datagram delivered, or dropped. True: it is to wait for the next Turn.
func (p *udPort) receive(d *udIn) (waits bool) {
	var h udHeader
	if len(p.engine.allowed) > 0 && !p.engine.allows(netip.AddrFrom16(d.source)) {
		p.drop(ring.DropStranger)
		return false
	}
	if len(d.octets) > udRoom || !h.parse(d.octets) || portOf(h.source) != d.port {
		p.drop(ring.DropMalformed)
		return false
	}
	if h.destination == groupNumber {
		p.receiveGroup(&h, d)
		return false
	}
	return p.receiveAt(p.all[h.destination%numbersMax], &h, d)
}

// receiveAt is receive at a queue pair, which need not be the right one.
func (p *udPort) receiveAt(u *ud, h *udHeader, d *udIn) (waits bool) {
	switch {
	case u == nil || u.state < udRTR || u.state == udError ||
		u.number != h.destination && h.destination != groupNumber:
		p.drop(ring.DropNumber)
	case h.qkey != u.qkey:
		p.drop(ring.DropQKey)
	case !u.nextBuffer():
		if u.recvs.broken {
			u.broken()
		} else if d.stays && u.waited < udPatience {
			u.waited++
			return true
		}
		p.drop(ring.DropNoBuffer)
	case uint64(grhLen+len(d.octets)-udHeaderLen) > u.buffer.Total():
		p.drop(ring.DropTooLong)
	default:
		u.waited = 0
		p.deliver(u, h, d)
	}
	return false
}

// deliver fills the next buffer of u, and completes it.
func (p *udPort) deliver(u *ud, h *udHeader, d *udIn) {
	var grh [grhLen]byte
	putGRH(&grh, &d.source, &d.destination, d.class, len(d.octets))
	c := rnic.Completion{ID: u.buffer.ID, QP: u.number, Op: wq.OpRecv,
		Len: uint32(grhLen + len(d.octets) - udHeaderLen), Original: uint64(h.source),
		Solicited: h.flags&udSolicited != 0}
	if d.source.is4() {
		c.Original |= wq.DatagramFromV4
	}
	if h.flags&udImmediate != 0 {
		c.WithImmediate, c.Written = true, c.Len
		copy(c.Immediate[:4], h.immediate[:])
		binary.BigEndian.PutUint32(c.Immediate[4:], c.Len) // as cq.add has it of a Write's
	}
	p.memory.Enter()
	s := scatter{memory: p.memory, pd: u.bufferPD(), r: &u.buffer}
	ok := s.put(grh[:]) && s.put(d.octets[udHeaderLen:])
	p.memory.Exit()
	u.buffer.Op = 0
	if !ok {
		c.Status = wq.LocalProtection
	}
	u.put(u.rcq, &c)
	p.engine.progress()
	if !ok {
		u.fail()
	}
}

// scatter puts octets into the ranges of a buffer, one piece after another.
type scatter struct {
	memory *rnic.Memory
	pd     *rnic.ProtectionDomain
	r      *wq.Request
	at     int    // range: 0 is Local
	filled uint32 // octets of it
}

// put fills in b, for which there is room. False: not into registered memory that may be written.
func (s *scatter) put(b []byte) bool {
	for len(b) > 0 {
		g := s.r.Local
		if s.at > 0 {
			g = s.r.List[s.at-1]
		}
		n := min(uint32(len(b)), g.Length-s.filled)
		if n == 0 {
			s.at, s.filled = s.at+1, 0
			continue
		}
		to, ok := s.memory.Find(s.pd,
			wq.SGE{Offset: g.Offset + uint64(s.filled), Length: n, STag: g.STag}, rnic.LocalWrite)
		if !ok || !s.memory.Copy(to, b[:n]) {
			return false
		}
		b, s.filled = b[n:], s.filled+n
	}
	return true
}

// again has u send in the next Turn.
func (p *udPort) again(u *ud) {
	if p.engine.polled {
		p.engine.ringAgain(u.bit)
	} else {
		p.engine.udTurn.mark(u.bit)
	}
}

// ringAgain rings the doorbell as the program does: there is more than this Turn has carried out.
func (e *Engine) ringAgain(bit int) {
	atomic.OrUint64(&e.area.Doorbells[bit/64], 1<<(bit%64))
	atomic.OrUint64(&e.area.Summary, 1<<(bit/64))
}
