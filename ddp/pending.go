package ddp

import "math/bits"

// pendingMessage is a message whose last segment was placed.
type pendingMessage struct {
	header Header // of the last segment
	len    uint32 // Delivered.Len
	aside  [AsideLen]byte
}

// pendingRef orders messages without moving them.
type pendingRef struct {
	end  uint64 // stream position after the last segment: unique, the order of Delivery
	slot uint32
}

// pendingFew is how many messages a list has room for of its own. In order there is one at a time:
// it is Delivered before the next is placed. The other is for one that came ahead of it.
const pendingFew = 2

// pendingList holds messages in stream order until the left edge passes them. In stream order both
// ends cost O(1); a message that arrives out of order is found by bisection and moves the
// references on its shorter side: a hole that fills late moves few, for it belongs near the front.
//
//	few, in the list itself --insert beyond it--> a pendingRun of the memory
//	       ^----------------- pop of the last -------------'
type pendingList struct {
	*pendingRun
	head   uint32 // free-running
	count  uint32
	memory *PendingMemory
	peer   uint64

	few      pendingRun // refs, slots and free of the following
	fewRefs  [pendingFew]pendingRef
	fewSlots [pendingFew]pendingMessage
	fewFree  [pendingFew]uint32
}

// pendingRun is room for so many messages.
type pendingRun struct {
	refs  []pendingRef // ring, power of two
	slots []pendingMessage
	free  []uint32 // stack of unused slots
	taken bool     // of a PendingMemory's: a Stream has it
	peer  uint64   // whose
}

func newPendingRun(max int) *pendingRun {
	r := &pendingRun{
		refs:  make([]pendingRef, 1<<bits.Len(uint(max-1))),
		slots: make([]pendingMessage, max),
		free:  make([]uint32, max),
	}
	r.fill()
	return r
}

// fill has all slots free.
func (r *pendingRun) fill() {
	for i := range r.free {
		r.free[i] = uint32(len(r.free) - 1 - i)
	}
}

// PendingMemory is what Streams of one goroutine share: room for messages that were placed ahead of
// a gap. A Stream takes a run of it, for PendingMax messages, while more than one waits for
// Delivery, and gives it back when none does: a Stream whose segments come in order has none. While
// it has nothing left for a Stream that wants its first run, that Stream's Room is 0.
//
// A peer that leaves its gaps open keeps runs for as long. So what the Streams of one peer
// (StreamConfig.Peer) have is bounded by what is left: one peer has up to three quarters of the
// runs, the next three quarters of the rest.
type PendingMemory struct {
	pendingMax int
	runsMax    int
	streams    int
	runs       []*pendingRun // made
	free       []*pendingRun // of these
}

// pendingShare is how many runs one peer may have for each that is left.
const pendingShare = 3

// NewPendingMemory makes the memory of Streams whose PendingMax is pendingMax: runsMax runs, and
// one for each Stream while those are fewer. It panics unless both are positive.
func NewPendingMemory(pendingMax, runsMax int) *PendingMemory {
	if pendingMax < 1 || runsMax < 1 {
		panic("ddp: NewPendingMemory wants room for a message, and a Stream")
	}
	return &PendingMemory{pendingMax: pendingMax, runsMax: runsMax}
}

// PendingMax is how many messages a run is for.
func (m *PendingMemory) PendingMax() int { return m.pendingMax }

// join makes the run of one more Stream.
func (m *PendingMemory) join() {
	if m.streams++; len(m.runs) < min(m.streams, m.runsMax) {
		r := newPendingRun(m.pendingMax + 1)
		m.runs, m.free = append(m.runs, r), append(m.free, r)
	}
}

// has says whether there is a run for a Stream of a peer.
func (m *PendingMemory) has(peer uint64) bool {
	if len(m.free) == 0 {
		return false
	}
	taken := len(m.runs) - len(m.free)
	most := pendingShare * (m.runsMax - taken)
	if taken < most {
		return true // even if all of them are this peer's
	}
	n := 0
	for _, r := range m.runs {
		if r.taken && r.peer == peer {
			n++
		}
	}
	return n < most
}

func (m *PendingMemory) take(peer uint64) *pendingRun {
	n := len(m.free) - 1
	r := m.free[n]
	m.free = m.free[:n]
	r.taken, r.peer = true, peer
	return r
}

// init makes room for max messages, of memory if that is not nil. l is zero.
func (l *pendingList) init(memory *PendingMemory, peer uint64, max int) {
	l.memory, l.peer = memory, peer
	if memory == nil {
		l.pendingRun = newPendingRun(max)
		return
	}
	memory.join()
	l.few = pendingRun{refs: l.fewRefs[:], slots: l.fewSlots[:], free: l.fewFree[:]}
	l.few.fill()
	l.pendingRun = &l.few
}

// grows says whether there is room for PendingMax messages, or will be when it is needed.
func (l *pendingList) grows() bool {
	return l.pendingRun != &l.few || l.memory.has(l.peer)
}

// grow moves the list to a run of the memory, if there is one.
func (l *pendingList) grow() {
	if l.pendingRun != &l.few || !l.memory.has(l.peer) {
		return
	}
	r := l.memory.take(l.peer)
	for i := range l.count {
		slot := r.free[len(r.free)-1]
		r.free = r.free[:len(r.free)-1]
		ref := l.at(i)
		r.slots[slot] = l.slots[ref.slot]
		r.refs[i] = pendingRef{end: ref.end, slot: slot}
	}
	l.few.free = l.fewFree[:]
	l.few.fill()
	l.pendingRun, l.head = r, 0
}

// shrink gives the run back. The list is empty.
func (l *pendingList) shrink() {
	l.taken = false
	l.memory.free = append(l.memory.free, l.pendingRun) // within capacity: there was one more in it
	l.pendingRun = &l.few
}

// close gives back what the list has of the memory. It is no longer used.
func (l *pendingList) close() {
	if l.memory == nil {
		return
	}
	if l.pendingRun != &l.few {
		l.free = l.free[:cap(l.free)]
		l.fill()
		l.shrink()
	}
	l.memory.streams--
	l.memory, l.count = nil, 0
}

func (l *pendingList) at(i uint32) *pendingRef {
	return &l.refs[(l.head+i)&uint32(len(l.refs)-1)]
}

// insert adds a message that ends at end and returns its slot to fill; nil when there already is
// one with that end. The list must not be full.
func (l *pendingList) insert(end uint64) *pendingMessage {
	i := l.count
	if i > 0 {
		l.grow()
		if l.at(i-1).end >= end {
			if i = l.search(end); l.at(i).end == end {
				return nil
			}
		}
	}
	slot := l.free[len(l.free)-1]
	l.free = l.free[:len(l.free)-1]
	if i < l.count-i { // fewer before than after
		l.head--
		for k := uint32(0); k < i; k++ {
			*l.at(k) = *l.at(k + 1)
		}
	} else {
		for k := l.count; k > i; k-- {
			*l.at(k) = *l.at(k - 1)
		}
	}
	l.count++
	*l.at(i) = pendingRef{end: end, slot: slot}
	return &l.slots[slot]
}

// search returns the index of the first message that ends at or after end.
func (l *pendingList) search(end uint64) uint32 {
	lo, hi := uint32(0), l.count
	for lo < hi {
		if mid := (lo + hi) / 2; l.at(mid).end < end {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

func (l *pendingList) pop() {
	l.free = append(l.free, l.at(0).slot) // within capacity: one entry per slot
	l.head++
	if l.count--; l.count == 0 && l.pendingRun != &l.few && l.memory != nil {
		l.shrink()
	}
}
