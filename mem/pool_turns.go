package mem

// turnsOctets is how much memory of free Bufs takes turns: with what is in use, more than a
// second-level cache, and a part of a third-level one.
const turnsOctets = 4 << 20

// turns are free Bufs of a Pool that circulates, in the order in which they became free. Where
// there are more than most of them, the rest is on the Pool's stack.
type turns struct {
	bufs    []Buf
	head, n uint32
	most    uint32 // 0: the Pool does not circulate
}

// Circulate has the Pool use its Bufs in turn: the one that has been free for longest comes next,
// not the one that was freed last. It is for Bufs whose octets another core reads before they come
// back, as over shared memory. Their lines are in that core's cache then, and to write them now
// costs several times what it costs when other lines have pushed them out to a cache that the cores
// share. So that they do not get further out, no more of them take turns than 4 MiB.
//
// Bufs that are in use now take part when they are freed. A second call does nothing.
func (p *Pool) Circulate() {
	if p.turns.most == 0 {
		p.turns = turns{bufs: make([]Buf, p.own), most: uint32(max(1, turnsOctets/p.stride))}
	}
}

// due says whether the next Buf is to be one of turns, although so many others are free: as long as
// turns and what is in use are less than most, more are made use of.
func (p *Pool) due(others int) bool {
	return p.turns.n > 0 && (others == 0 || int(p.own)-others >= int(p.turns.most))
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
