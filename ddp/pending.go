package ddp

// pendingMessage is a message whose last segment was placed.
type pendingMessage struct {
	header Header // of the last segment
	len    uint32 // Delivered.Len
	aside  [asideLen]byte
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
// ends cost O(1). A message that arrives out of order moves the references of its chunk at most,
// whatever else waits, and looks at the last of each chunk; those that follow it in the same
// segment find its chunk at once.
//
//	few, in the list itself --insert beyond it--> a pendingRun of the memory
//	       ^----------------- pop of the last -------------'
type pendingList struct {
	*pendingRun
	count  uint32
	memory *PendingMemory
	peer   *pendingPeer

	few       pendingRun // refs, chunks, slots and free of the following
	fewRefs   [pendingFew]pendingRef
	fewChunks [1]pendingChunk
	fewSlots  [pendingFew]pendingMessage
	fewFree   [pendingFew]uint32
}

// pendingRun is room for so many messages.
type pendingRun struct {
	chunks pendingChunks
	slots  []pendingMessage
	free   []uint32 // stack of unused slots
}

func newPendingRun(max int) *pendingRun {
	r := &pendingRun{slots: make([]pendingMessage, max), free: make([]uint32, max)}
	// All chunks but the first and the last are at least half full.
	n := max/(chunkLen/2) + 3
	r.chunks = pendingChunks{refs: make([]pendingRef, n*chunkLen), chunks: make([]pendingChunk, n),
		room: chunkLen}
	r.fill()
	return r
}

// fill has all slots free.
func (r *pendingRun) fill() {
	r.chunks.init()
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
	peers      map[uint64]*pendingPeer
}

// pendingPeer is a peer with Streams.
type pendingPeer struct {
	key     uint64
	streams int
	runs    int // that they have
}

// pendingShare is how many runs one peer may have for each that is left.
const pendingShare = 3

// NewPendingMemory makes the memory of Streams whose PendingMax is pendingMax: runsMax runs, and
// one for each Stream while those are fewer. It panics unless both are positive.
func NewPendingMemory(pendingMax, runsMax int) *PendingMemory {
	if pendingMax < 1 || runsMax < 1 {
		panic("ddp: NewPendingMemory wants room for a message, and a Stream")
	}
	return &PendingMemory{pendingMax: pendingMax, runsMax: runsMax,
		peers: make(map[uint64]*pendingPeer)}
}

// PendingMax is how many messages a run is for.
func (m *PendingMemory) PendingMax() int { return m.pendingMax }

// join makes the run of one more Stream, of a peer.
func (m *PendingMemory) join(key uint64) *pendingPeer {
	if m.streams++; len(m.runs) < min(m.streams, m.runsMax) {
		r := newPendingRun(m.pendingMax + 1)
		m.runs, m.free = append(m.runs, r), append(m.free, r)
	}
	p := m.peers[key]
	if p == nil {
		p = &pendingPeer{key: key}
		m.peers[key] = p
	}
	p.streams++
	return p
}

// leave ends the part of a Stream, which has no run.
func (m *PendingMemory) leave(p *pendingPeer) {
	m.streams--
	if p.streams--; p.streams == 0 {
		delete(m.peers, p.key)
	}
}

// has says whether there is a run for a Stream of a peer.
func (m *PendingMemory) has(p *pendingPeer) bool {
	taken := len(m.runs) - len(m.free)
	return len(m.free) > 0 && p.runs < pendingShare*(m.runsMax-taken)
}

func (m *PendingMemory) take(p *pendingPeer) *pendingRun {
	n := len(m.free) - 1
	r := m.free[n]
	m.free = m.free[:n]
	p.runs++
	return r
}

// init makes room for max messages, of memory if that is not nil. l is zero.
func (l *pendingList) init(memory *PendingMemory, peer uint64, max int) {
	l.memory = memory
	if memory == nil {
		l.pendingRun = newPendingRun(max)
		return
	}
	l.peer = memory.join(peer)
	l.few = pendingRun{slots: l.fewSlots[:], free: l.fewFree[:]}
	l.few.chunks = pendingChunks{refs: l.fewRefs[:], chunks: l.fewChunks[:], room: pendingFew}
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
	for ; l.count > 0; l.pop() {
		ref := l.chunks.first()
		slot := r.free[len(r.free)-1]
		r.free = r.free[:len(r.free)-1]
		r.slots[slot] = l.slots[ref.slot]
		r.chunks.insert(pendingRef{end: ref.end, slot: slot})
	}
	l.count = uint32(len(r.slots) - len(r.free))
	l.pendingRun = r
}

// shrink gives the run back. The list is empty.
func (l *pendingList) shrink() {
	l.peer.runs--
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
	l.memory.leave(l.peer)
	l.memory, l.peer, l.count = nil, nil, 0
}

// first is the message that is next in the stream. There is one.
func (l *pendingList) first() *pendingRef { return l.chunks.first() }

// insert adds a message that ends at end and returns its slot to fill; nil when there already is
// one with that end. The list must not be full.
func (l *pendingList) insert(end uint64) *pendingMessage {
	if l.count > 0 {
		l.grow()
	}
	n := len(l.free) - 1
	slot := l.free[n]
	if l.count == 0 {
		l.chunks.put(pendingRef{end: end, slot: slot})
	} else if !l.chunks.insert(pendingRef{end: end, slot: slot}) {
		return nil
	}
	l.free = l.free[:n]
	l.count++
	return &l.slots[slot]
}

// pop takes the first out.
func (l *pendingList) pop() {
	if l.free = append(l.free, l.first().slot); l.count > 1 { // within capacity: one entry per slot
		l.chunks.pop()
		l.count--
		return
	}
	l.chunks.clear()
	if l.count = 0; l.pendingRun != &l.few && l.memory != nil {
		l.shrink()
	}
}
