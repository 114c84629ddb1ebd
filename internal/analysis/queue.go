package analysis

// ring is first in, first out. It grows until it is large enough.
type ring[T any] struct {
	slots   []T
	in, out int
}

func (r *ring[T]) len() int    { return r.in - r.out }
func (r *ring[T]) at(i int) *T { return &r.slots[(r.out+i)&(len(r.slots)-1)] }
func (r *ring[T]) first() *T   { return r.at(0) }
func (r *ring[T]) pop()        { r.out++ }

// push is the place of the next, which the caller fills.
func (r *ring[T]) push() *T {
	if n := r.len(); n == len(r.slots) {
		slots := make([]T, max(1024, 2*n))
		for i := range n {
			slots[i] = *r.at(i)
		}
		r.slots, r.in, r.out = slots, n, 0
	}
	r.in++
	return r.at(r.len() - 1)
}

// timer of one end of a connection.
type timer struct {
	at   int64
	conn int32
	end  int
}

// before orders timers; those of one instant by connection, so that a run is the same each time.
func (t timer) before(u timer) bool {
	if t.at != u.at {
		return t.at < u.at
	}
	return t.conn < u.conn || t.conn == u.conn && t.end < u.end
}

// timerHeap has the earliest first.
type timerHeap []timer

func (h timerHeap) next() int64 {
	if len(h) == 0 {
		return never
	}
	return h[0].at
}

func (h *timerHeap) push(t timer) {
	s := append(*h, t)
	i := len(s) - 1
	for i > 0 && t.before(s[(i-1)/2]) {
		s[i] = s[(i-1)/2]
		i = (i - 1) / 2
	}
	s[i] = t
	*h = s
}

func (h *timerHeap) pop() timer {
	s := *h
	top, t := s[0], s[len(s)-1]
	s = s[:len(s)-1]
	*h = s
	if len(s) == 0 {
		return top
	}
	i := 0
	for {
		child := 2*i + 1
		if child+1 < len(s) && s[child+1].before(s[child]) {
			child++
		}
		if child >= len(s) || !s[child].before(t) {
			break
		}
		s[i] = s[child]
		i = child
	}
	s[i] = t
	return top
}
