// Package linksim simulates a bulk transfer between two tcp.Conns over one link, in virtual time
// and from one seed. Tests compare the goodput of tcp with that of package ccmodel, which models
// only the congestion control.
//
// Segments pass from Conn to Conn as structures, without octets and without allocation: a second of
// 10 Gbit/s takes less than a second.
package linksim

import (
	"math"
	"math/rand/v2"

	"github.com/rnicd/rnicd/tcp"
)

// Link is a bottleneck in front of a constant delay; back there is the delay only. Its octets count
// Overhead.
//
//	sender ─► queue ─► BitsPerSecond ─► loss ─► RTTNs/2, some later ─► receiver
//	   ◄────────────────────────────────────── RTTNs/2 ◄──────────────────┘
type Link struct {
	BitsPerSecond int64
	RTTNs         int64
	Loss          float64 // probability that a data segment is lost after the queue, each by itself
	// mean length of the runs that losses come in, geometric; a pause of RTTNs/2 ends one; 0: one each
	LossRun float64
	// bits per second that a policer lets through after the queue, 0: none; it drops what finds
	PolicedBits  int64
	PolicedBurst int     // fewer octets in its token bucket, which holds so many
	Late         float64 // probability that a segment is late,
	LateMaxNs    int64   // by up to so much, evenly distributed
	Overhead     int     // octets of headers, framing and gap around a segment's payload
	QueueMax     int     // octets that may wait; what finds more is dropped
	// octets that wait from which on a segment that is ECN-capable is marked; 0: never
	MarkAt int
	// both ends look at the link every so often, and take a burst at once; 0: at each segment
	TurnNs int64
	Seed   uint64

	// Jitter is how much longer than RTTNs/2 a data segment takes, nil: no longer. InOrder: none
	// overtakes another by that.
	Jitter  func(*rand.Rand) int64
	InOrder bool

	// octets that are there to be sent at a time, the next when all are acknowledged; 0: there is no
	// end
	Message int
}

// Counts of what the link did to data segments.
type Counts struct{ Sent, Lost, Overflowed, Late, Marked uint64 }

// Result of a transfer.
type Result struct {
	Acked  uint64 // octets of payload that were acknowledged in time
	Link   Counts
	Sender tcp.Stats
}

// Goodput is the payload in Mbit/s of a transfer that lasted ns.
func (r *Result) Goodput(ns int64) float64 { return float64(r.Acked) * 8000 / float64(ns) }

const (
	never   = math.MaxInt64
	longAgo = math.MinInt64 / 2
)

// packet under way.
type packet struct {
	at  int64
	seg tcp.Segment
}

// transfer is the state of one. Each direction is a ring in the order of arrival; late segments
// wait apart.
type transfer struct {
	Link
	rng      *rand.Rand
	now      int64
	freePs   int64 // when the bottleneck has sent all that it has
	octetPs  int64
	ahead    ring // data
	back     ring // acknowledgments
	late     lateSet
	from, to *tcp.Conn
	fromAt   int64 // their deadlines
	toAt     int64
	out      tcp.Transmit
	lostAt   int64  // when the last data segment was lost, if it was; else longAgo
	tokens   int64  // of the policer, in bits of 10^-9
	tokensAt int64  // when they were counted
	lastAt   int64  // when the last of the segments in order arrives
	until    uint64 // where the last Message ends
	counts   Counts
}

// Transfer is a bulk transfer through l that lasts ns from the end of the handshake, the same for
// the same seed. The configurations are those of the two ends. It panics when the connection does
// not come about or does not last: over such a link it must.
func Transfer(l Link, from, to tcp.Config, ns int64) Result {
	t := newTransfer(l, from, to)
	end := t.now + ns
	for t.step(end) {
	}
	return Result{Acked: t.from.AckedOffset(), Link: t.counts, Sender: t.from.Stats()}
}

func newTransfer(l Link, from, to tcp.Config) *transfer {
	t := &transfer{Link: l, rng: rand.New(rand.NewPCG(l.Seed, 0)),
		octetPs: 8_000_000_000_000 / l.BitsPerSecond}
	t.now, t.lostAt = 1_000_000_000, longAgo
	t.tokens, t.tokensAt = int64(l.PolicedBurst)*8e9, t.now
	t.from, t.to = tcp.NewConn(from), tcp.NewConn(to)
	t.handshake()
	t.turnFrom()
	t.turnTo()
	return t
}

// handshake exchanges the SYNs, which are never lost.
func (t *transfer) handshake() {
	id := tcp.ID{LocalPort: 1, RemotePort: 2}
	var seg tcp.Segment
	pass := func(c *tcp.Conn) {
		if !c.Next(t.now, 1, &t.out) {
			panic("linksim: no SYN, or no answer to one")
		}
		put(&seg, &t.out)
		t.now += t.RTTNs / 2
	}
	t.from.Connect(t.now, id, tcp.Seq(t.rng.Uint32()), t.rng.Uint32())
	pass(t.from)
	t.to.Accept(t.now, tcp.ID{LocalPort: 2, RemotePort: 1}, tcp.Seq(t.rng.Uint32()),
		t.rng.Uint32(), &seg)
	pass(t.to)
	a := t.from.Input(t.now, &seg)
	t.from.Commit(t.now, &a, false)
	// The last of the three has no way to go here: the receiver is not waited for.
	if !t.from.Next(t.now, 1, &t.out) {
		panic("linksim: handshake without an end")
	}
	put(&seg, &t.out)
	a = t.to.Input(t.now, &seg)
	t.to.Commit(t.now, &a, false)
	if t.from.State() != tcp.Established || t.to.State() != tcp.Established {
		panic("linksim: no connection")
	}
}

