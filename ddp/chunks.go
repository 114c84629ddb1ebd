package ddp

import "slices"

// chunkLen is how many references stand in a chunk. A run for PendingMax messages has PendingMax/16
// chunks, so that a message which arrives alone in the middle of 1024 looks at 64 chunks and moves
// 32 references.
const chunkLen = 32

// pendingChunks are references in stream order: an unrolled list. A full chunk is cut in two,
// unless the message belongs after all others. The first chunk loses its front to pop.
//
//	head ─► [··ab] ─► [cdef] ─► [gh··]     finger: where the last message was put in, or found to be
type pendingChunks struct {
	refs   []pendingRef // room for each chunk
	chunks []pendingChunk
	room   uint32 // chunkLen, or fewer
	head   uint32
	tail   uint32
	unused uint32 // first of those that hold nothing
	finger uint32 // or noChunk: it was emptied
	steps  uint64 // chunks looked at and references moved, out of order
}

// pendingChunk says what of its references is in use. One that is in the list is not empty, except
// the only one.
type pendingChunk struct {
	last     uint64 // end of the last
	from, to uint32 // of the chunk's room
	next     uint32
}

const noChunk = ^uint32(0)

// init empties c.
func (c *pendingChunks) init() {
	for i := range c.chunks {
		c.chunks[i].next = uint32(i) + 1
	}
	c.chunks[len(c.chunks)-1].next = noChunk
	c.unused = c.chunks[0].next
	c.chunks[0] = pendingChunk{next: noChunk}
	c.head, c.tail, c.finger = 0, 0, 0
}

// of is the room of chunk i.
func (c *pendingChunks) of(i uint32) []pendingRef { return c.refs[i*c.room:][:c.room] }

// first is the first reference. There is one.
func (c *pendingChunks) first() *pendingRef { return &c.refs[c.head*c.room+c.chunks[c.head].from] }

// put is insert of the only one, which is nearly always what is to be done.
func (c *pendingChunks) put(ref pendingRef) {
	k := &c.chunks[c.head]
	k.to, k.last = 1, ref.end
	c.refs[c.head*c.room] = ref
}

// clear takes the only one out.
func (c *pendingChunks) clear() {
	k := &c.chunks[c.head]
	k.from, k.to = 0, 0
}

// pop takes the first out. There is another.
func (c *pendingChunks) pop() {
	i := c.head
	k := &c.chunks[i]
	if k.from++; k.from < k.to {
		return
	}
	k.from, k.to = 0, 0
	c.head = k.next
	k.next, c.unused = c.unused, i
	if c.finger == i {
		c.finger = noChunk
	}
}

// insert puts ref in; false: there is one with that end.
func (c *pendingChunks) insert(ref pendingRef) bool {
	if t := &c.chunks[c.tail]; t.to == t.from || t.last < ref.end {
		c.append(ref)
		return true
	}
	i := c.find(ref.end)
	k, refs := &c.chunks[i], c.of(i)
	at, there := slices.BinarySearchFunc(refs[k.from:k.to], ref.end, pendingRef.compare)
	if c.finger = i; there {
		return false
	}
	if k.from == 0 && k.to == c.room {
		i, at = c.split(i, at)
		k, refs = &c.chunks[i], c.of(i)
	}
	if before := uint32(at); k.from > 0 {
		copy(refs[k.from-1:], refs[k.from:k.from+before])
		k.from--
		c.steps += uint64(before)
	} else {
		copy(refs[before+1:k.to+1], refs[before:k.to])
		c.steps += uint64(k.to - before)
		k.to++
	}
	refs[k.from+uint32(at)] = ref
	k.last = refs[k.to-1].end
	c.finger = i
	return true
}

func (r pendingRef) compare(end uint64) int {
	switch {
	case r.end < end:
		return -1
	case r.end > end:
		return 1
	}
	return 0
}

// append puts in what belongs after all others.
func (c *pendingChunks) append(ref pendingRef) {
	k := &c.chunks[c.tail]
	if k.to == c.room {
		if k.from >= c.room/2 { // pop has made room, and each move is for so many more at least
			n := copy(c.of(c.tail), c.of(c.tail)[k.from:k.to])
			k.from, k.to = 0, uint32(n)
		} else {
			k = c.after(c.tail)
		}
	}
	c.of(c.tail)[k.to] = ref
	k.to++
	k.last = ref.end
}

// after takes a chunk and puts it after chunk i.
func (c *pendingChunks) after(i uint32) *pendingChunk {
	fresh := c.unused
	k := &c.chunks[fresh]
	c.unused = k.next
	*k = pendingChunk{next: c.chunks[i].next}
	c.chunks[i].next = fresh
	if c.tail == i {
		c.tail = fresh
	}
	return k
}

// split moves the upper half of chunk i to one of its own, and says where place at of it is now.
func (c *pendingChunks) split(i uint32, at int) (chunk uint32, place int) {
	k := &c.chunks[i]
	upper := c.after(i)
	half := c.room / 2
	upper.to = uint32(copy(c.of(k.next), c.of(i)[half:]))
	upper.last = k.last
	k.to, k.last = half, c.of(i)[half-1].end
	c.steps += uint64(half)
	if at > int(half) {
		return k.next, at - int(half)
	}
	return i, at
}

// find is the first chunk whose last is not before end; there is one. It begins where the last
// message was put in, as those of one segment follow each other.
func (c *pendingChunks) find(end uint64) uint32 {
	if f := c.finger; f != noChunk && c.chunks[f].from < c.chunks[f].to &&
		c.of(f)[c.chunks[f].from].end <= end {
		for n := 0; n < 2 && f != noChunk; n++ {
			if c.steps++; c.chunks[f].last >= end {
				return f
			}
			f = c.chunks[f].next
		}
	}
	i := c.head
	for c.chunks[i].last < end {
		c.steps++
		i = c.chunks[i].next
	}
	return i
}
