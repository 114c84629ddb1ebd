package stack

import (
	"math"
	"math/bits"
)

// timers says which connection's deadline comes next, each connection having at most one: a
// hierarchical timing wheel (G. Varghese, T. Lauck, "Hashed and hierarchical timing wheels", 1987,
// scheme 7) for what is farther away than a tick of a millisecond, and a binary heap for what is
// nearer, so that times are exact. However many connections there are, to arm touches one slot of
// the wheel, and the heap holds those of one millisecond only.
//
// A connection's deadline mostly moves later (every ACK restarts the retransmission timer), so arm
// leaves an earlier entry where it is and takes note of the time wanted; when the entry comes up
// too soon, it is put where it belongs, or nowhere. This makes the usual case one comparison, and
// what came up for nothing costs no look at the connection.
//
// The wheel has a level for each eight bits of a tick's number. An entry stands on the level of the
// highest digit in which its tick differs from the present one, in the slot of that digit: so all
// on one level come before all on the next, and a slot is poured out when the present reaches it,
// each entry at most once per level.
type timers struct {
	tick  int64   // the present: what is due in this tick or before stands in the heap
	armed []alarm // by connection
	heads [wheelLevels * wheelSlots]connIndex
	busy  [wheelLevels][wheelSlots / 64]uint64 // slots that are not empty
	heap  []timer
}

// alarm is one connection's: all that arm looks at is in one cache line.
type alarm struct {
	at         int64 // where it stands
	want       int64 // what it was last armed for: at or later
	place      int32 // index in heap, ^slot in the wheel, or placeNone
	next, prev connIndex
}

type timer struct {
	at   int64
	conn connIndex
}

const (
	tickShift   = 20 // 1.05 ms
	digitBits   = 8
	wheelSlots  = 1 << digitBits
	wheelLevels = 6 // 44 bits of ticks are all there can be
	placeNone   = int32(math.MinInt32)
)

func newTimers(connsMax int, now int64) timers {
	t := timers{
		tick: now >> tickShift, armed: make([]alarm, connsMax), heap: make([]timer, 0, connsMax),
	}
	onLargePages(t.armed)
	for i := range t.armed {
		t.armed[i].place = placeNone
	}
	for i := range t.heads {
		t.heads[i] = noConn
	}
	return t
}

// first is no later than the earliest deadline; math.MaxInt64 only when there is none.
func (t *timers) first() int64 {
	if len(t.heap) > 0 {
		return t.heap[0].at
	}
	tick, _ := t.nextBusy()
	if tick == math.MaxInt64 {
		return tick
	}
	return tick << tickShift
}

// arm sees to it that c comes up at at, not before (math.MaxInt64: never).
func (t *timers) arm(c connIndex, at int64) {
	a := &t.armed[c]
	a.want = at
	if a.place != placeNone {
		if a.at <= at {
			return
		}
		t.remove(c)
	}
	t.settle(c)
}

// settle files c, which is nowhere, under the time wanted.
func (t *timers) settle(c connIndex) {
	a := &t.armed[c]
	if a.want == math.MaxInt64 {
		a.place = placeNone
		return
	}
	a.at = a.want
	t.put(c)
}

// early says that c, which soonest gave, came up before the time wanted; it is then where it
// belongs.
func (t *timers) early(c connIndex) bool {
	if a := &t.armed[c]; a.at == a.want {
		return false
	}
	t.remove(c)
	t.settle(c)
	return true
}

// remove takes c out if it is there.
func (t *timers) remove(c connIndex) {
	place := t.armed[c].place
	switch {
	case place == placeNone:
		return
	case place < 0:
		t.unlink(c, int(^place))
	default:
		t.pull(int(place))
	}
	t.armed[c].place = placeNone
}

// advance makes now the present.
func (t *timers) advance(now int64) {
	to := now >> tickShift
	for t.tick < to {
		tick, slot := t.nextBusy()
		if tick > to {
			t.tick = to
			return
		}
		t.tick = tick
		t.pour(slot)
	}
}

// nextBusy is the next tick at which a slot is to be poured out, and which.
func (t *timers) nextBusy() (tick int64, slot int) {
	for level := range wheelLevels {
		shift := level * digitBits
		for digit := int(t.tick>>shift)%wheelSlots + 1; digit < wheelSlots; digit = (digit | 63) + 1 {
			if w := t.busy[level][digit/64] >> (digit % 64); w != 0 {
				digit += bits.TrailingZeros64(w)
				above := t.tick >> (shift + digitBits) << (shift + digitBits)
				return above | int64(digit)<<shift, level*wheelSlots + digit
			}
		}
	}
	return math.MaxInt64, 0
}

// pour puts what stands in a slot where it belongs now.
func (t *timers) pour(slot int) {
	c := t.heads[slot]
	t.heads[slot] = noConn
	t.busy[slot/wheelSlots][slot%wheelSlots/64] &^= 1 << (slot % 64)
	for c != noConn {
		next := t.armed[c].next
		t.settle(c)
		c = next
	}
}

// put files c, which is nowhere, under its time.
func (t *timers) put(c connIndex) {
	a := &t.armed[c]
	tick := a.at >> tickShift
	if tick <= t.tick {
		t.heap = append(t.heap, timer{a.at, c})
		t.up(len(t.heap) - 1)
		return
	}
	level := (bits.Len64(uint64(tick^t.tick)) - 1) / digitBits
	digit := int(tick>>(level*digitBits)) % wheelSlots
	slot := level*wheelSlots + digit
	first := t.heads[slot]
	a.next, a.prev = first, noConn
	if first != noConn {
		t.armed[first].prev = c
	}
	t.heads[slot] = c
	t.busy[level][digit/64] |= 1 << (digit % 64)
	a.place = int32(^slot)
}

func (t *timers) unlink(c connIndex, slot int) {
	next, prev := t.armed[c].next, t.armed[c].prev
	if next != noConn {
		t.armed[next].prev = prev
	}
	if prev != noConn {
		t.armed[prev].next = next
		return
	}
	t.heads[slot] = next
	if next == noConn {
		t.busy[slot/wheelSlots][slot%wheelSlots/64] &^= 1 << (slot % 64)
	}
}

// pull takes entry i out of the heap.
func (t *timers) pull(i int) {
	last := len(t.heap) - 1
	moved := t.heap[last]
	t.heap = t.heap[:last]
	if i == last {
		return
	}
	t.set(i, moved)
	t.down(i)
	t.up(int(t.armed[moved.conn].place))
}

func (t *timers) set(i int, e timer) {
	t.heap[i] = e
	t.armed[e.conn].place = int32(i)
}

func (t *timers) up(i int) {
	e := t.heap[i]
	for i > 0 {
		parent := (i - 1) / 2
		if t.heap[parent].at <= e.at {
			break
		}
		t.set(i, t.heap[parent])
		i = parent
	}
	t.set(i, e)
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
		t.set(i, t.heap[child])
		i = child
	}
	t.set(i, e)
}

// soonest is the connection that comes up at now, or noConn. Follow with early, then remove.
func (t *timers) soonest(now int64) connIndex {
	if len(t.heap) == 0 || t.heap[0].at > now {
		return noConn
	}
	return t.heap[0].conn
}
