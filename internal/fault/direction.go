package fault

import (
	"math"
	"math/rand/v2"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Counters of one direction. Read on the queue's own goroutine.
type Counters struct {
	Frames     uint64 // that came in
	Dropped    uint64
	Duplicated uint64
	Reordered  uint64 // held back to be overtaken
	Overdue    uint64 // of those, let go by time and not by count
	Corrupted  uint64
	Swapped    uint64
	SwapUnfit  uint64 // chosen for a swap, but no TCP, or no two different words in it
	Truncated  uint64
	Delayed    uint64
	// nothing more could be held: a late frame was dropped, or one to be overtaken went at once
	HoldFull uint64
	NoBuf    uint64 // pool empty: a frame that had to be copied was dropped, or not duplicated
	Stalls   uint64 // times it stood still
	Refused  uint64 // calls of which not all frames passed, because it is slow or stood still
}

// effects are what befalls one frame: a set.
type effects uint8

const (
	effectDrop effects = 1 << iota
	effectDuplicate
	effectReorder
	effectCorrupt
	effectSwap
	effectTruncate
	effectDelay
)

// sink takes frames that leave a direction. send takes over b when it returns true; false: no room
// now.
type sink interface{ send(b mem.Buf) bool }

// direction is the way of frames to the device, or from it:
//
//	frame -> roll -> damage -> [ delayed ] -> [ overtaken ] -> sink
//
// Every frame in it is a Buf that the direction owns. Delay is a constant line with ordered jitter,
// so delayed is a FIFO; overtaken frames leave by count of frames that passed, or by time, both the
// same for all, so it is one too.
type direction struct {
	faults    Faults
	rng       *rand.Rand
	pool      *mem.Pool
	delayed   fifo
	overtaken fifo
	passed    uint64 // frames that went to the sink without being overtaken
	lastDue   int64  // of the youngest in delayed: jitter does not reorder
	counters  Counters
	watch     func(frame []byte, swapped [2]int)
	slow      throttle
}

func newDirection(f Faults, heldMax int, pool *mem.Pool, seed, stream uint64) *direction {
	return &direction{
		faults:    f.filled(),
		rng:       rand.New(rand.NewPCG(seed, stream)),
		pool:      pool,
		delayed:   newFIFO(heldMax),
		overtaken: newFIFO(heldMax),
		// apart: the other faults stay as they are
		slow: throttle{rng: rand.New(rand.NewPCG(seed, ^stream))},
	}
}

func (l *direction) chance(p float64) bool { return p > 0 && l.rng.Float64() < p }

// roll decides on one frame. A frame with no effects passes untouched.
func (l *direction) roll() effects {
	f := &l.faults
	if l.chance(f.Drop) {
		return effectDrop
	}
	var x effects
	if l.chance(f.Duplicate) {
		x |= effectDuplicate
	}
	if l.chance(f.Reorder) {
		x |= effectReorder
	}
	if l.chance(f.Corrupt) {
		x |= effectCorrupt
	}
	if l.chance(f.Swap) {
		x |= effectSwap
	}
	if l.chance(f.Truncate) {
		x |= effectTruncate
	}
	if f.Delay > 0 || f.Jitter > 0 {
		x |= effectDelay
	}
	return x
}

// clone copies b, which need not be ours, into a Buf of the direction's; NoBuf, counted, when the
// pool is empty.
func (l *direction) clone(b mem.Buf) mem.Buf {
	c := l.pool.Alloc()
	if c == mem.NoBuf {
		l.counters.NoBuf++
		return c
	}
	from, to := l.pool.Desc(b), l.pool.Desc(c)
	to.Off, to.Len = from.Off, from.Len
	copy(l.pool.Data(c), l.pool.Data(b))
	return c
}

// admit has the effects f, not effectDrop, on b, which becomes the direction's.
func (l *direction) admit(b mem.Buf, f effects, now int64, s sink) {
	l.damage(b, f)
	twin := mem.NoBuf
	if f&effectDuplicate != 0 {
		if twin = l.clone(b); twin != mem.NoBuf {
			l.counters.Duplicated++
		}
	}
	l.place(b, f, now, s)
	if twin != mem.NoBuf {
		l.place(twin, f&^effectReorder, now, s)
	}
}

// damage changes b's octets as f says.
func (l *direction) damage(b mem.Buf, f effects) {
	var swapped [2]int
	if f&effectSwap != 0 {
		var ok bool
		if swapped, ok = swapWords(l.pool.Data(b), l.rng); ok {
			l.counters.Swapped++
		} else {
			l.counters.SwapUnfit++
		}
	}
	if l.watch != nil {
		l.watch(l.pool.Data(b), swapped)
	}
	if f&effectCorrupt != 0 {
		l.corrupt(b)
	}
	if f&effectTruncate != 0 {
		d := l.pool.Desc(b)
		d.Len = truncated(d.Len, l.rng)
		l.counters.Truncated++
	}
}

// corrupt flips bits of b, as a router does that has checked the link's frame check sequence and
// makes a new one. ARP crosses no router, and has no checksum of its own because the link's is
// enough (RFC 826): it finds the damage, and nothing of the packet is left.
func (l *direction) corrupt(b mem.Buf) {
	l.counters.Corrupted++
	if frame := l.pool.Data(b); !isARP(frame) {
		flipBits(frame, l.rng)
		return
	}
	l.pool.Desc(b).Len = pmd.EthernetLen
}

// place puts b where it is to wait, or out.
func (l *direction) place(b mem.Buf, f effects, now int64, s sink) {
	if f&effectDelay != 0 {
		l.lastDue = max(l.lastDue, now+l.faults.Delay+l.jitter())
		l.counters.Delayed++
		l.hold(held{buf: b, due: l.lastDue, reorder: f&effectReorder != 0})
		return
	}
	if f&effectReorder != 0 && l.setBack(b, now) {
		return
	}
	if !s.send(b) {
		l.hold(held{buf: b, due: now}) // goes first when there is room again
		return
	}
	l.passed++
	l.releaseOvertaken(now, s)
}

func (l *direction) jitter() int64 {
	if l.faults.Jitter == 0 {
		return 0
	}
	return l.rng.Int64N(l.faults.Jitter)
}

// hold puts h in line, or drops it, as a network's queue would, when the line is at its limit.
func (l *direction) hold(h held) {
	if l.delayed.full() {
		l.counters.HoldFull++
		l.pool.Free(h.buf)
		return
	}
	l.delayed.push(h)
}

// setBack makes later frames overtake b. False: at the limit, counted; b goes at once.
func (l *direction) setBack(b mem.Buf, now int64) bool {
	if l.overtaken.full() {
		l.counters.HoldFull++
		return false
	}
	l.counters.Reordered++
	l.overtaken.push(
		held{buf: b, due: now + l.faults.ReorderFor, after: l.passed + uint64(l.faults.ReorderBy)})
	return true
}

// release lets go what is due. False: the sink has no more room.
func (l *direction) release(now int64, s sink) bool {
	for {
		h := l.delayed.first()
		if h == nil || h.due > now {
			break
		}
		if h.reorder && l.setBack(h.buf, h.due) {
			l.delayed.pop()
			continue
		}
		h.reorder = false
		if !s.send(h.buf) {
			return false
		}
		l.delayed.pop()
		l.passed++
		if !l.releaseOvertaken(now, s) {
			return false
		}
	}
	return l.releaseOvertaken(now, s)
}

func (l *direction) releaseOvertaken(now int64, s sink) bool {
	for {
		h := l.overtaken.first()
		if h == nil || h.after > l.passed && h.due > now {
			return true
		}
		if !s.send(h.buf) {
			return false
		}
		if h.after > l.passed {
			l.counters.Overdue++
		}
		l.overtaken.pop()
	}
}

// untilOvertaken is how many frames may pass before an overtaken one is due; MaxUint64 when there
// is none.
func (l *direction) untilOvertaken() uint64 {
	h := l.overtaken.first()
	if h == nil {
		return math.MaxUint64
	}
	return h.after - min(l.passed, h.after)
}

// deadline is when release is next due.
func (l *direction) deadline() int64 {
	at := int64(math.MaxInt64)
	if h := l.delayed.first(); h != nil {
		at = h.due
	}
	if h := l.overtaken.first(); h != nil {
		at = min(at, h.due)
	}
	return at
}

// drop frees everything held and returns how many Bufs that were.
func (l *direction) drop() int {
	n := l.delayed.n + l.overtaken.n
	for h := l.delayed.first(); h != nil; h = l.delayed.first() {
		l.pool.Free(h.buf)
		l.delayed.pop()
	}
	for h := l.overtaken.first(); h != nil; h = l.overtaken.first() {
		l.pool.Free(h.buf)
		l.overtaken.pop()
	}
	return n
}
