package stack

import "math"

// schedule says which connection may send octets next, while there is more to send than leaves at
// once: deficit round robin (M. Shreedhar, G. Varghese, "Efficient fair queuing using deficit round
// robin", 1995), with connections that have sent little before the others, as in FQ-CoDel (RFC 8290
// section 4.1). ADR 0031 says why.
//
// In a round each connection has credit for quantum octets. One that has credit left stands in
// fresh, the others in backlog. A round is over when fresh is empty and all that stood in backlog
// at its beginning have been served. So nobody sends more than quantum octets a round, whichever
// list it stands in, and the rest is remembered from Turn to Turn.
//
// Both lists are empty while the device takes all there is to send.
type schedule struct {
	fresh, backlog queue
	round          uint32
	left           int  // of backlog, how many this round still has to serve
	begun          bool // the first of backlog has been given its credit of this round

	quantum  int // octets a connection may send in a round; it changes from Turn to Turn
	octets   int // that all may still send in this Turn, and
	segments int
	// how many connections may still have a turn in this Turn: with Config.SegmentsMax one each
	due int
}

// expressFrames is how many full frames a connection may have go before frames of others that the
// device has refused: one that has more to send waits for its turn.
const expressFrames = 2

// quantumMin is the quantum while the device is slow and several connections wait, and the least
// one otherwise; a burst if that is less, and two frames if that is more. With less, several
// segments at once (tx_pull.go) would cost more than they save.
const quantumMin = 16 << 10

// frameCost is what a frame takes of the device in addition to its TCP payload: headers of
// Ethernet, IP and TCP with timestamps, checksum, preamble and gap.
const frameCost = 90

func newSchedule(connsMax int) schedule {
	return schedule{fresh: newQueue(connsMax), backlog: newQueue(connsMax)}
}

// waiting is how many connections stand in either list.
func (s *schedule) waiting() int { return s.fresh.n + s.backlog.n }

// begin is a Turn in which so many connections have something to do. slow: the device has lately
// refused frames.
func (s *schedule) begin(cfg *Config, n int, slow bool) {
	s.segments = burstsPerTurnMax * cfg.BurstMax
	s.octets = min(s.segments*cfg.MTU, turnOctetsMax)
	s.quantum = max(min(quantumMin, cfg.BurstMax*cfg.MTU), 2*cfg.MTU)
	if !slow || s.waiting() <= 1 {
		s.quantum = max(s.quantum, s.octets/max(1, n+s.waiting()))
	}
	if s.due = math.MaxInt; cfg.SegmentsMax > 0 {
		s.due = s.waiting()
	}
	if s.waiting() == 0 {
		s.nextRound()
	}
}

func (s *schedule) nextRound() {
	s.round++
	s.left, s.begun = s.backlog.n, false
}

// credit is what c may send before it is others' turn, which is none when it is 0 or less.
func (s *schedule) credit(c *Conn) int {
	if c.round != s.round {
		c.round = s.round
		c.credit = int32(min(c.credit, 0)) + int32(s.quantum)
	}
	return int(c.credit)
}

// add puts c, which stands in neither list, at the end of the one that its credit says.
func (s *schedule) add(c *Conn) {
	c.marks |= markQueued
	if s.credit(c) > 0 {
		s.fresh.push(c.index)
		return
	}
	s.backlog.push(c.index)
}

// next is the connection to be served, with its credit. It stays where it is: served follows.
func (s *schedule) next(conns []Conn) *Conn {
	if s.fresh.n > 0 {
		c := &conns[s.fresh.first()]
		c.credit = min(c.credit, int32(s.quantum))
		return c
	}
	if s.left == 0 {
		s.nextRound()
	}
	c := &conns[s.backlog.first()]
	if !s.begun {
		s.begun = true
		c.round = s.round
		c.credit += int32(s.quantum)
	}
	c.credit = min(c.credit, int32(s.quantum))
	return c
}

// served takes c, which next gave, out of its list. more: it has more to send, and comes back in
// its turn.
func (s *schedule) served(c *Conn, more bool) {
	if s.fresh.n > 0 {
		s.fresh.pop()
	} else {
		s.backlog.pop()
		s.left, s.begun = s.left-1, false
	}
	c.marks &^= markQueued
	if more {
		s.add(c)
	}
}

// remove takes c, the only connection that stands in a list, out of it.
func (s *schedule) remove(c *Conn) {
	s.fresh.n, s.backlog.n, s.left, s.begun = 0, 0, 0, false
	s.due--
	c.marks &^= markQueued
}

// queue is a ring of connections.
type queue struct {
	ring    []connIndex
	head, n int
}

func newQueue(connsMax int) queue { return queue{ring: make([]connIndex, connsMax)} }

func (q *queue) first() connIndex { return q.ring[q.head] }

func (q *queue) push(i connIndex) {
	at := q.head + q.n
	if at >= len(q.ring) {
		at -= len(q.ring)
	}
	q.ring[at] = i
	q.n++
}

func (q *queue) pop() {
	if q.head++; q.head == len(q.ring) {
		q.head = 0
	}
	q.n--
}