// put makes s the segment that t says. Ports stay out of it: there is one connection.
func put(s *tcp.Segment, t *tcp.Transmit) {
	s.Seq, s.Ack, s.Flags, s.Window, s.TOS, s.Len, s.Options = t.Seq, t.Ack, t.Flags, t.Window, t.TOS,
		t.Len, t.Options
}

// step runs until the next thing happens; false when that lies beyond end.
func (t *transfer) step(end int64) bool {
	next := min(t.ahead.next(), t.back.next(), t.late.next(), t.fromAt, t.toAt)
	if t.TurnNs > 0 {
		next = (next + t.TurnNs - 1) / t.TurnNs * t.TurnNs
	}
	if next > end {
		return false
	}
	t.now = max(t.now, next)
	heard := false
	for t.late.next() <= t.now {
		t.receive(t.to, &t.late.first().seg)
		t.late.pop()
		heard = true
	}
	for t.ahead.next() <= t.now {
		t.receive(t.to, &t.ahead.first().seg)
		t.ahead.pop()
		heard = true
	}
	if heard || t.toAt <= t.now {
		t.turnTo()
	}
	heard = false
	for t.back.next() <= t.now {
		t.receive(t.from, &t.back.first().seg)
		t.back.pop()
		heard = true
	}
	if heard || t.fromAt <= t.now {
		t.turnFrom()
	}
	return true
}

func (t *transfer) receive(c *tcp.Conn, s *tcp.Segment) {
	a := c.Input(t.now, s)
	c.Commit(t.now, &a, false)
}

// turnTo is the receiver's: what it owes goes back.
func (t *transfer) turnTo() {
	if t.toAt <= t.now {
		t.to.Expire(t.now)
	}
	for t.to.Next(t.now, 1, &t.out) {
		p := t.back.push()
		p.at = t.now + t.RTTNs/2
		put(&p.seg, &t.out)
	}
	t.toAt = t.deadline(t.to)
}

// turnFrom is the sender's: as a Poller, it is asked for segments while there is room.
func (t *transfer) turnFrom() {
	c := t.from
	if t.fromAt <= t.now {
		c.Expire(t.now)
	}
	c.TakeEvents()
	for {
		if _, ok := c.Release(); !ok {
			break
		}
	}
	for {
		for c.Next(t.now, 1, &t.out) {
			t.send()
		}
		_, room := c.Room(t.now, 1)
		n := min(room, t.toSend())
		if n == 0 {
			break
		}
		c.Push(t.now, []tcp.Piece{{Handle: 1, Len: int32(n)}})
		if !c.Next(t.now, 1, &t.out) {
			break
		}
		t.send()
	}
	t.fromAt = t.deadline(c)
}

// toSend is how many octets the application has.
func (t *transfer) toSend() int {
	if t.Message == 0 {
		return math.MaxInt
	}
	pushed := t.from.PushedOffset()
	if pushed == t.until && t.from.AckedOffset() == pushed {
		t.until += uint64(t.Message)
	}
	return int(t.until - pushed)
}

func (t *transfer) deadline(c *tcp.Conn) int64 {
	at := c.Deadline()
	if c.State() != tcp.Established {
		panic("linksim: the connection did not last")
	}
	return at
}

// send puts what the sender has given on the link.
func (t *transfer) send() {
	t.counts.Sent++
	nowPs := t.now * 1000
	waiting := max(t.freePs-nowPs, 0) / t.octetPs
	if waiting > int64(t.QueueMax) {
		t.counts.Overflowed++
		return
	}
	t.freePs = max(t.freePs, nowPs) + int64(t.out.Len+t.Overhead)*t.octetPs
	if t.loses() || t.polices() {
		t.counts.Lost++
		return
	}
	p := t.carry((t.freePs+999)/1000 + t.RTTNs/2)
	put(&p.seg, &t.out)
	if t.MarkAt > 0 && waiting > int64(t.MarkAt) && t.out.TOS&ecn != 0 {
		t.counts.Marked++
		p.seg.TOS |= ecn
	}
}

// carry is the place of a segment that would arrive at at.
func (t *transfer) carry(at int64) *packet {
	switch {
	case t.Late > 0 && t.rng.Float64() < t.Late:
		t.counts.Late++
		return t.late.push(at + 1 + t.rng.Int64N(t.LateMaxNs))
	case t.Jitter != nil && t.InOrder:
		t.lastAt = max(t.lastAt, at+t.Jitter(t.rng))
		at = t.lastAt
	case t.Jitter != nil:
		return t.late.push(at + t.Jitter(t.rng))
	}
	p := t.ahead.push()
	p.at = at
	return p
}

// loses says whether the link loses the next data segment.
func (t *transfer) loses() bool {
	if t.Loss == 0 {
		return false
	}
	p := t.Loss
	if t.LossRun > 1 && t.now-t.lostAt < t.RTTNs/2 {
		p = 1 - 1/t.LossRun
	}
	if t.rng.Float64() >= p {
		t.lostAt = longAgo
		return false
	}
	t.lostAt = t.now
	return true
}

// polices says whether the policer drops the segment that has just left the queue.
func (t *transfer) polices() bool {
	if t.PolicedBits == 0 {
		return false
	}
	at := t.freePs / 1000
	octets := int64(t.out.Len + t.Overhead)
	t.tokens = min(t.tokens+(at-t.tokensAt)*t.PolicedBits, int64(t.PolicedBurst)*8e9)
	t.tokensAt = at
	if t.tokens < octets*8e9 {
		return true
	}
	t.tokens -= octets * 8e9
	return false
}

// ecn is the field of RFC 3168 section 5; all bits set are CE.
const ecn = 3
