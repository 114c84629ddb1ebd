package memif

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// copyIn receives by copying each frame out of shared memory into a Buf.
//
//	server: the client has filled descriptors up to head; tail gives them back
//	client: the server has filled descriptors up to tail; what was read is posted again at head
type copyIn struct {
	ring ring
	next uint16     // to be read
	own  *ownMemory // client
}

func newCopyIn(q *Queue, r ring) *copyIn {
	c := &copyIn{ring: r, own: q.session.own}
	if c.own != nil {
		c.post(q, r.size())
	}
	return c
}

// post gives the server n buffers; the first of them is the one that is read when the ring has
// come round.
func (c *copyIn) post(q *Queue, n uint16) {
	for i := range n {
		at := c.next + i
		off := c.own.bufferAt(q.index, true, at&c.ring.mask, int(c.ring.size()))
		c.ring.store(at, newDesc(0, 0, uint32(c.own.bufBytes), uint32(off)))
	}
	c.ring.advance(n)
}

func (c *copyIn) ready() uint16 {
	if c.own != nil {
		return c.ring.tail() - c.next
	}
	return c.ring.head() - c.next
}

// descsPerFrame is how many descriptors a call of Rx looks at for each frame that it may take, on
// the average.
const descsPerFrame = 4

func (c *copyIn) receive(q *Queue, bufs []mem.Buf) int {
	ready := c.ready()
	if ready == 0 || len(bufs) == 0 {
		return 0
	}
	if ready > c.ring.size() {
		return q.violated()
	}
	want := min(len(bufs), int(ready))
	taken := q.pool.AllocN(bufs[:want])
	if taken < want {
		q.counters.RxNoBuf++
	}
	q.held = bufs[:taken]
	n, octets, used := 0, 0, uint16(0)
	// Descriptors that make no frame must not have us walk through the whole ring at once; the rest
	// is there the next time.
	for most := uint16(min(int(ready), descsPerFrame*len(bufs)+piecesMax)); n < taken && used < most; {
		length, pieces := c.frame(q, bufs[n], c.next+used, ready-used)
		used += pieces
		if length > 0 {
			octets += length
			n++
		}
	}
	q.pool.FreeN(bufs[n:taken])
	q.counters.RxFrames += uint64(n)
	q.counters.RxOctets += uint64(octets)
	if c.own != nil {
		c.post(q, used)
		c.next += used
		return n
	}
	c.next += used
	c.ring.setTail(c.next)
	return n
}

// frame copies the frame that begins at a descriptor, one of so many, into b. It returns the
// frame's length, 0 if it was dropped, and how many descriptors it has.
func (c *copyIn) frame(q *Queue, b mem.Buf, at, ready uint16) (length int, pieces uint16) {
	d := q.pool.Desc(b)
	room := q.pool.Slot(b)[d.Off:]
	room = room[:min(len(room), q.frameMax)]
	bad, long := false, false
	for {
		piece := c.ring.load(at + pieces)
		octets := c.octets(q, piece, at+pieces)
		pieces++
		switch {
		case octets == nil:
			bad = true
		case len(octets) > len(room)-length:
			long = true
		default:
			length += copy(room[length:], octets)
		}
		if !piece.more() {
			break
		}
		if pieces == min(ready, piecesMax) {
			bad = true
			break
		}
	}
	if q.takes(length, bad, long) {
		d.Len = uint32(length)
		return length, pieces
	}
	return 0, pieces
}

// takes says whether what came is a frame, and counts why not.
func (q *Queue) takes(length int, bad, long bool) bool {
	switch {
	case bad:
		q.drops.Descriptor++
		q.counters.RxErrors++
	case long:
		q.counters.RxTooLong++
	case length < pmd.EthernetLen:
		q.drops.Length++
		q.counters.RxErrors++
	default:
		return true
	}
	return false
}

// octets are those of one descriptor; nil: it is bad. A client knows where its buffers are.
func (c *copyIn) octets(q *Queue, d desc, at uint16) []byte {
	if c.own == nil {
		return q.session.at(d)
	}
	n := d.length()
	if n == 0 || n > uint32(c.own.bufBytes) {
		return nil
	}
	off := c.own.bufferAt(q.index, true, at&c.ring.mask, int(c.ring.size()))
	return q.session.regions[0][off:][:n:n]
}

func (c *copyIn) giveBack(*Queue) {}
