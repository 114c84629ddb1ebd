package stack

import (
	"math"

	"github.com/rnicd/rnicd/tcp"
)

// slab holds all connections; free slots are reused oldest first, so that a late Wake seldom meets
// a new connection.
type slab struct {
	conns     []Conn
	free      []connIndex // ring
	head, n   int
	lingering list
}

func newSlab(p *Poller, connsMax int, m *tcp.Memory) slab {
	s := slab{conns: make([]Conn, connsMax), free: make([]connIndex, connsMax), n: connsMax,
		lingering: emptyList}
	onLargePages(s.conns)
	for i := range s.conns {
		s.conns[i].p, s.conns[i].index = p, connIndex(i)
		s.conns[i].tcp.Init(m)
		s.free[i] = connIndex(i)
	}
	return s
}

// slotFree says whether there is a slot for a new connection, be it that of one in TIME-WAIT.
func (s *slab) slotFree() bool { return s.n > 0 || s.lingering.first != noConn }

// take is a free slot; there must be one.
func (s *slab) take() *Conn {
	c := &s.conns[s.free[s.head]]
	if s.head++; s.head == len(s.free) {
		s.head = 0
	}
	s.n--
	return c
}

// put gives a slot back. The marks of the lists in which the slot may still stand survive.
func (s *slab) put(c *Conn) {
	c.why, c.marks = whyNothing, c.marks&(markActive|markQueued)
	at := s.head + s.n
	if at >= len(s.free) {
		at -= len(s.free)
	}
	s.free[at] = c.index
	s.n++
}

// list is a doubly linked list of connections by index.
type list struct {
	first, last connIndex
	n           int
}

const noConn = connIndex(math.MaxUint32)

var emptyList = list{first: noConn, last: noConn}

func (l *list) pushBack(conns []Conn, i connIndex) {
	l.n++
	conns[i].prev, conns[i].next = l.last, noConn
	if l.last == noConn {
		l.first = i
	} else {
		conns[l.last].next = i
	}
	l.last = i
}

func (l *list) remove(conns []Conn, i connIndex) {
	l.n--
	prev, next := conns[i].prev, conns[i].next
	if prev == noConn {
		l.first = next
	} else {
		conns[prev].next = next
	}
	if next == noConn {
		l.last = prev
	} else {
		conns[next].prev = prev
	}
}
