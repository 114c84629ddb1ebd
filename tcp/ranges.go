package tcp

// ranges are the runs of octets that were committed beyond the left edge. Sorted, disjoint, never
// touching, all beyond the edge; at most cap(spans), so that a peer cannot make us remember without
// bound. They lie in Memory next to the run of spans and come and go with it. A Conn without a run
// has Memory.noGap in their place, which does not change.
type ranges struct {
	spans []span
	run   uint32 // where they lie in Memory
	clock uint32 // gives each change a stamp: SACK reports the latest first
}

// span is [left, right) in stream offsets.
type span struct {
	left, right uint64
	stamp       uint32
}

// runOf is the length of the run that spans were made from: only RangesMax makes cap less.
func (r *ranges) runOf() int { return max(powerOfTwo(cap(r.spans)), spansMin) }

// provideSpan sees to a place for one more span. Its answer is why there is none. It moves c.held.
func (c *Conn) provideSpan() Drop {
	m, from := c.mem, c.held
	n := len(from.spans)
	if n < cap(from.spans) {
		return DropNone
	}
	if n >= m.cfg.RangesMax {
		return DropRangesFull
	}
	var spans []span
	var run uint32
	if n == 0 {
		spans, run = m.spans.first()
	} else {
		spans, run = m.spans.grow(from.runOf(), powerOfTwo(m.cfg.RangesMax))
	}
	if spans == nil {
		return DropNoMemory
	}
	copy(spans, from.spans)
	to := &m.gaps[run]
	*to = ranges{spans: spans[:n:min(len(spans), m.cfg.RangesMax)], run: run, clock: from.clock}
	c.giveBackSpans()
	c.held = to
	return DropNone
}

// releaseSpans gives the memory back once nothing is held.
func (c *Conn) releaseSpans() {
	if len(c.held.spans) == 0 {
		c.giveBackSpans()
	}
}

// giveBackSpans returns the memory; the spans are forgotten, or have been copied.
func (c *Conn) giveBackSpans() {
	if c.held != &c.mem.noGap {
		c.mem.spans.give(c.held.run, c.held.runOf())
		c.held = &c.mem.noGap
	}
}

// end is after the last octet that is held, edge when none is.
func (r *ranges) end(edge uint64) uint64 {
	if n := len(r.spans); n > 0 {
		return r.spans[n-1].right
	}
	return edge
}

// octets is how many are held.
func (r *ranges) octets() (n int) {
	for _, s := range r.spans {
		n += int(s.right - s.left)
	}
	return n
}

// above is the index of the first span that ends after at.
func (r *ranges) above(at uint64) int {
	i := len(r.spans)
	for i > 0 && r.spans[i-1].right > at { // from the end: new data usually lies there
		i--
	}
	return i
}

// gap is the first part of [lo, hi) that no span holds; empty (lo == hi) when all is held.
func (r *ranges) gap(lo, hi uint64) (uint64, uint64) {
	for i := r.above(lo); i < len(r.spans); i++ {
		s := &r.spans[i]
		if s.left > lo {
			return lo, min(hi, s.left)
		}
		lo = min(hi, s.right)
		if lo == hi {
			break
		}
	}
	return lo, hi
}

// fits says whether add(lo, hi) has a place: a free one, or a neighbour to grow.
func (r *ranges) fits(lo, hi uint64) bool {
	if len(r.spans) < cap(r.spans) {
		return true
	}
	for i := range r.spans {
		if r.spans[i].left == hi || r.spans[i].right == lo {
			return true
		}
	}
	return false
}

// add puts in [lo, hi), which gap has found to be new, and joins it with neighbours it touches.
func (r *ranges) add(lo, hi uint64) {
	if len(r.spans) == 0 {
		r.clock = 0
	}
	r.clock++
	i := r.above(lo)
	joinsLeft := i > 0 && r.spans[i-1].right == lo
	joinsRight := i < len(r.spans) && r.spans[i].left == hi
	switch {
	case joinsLeft && joinsRight:
		r.spans[i-1].right = r.spans[i].right
		r.spans[i-1].stamp = r.clock
		r.spans = append(r.spans[:i], r.spans[i+1:]...)
	case joinsLeft:
		r.spans[i-1].right = hi
		r.spans[i-1].stamp = r.clock
	case joinsRight:
		r.spans[i].left = lo
		r.spans[i].stamp = r.clock
	default:
		r.spans = r.spans[:len(r.spans)+1]
		copy(r.spans[i+1:], r.spans[i:])
		r.spans[i] = span{lo, hi, r.clock}
	}
}

// advance drops the span that begins at edge, if there is one, and returns the edge after it.
func (r *ranges) advance(edge uint64) uint64 {
	if len(r.spans) > 0 && r.spans[0].left == edge {
		edge = r.spans[0].right
		r.spans = append(r.spans[:0], r.spans[1:]...)
	}
	return edge
}

// holder is the span that holds all of [lo, hi).
func (r *ranges) holder(lo, hi uint64) (span, bool) {
	if i := r.above(lo); i < len(r.spans) && r.spans[i].left <= lo && hi <= r.spans[i].right {
		return r.spans[i], true
	}
	return span{}, false
}

// before is the span changed most lately before stamp, for reporting in that order.
func (r *ranges) before(stamp uint32) (span, bool) {
	var best span
	for i := range r.spans {
		if s := &r.spans[i]; s.stamp < stamp && s.stamp > best.stamp {
			best = *s
		}
	}
	return best, best.stamp != 0
}
