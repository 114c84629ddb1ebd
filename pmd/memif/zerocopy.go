package memif

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// A client whose pools lie in an arena with a memfd gives the server the arena itself:
// descriptors name Bufs.

const (
	arenaRegion = 1
	refillMax   = 64 // Bufs posted at a time
	postedShare = 4  // of a pool, one part in so many is posted at most
)

// bufOffset is where octet off of slot b lies in the arena; poolFrom is where the pool does.
func bufOffset(q *Queue, poolFrom uint32, b mem.Buf, off uint32) uint32 {
	return poolFrom + uint32(b)*uint32(q.pool.Stride()) + off
}

// poolAt is where a pool lies in an arena, if it does.
func poolAt(arena []byte, p *mem.Pool) (uint32, bool) {
	first, at := uintptr(unsafe.Pointer(unsafe.SliceData(arena))),
		uintptr(unsafe.Pointer(unsafe.SliceData(p.Memory())))
	if at < first || at-first > uintptr(len(arena)) || uintptr(len(p.Memory())) > uintptr(len(arena))-
		(at-first) {
		return 0, false
	}
	return uint32(at - first), true
}

// lent sends Bufs themselves; each is held by the device until the server has read it.
type lent struct {
	ring     ring
	next     uint16 // to be filled
	read     uint16 // up to where the server has read, and Bufs were let go of
	bufs     []mem.Buf
	poolFrom uint32
}

func newLent(q *Queue, r ring) *lent {
	from, _ := poolAt(q.session.own.arena.Bytes(), q.pool)
	q.pool.Circulate()
	return &lent{ring: r, bufs: make([]mem.Buf, r.size()), poolFrom: from}
}

func (l *lent) reclaim(q *Queue) {
	if l.read == l.next {
		return
	}
	tail := l.ring.tail()
	if l.next-tail > l.next-l.read {
		q.violated()
		return
	}
	for ; l.read != tail; l.read++ {
		q.pool.DeviceDone(l.bufs[l.read&l.ring.mask])
	}
}

func (l *lent) send(q *Queue, bufs []mem.Buf) int {
	if q.broken {
		return 0
	}
	free := l.ring.size() - (l.next - l.read)
	n, octets, used := 0, 0, uint16(0)
	for n < len(bufs) {
		b := bufs[n]
		frame := q.frame(b)
		if frame == nil {
			n++
			continue
		}
		if used == free {
			break
		}
		q.pool.HoldDevice(b)
		l.bufs[l.next&l.ring.mask] = b
		l.next++ // what is held is in the ring, whatever a store to that does
		l.ring.store(l.next-1,
			newDesc(0, arenaRegion, uint32(len(frame)), bufOffset(q, l.poolFrom, b, q.pool.Desc(b).Off)))
		used++
		octets += len(frame)
		n++
	}
	if used > 0 {
		l.ring.advance(used)
		q.published(int(used), octets)
	}
	return n
}

func (l *lent) giveBack(q *Queue) {
	for ; l.read != l.next; l.read++ {
		q.pool.DeviceDone(l.bufs[l.read&l.ring.mask])
	}
}

// posted receives into Bufs that lie in the ring.
type posted struct {
	ring     ring
	next     uint16 // to be read
	head     uint16 // up to where Bufs are posted
	most     uint16
	bufs     []mem.Buf
	poolFrom uint32
	fresh    [refillMax]mem.Buf
}

func newPosted(q *Queue, r ring) *posted {
	from, _ := poolAt(q.session.own.arena.Bytes(), q.pool)
	p := &posted{ring: r, bufs: make([]mem.Buf, r.size()), poolFrom: from}
	p.most = uint16(max(1, min(int(r.size()), q.pool.Size()/postedShare)))
	p.refill(q)
	return p
}

func (p *posted) receive(q *Queue, bufs []mem.Buf) int {
	if q.broken {
		return 0
	}
	ready := p.ring.tail() - p.next
	if ready > p.head-p.next {
		return q.violated()
	}
	if ready == 0 || len(bufs) == 0 {
		p.refill(q)
		return 0
	}
	room := min(q.frameMax, q.pool.Stride()-q.pool.Headroom())
	n, octets := 0, 0
	for ready > 0 && n < len(bufs) {
		d, b := p.ring.load(p.next), p.bufs[p.next&p.ring.mask]
		if length := int(d.length()); !d.more() && length >= pmd.EthernetLen && length <= room {
			q.pool.Desc(b).Len = d.length()
			bufs[n] = b
			p.next++
			ready--
			octets += length
			n++
		} else {
			length, pieces := p.odd(q, ready, room)
			ready -= pieces
			octets += length
			if length > 0 {
				bufs[n] = b
				n++
			}
		}
		q.held = bufs[:n]
	}
	q.counters.RxFrames += uint64(n)
	q.counters.RxOctets += uint64(octets)
	p.refill(q)
	return n
}

// odd takes a frame that is in several Bufs, which it joins in the first, or is no frame, which
// it frees: the length is 0 then.
func (p *posted) odd(q *Queue, ready uint16, room int) (length int, pieces uint16) {
	first := p.bufs[p.next&p.ring.mask]
	d := q.pool.Desc(first)
	bad, long := false, false
	for {
		piece, b := p.ring.load(p.next), p.bufs[p.next&p.ring.mask]
		p.next++
		pieces++
		n := int(piece.length())
		switch {
		case n == 0 || n > room:
			bad = true
		case n > room-length:
			long = true
		default:
			octets := q.pool.Slot(b)[q.pool.Headroom():][:n]
			if b != first {
				copy(q.pool.Slot(first)[d.Off:][length:], octets)
			}
			length += n
		}
		if b != first {
			q.pool.Free(b)
		}
		if !piece.more() {
			break
		}
		if pieces == ready {
			bad = true
			break
		}
	}
	if q.takes(length, bad, long) {
		d.Len = uint32(length)
		return length, pieces
	}
	q.pool.Free(first)
	return 0, pieces
}

// refill posts Bufs where there is room.
func (p *posted) refill(q *Queue) {
	for p.head-p.next < p.most {
		room := p.most - (p.head - p.next)
		k := q.pool.AllocN(p.fresh[:min(int(room), refillMax, q.pool.Available())])
		if k == 0 {
			if p.head == p.next {
				q.counters.RxNoBuf++
			}
			return
		}
		for _, b := range p.fresh[:k] {
			off := uint32(q.pool.Headroom())
			p.bufs[p.head&p.ring.mask] = b
			p.ring.store(p.head, newDesc(0, arenaRegion, uint32(q.pool.Stride())-off,
				bufOffset(q, p.poolFrom, b, off)))
			p.head++
		}
		p.ring.advance(uint16(k))
	}
}

func (p *posted) giveBack(q *Queue) {
	for ; p.next != p.head; p.next++ {
		q.pool.Free(p.bufs[p.next&p.ring.mask])
	}
}
