package stream

import "github.com/rnicd/rnicd/mem"

// piece is a Buf of octets that came ahead of a gap: an element of the early list of its
// connection, in stream order. pollerState has one for each Buf of the pool, so a list takes no
// memory and an insertion no allocation.
//
// Pieces without a gap between them are a run. Its first and its last know each other, so that a
// search steps over whole runs, of which TCP allows few (tcp.Config.RangesMax).
type piece struct {
	at         uint64 // stream offset
	off, n     uint32 // octets within the Buf's slot
	prev, next mem.Buf
	far        mem.Buf // of the first of a run its last, of the last its first
}

func (p *piece) end() uint64 { return p.at + uint64(p.n) }

// early is the list of one connection.
type early struct {
	first, last mem.Buf
	n           int
}

var noEarly = early{first: mem.NoBuf, last: mem.NoBuf}

// insert puts n octets at off of b into the list; at is where they stand in the stream. No two
// pieces overlap: TCP gives each octet once. The search begins at the end, where nearly all arrive.
func (ps *pollerState) insert(l *early, b mem.Buf, at uint64, off, n uint32) {
	prev := ps.before(l, at)
	next := l.first
	if prev != mem.NoBuf {
		next = ps.pieces[prev].next
		ps.pieces[prev].next = b
	} else {
		l.first = b
	}
	if next != mem.NoBuf {
		ps.pieces[next].prev = b
	} else {
		l.last = b
	}
	ps.pieces[b] = piece{at: at, off: off, n: n, prev: prev, next: next, far: b}
	l.n++
	ps.join(prev, b)
	ps.join(b, next)
}

// join makes one run of those that end with a and begin with b, if they touch. Either may be none.
func (ps *pollerState) join(a, b mem.Buf) {
	if a == mem.NoBuf || b == mem.NoBuf || ps.pieces[a].end() != ps.pieces[b].at {
		return
	}
	first, last := ps.pieces[a].far, ps.pieces[b].far
	ps.pieces[first].far, ps.pieces[last].far = last, first
}

// before is the last piece that stands before at, which is in no piece: the last of a run.
func (ps *pollerState) before(l *early, at uint64) mem.Buf {
	b := l.last
	for b != mem.NoBuf && ps.pieces[b].at > at {
		b = ps.pieces[ps.pieces[b].far].prev
		ps.stepped++
	}
	return b
}

// merge copies data after the piece that ends where it begins, if that has room.
func (ps *pollerState) merge(l *early, at uint64, data []byte) bool {
	b := ps.before(l, at)
	if b == mem.NoBuf || ps.pool.Lent(b) {
		return false
	}
	p := &ps.pieces[b]
	if p.end() != at {
		return false
	}
	free := ps.pool.Slot(b)[p.off+p.n:]
	if len(free) < len(data) {
		return false
	}
	copy(free, data)
	p.n += uint32(len(data))
	ps.join(b, p.next)
	return true
}

// end is the stream offset after the last piece. There is at least one.
func (ps *pollerState) end(l *early) uint64 {
	return ps.pieces[l.last].end()
}

// pop takes the first piece off; b is the caller's.
func (ps *pollerState) pop(l *early) (b mem.Buf, p piece) {
	b = l.first
	p = ps.pieces[b]
	l.n--
	if p.far != b { // more of its run
		ps.pieces[p.next].far = p.far
		ps.pieces[p.far].far = p.next
	}
	if l.first = p.next; l.first == mem.NoBuf {
		l.last = mem.NoBuf
	} else {
		ps.pieces[l.first].prev = mem.NoBuf
	}
	return b, p
}
