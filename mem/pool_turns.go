package mem

// turnsOctets is how much memory circulates at least, and no more where what is in use lies within
// it: more than a second-level cache, and a part of a third-level one.
const turnsOctets = 4 << 20

// turns are the free Bufs of a Pool that circulates, in the order in which they became free.
type turns struct {
	bufs []Buf
	head uint32
	n    uint32
	most int // so many Bufs take turns before the rest is touched only for want of others; 0: the Pool does not circulate
}

// Circulate has the Pool use its Bufs in turn: the one that has been free for longest comes next,
// not the one that was freed last. It is for Bufs whose octets another core reads before they come
// back, as over shared memory. Their lines are in that core's cache then, and to write them now
// costs several times what it costs when other lines have pushed them out to a cache that the cores
// share. (On an EPYC with a second-level cache of 1 MiB: 104 against 160 Gbit/s of bulk Writes at
// MTU 9000.) So that they do not get further out, no more of them take part than is necessary.
//
// Bufs that are in use now take part when they are freed.
func (p *Pool) Circulate() {
	if p.turns.most == 0 {
		p.turns = turns{bufs: make([]Buf, p.own), most: max(1, turnsOctets/p.stride)}
	}
}

// take removes the Buf to be used next from those that are free. There is one.
func (p *Pool) take() Buf {
	if p.turns.n > 0 && (len(p.free) == 0 || int(p.own)-len(p.free) >= p.turns.most) {
		return p.turns.take()
	}
	last := len(p.free) - 1
	b := p.free[last]
	p.free = p.free[:last]
	return b
}

func (t *turns) put(b Buf) {
	at := t.head + t.n
	if at >= uint32(len(t.bufs)) {
		at -= uint32(len(t.bufs))
	}
	t.bufs[at] = b
	t.n++
}

func (t *turns) take() Buf {
	b := t.bufs[t.head]
	if t.head++; t.head == uint32(len(t.bufs)) {
		t.head = 0
	}
	t.n--
	return b
}
