package stack

import "math"

// timers is a binary heap of connections by deadline, each at most once.
//
// A connection's deadline mostly moves later (every ACK restarts the retransmission timer), so arm leaves an earlier
// entry where it is; when that comes up too soon, expire puts it where it belongs. This makes the usual case one
// comparison.
type timers struct {
	heap []timer
	pos  []int32 // by connection: place in heap, -1 none
}

type timer struct {
	at   int64
	conn connIndex
}

func newTimers(connsMax int) timers {
	t := timers{heap: make([]timer, 0, connsMax), pos: make([]int32, connsMax)}
	for i := range t.pos {
		t.pos[i] = -1
	}
	return t
}

// first is the earliest deadline, math.MaxInt64 when there is none.
func (t *timers) first() int64 {
	if len(t.heap) == 0 {
		return math.MaxInt64
	}
	return t.heap[0].at
}

// arm sees to it that c comes up no later than at.
func (t *timers) arm(c connIndex, at int64) {
	if at == math.MaxInt64 {
		return
	}
	i := int(t.pos[c])
	if i < 0 {
		i = len(t.heap)
		t.heap = append(t.heap, timer{at, c})
		t.pos[c] = int32(i)
	} else if t.heap[i].at <= at {
		return
	} else {
		t.heap[i].at = at
	}
	t.up(i)
}

// remove takes c out if it is there.
func (t *timers) remove(c connIndex) {
	i := int(t.pos[c])
	if i < 0 {
		return
	}
	t.pos[c] = -1
	last := len(t.heap) - 1
	moved := t.heap[last]
	t.heap = t.heap[:last]
	if i == last {
		return
	}
	t.put(i, moved)
	t.down(i)
	t.up(int(t.pos[moved.conn]))
}

func (t *timers) put(i int, e timer) {
	t.heap[i] = e
	t.pos[e.conn] = int32(i)
}

func (t *timers) up(i int) {
	e := t.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].at <= e.at {
			break
		}
		t.put(i, t.heap[parent])
		i = parent
	}
	t.put(i, e)
}

func (t *timers) down(i int) {
	e := t.heap[i]
	for {
		child := 2*i + 1
		if child >= len(t.heap) {
			break
		}
		if child+1 < len(t.heap) && t.heap[child+1].at < t.heap[child].at {
			child++
		}
		if t.heap[child].at >= e.at {
			break
		}
		t.put(i, t.heap[child])
		i = child
	}
	t.put(i, e)
}

// due is when c next wants to be called: tcp's deadline or the Upper's timer.
func (c *Conn) due() int64 {
	at := c.tcp.Deadline()
	if c.timerAt != 0 && c.timerAt < at {
		at = c.timerAt
	}
	return at
}

// expire serves due timers and returns how many there were.
func (p *Poller) expire() int {
	work := 0
	for range timersPerTurnMax {
		if p.timers.first() > p.now {
			break
		}
		c := &p.slab.conns[p.timers.heap[0].conn]
		p.timers.remove(c.index)
		if at := c.due(); at > p.now {
			p.timers.arm(c.index, at)
			continue
		}
		work++
		p.n.Timers++
		p.touch(c) // output sends what is due and arms again
		if c.tcp.Deadline() <= p.now {
			c.tcp.Expire(p.now)
		}
		if c.timerAt != 0 && c.timerAt <= p.now {
			c.timerAt = 0
			if c.upper != nil && c.marks&markAbort == 0 {
				c.upper.Timer(c, p.now)
			}
		}
		if ev := c.tcp.TakeEvents(); ev != 0 {
			p.events(c, ev)
		}
	}
	return work
}
