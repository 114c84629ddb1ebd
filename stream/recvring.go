package stream

import (
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
)

// recvRing holds the octets that are in order and unread, in the Bufs they came in. The Poller
// pushes at tail, the reader takes at head, and the Poller frees what the reader has passed: the
// ring is its own way back.
//
//	freed ≤ head ≤ tail      slots [freed, head): read, to be freed; [head, tail): to be read
//
// The last Buf can grow: the Poller copies a small segment after its octets and publishes it by
// compare-and-swap of the slot's word, in which a reader that has taken everything sets sealed. So
// a Buf goes back as soon as it is read.
//
// When the pool is short octets are copied to spilled instead; one slot without a Buf stands for
// any number of them.
type recvRing struct {
	slots   []recvSlot
	mask    uint64
	spilled octetQueue

	_     [cacheLine]byte
	tail  atomic.Uint64 // Poller's
	freed uint64        // Poller's

	_     [cacheLine]byte
	head  atomic.Uint64 // reader's
	taken atomic.Uint64 // reader's: octets in all
	at    uint32        // reader's: octets taken from the Buf at head
	_     [cacheLine]byte
}

type recvSlot struct {
	buf  mem.Buf // NoBuf: the octets are spilled
	off  uint32  // of the first octet within the Buf's slot
	word uint32  // octets, and sealed; atomic
}

const sealed = 1 << 31

func (r *recvRing) init(slots, spillMax int) {
	r.spilled.init(spillMax)
	r.slots = make([]recvSlot, slots)
	r.mask = uint64(slots - 1)
}

// used is how many slots are not free.
func (r *recvRing) used() int { return int(r.tail.Load() - r.freed) }

// push appends n octets at off of b. The caller has seen that a slot is free. Poller's.
func (r *recvRing) push(b mem.Buf, off, n uint32) {
	tail := r.tail.Load()
	s := &r.slots[tail&r.mask]
	s.buf, s.off = b, off
	atomic.StoreUint32(&s.word, n)
	r.tail.Store(tail + 1)
}

// extend copies data after the last Buf's octets; false when there is no such Buf, no room, it is
// not ours to write to, or the reader is through with it. Poller's.
func (r *recvRing) extend(pool *mem.Pool, data []byte) bool {
	tail := r.tail.Load()
	if tail == r.freed {
		return false
	}
	s := &r.slots[(tail-1)&r.mask]
	n := atomic.LoadUint32(&s.word)
	if n&sealed != 0 || s.buf == mem.NoBuf || pool.Lent(s.buf) {
		return false
	}
	free := pool.Slot(s.buf)[s.off+n:]
	if len(free) < len(data) {
		return false
	}
	copy(free, data)
	return s.publish(n, len(data))
}

// publish adds k octets to the n there were; false: the reader has sealed the slot meanwhile.
func (s *recvSlot) publish(n uint32, k int) bool {
	return atomic.CompareAndSwapUint32(&s.word, n, n+uint32(k))
}

// spill copies data away, which costs no Buf; the caller has seen that a slot is free. False: too
// much is there already. Poller's.
func (r *recvRing) spill(data []byte) bool {
	if !r.spilled.fits(len(data)) {
		return false
	}
	r.spilled.write(data)
	if tail := r.tail.Load(); tail != r.freed {
		s := &r.slots[(tail-1)&r.mask]
		n := atomic.LoadUint32(&s.word)
		if s.buf == mem.NoBuf && n&sealed == 0 && s.publish(n, len(data)) {
			return true
		}
	}
	r.push(mem.NoBuf, 0, uint32(len(data)))
	return true
}

// free gives back what has been read and returns how many Bufs that were. Poller's.
func (r *recvRing) free(pool *mem.Pool) int {
	head := r.head.Load()
	n := 0
	for ; r.freed != head; r.freed++ {
		if b := r.slots[r.freed&r.mask].buf; b != mem.NoBuf {
			pool.Free(b)
			n++
		}
	}
	return n
}

// read copies octets out, reader's side, within the gate.
func (r *recvRing) read(pool *mem.Pool, p []byte) int {
	head := r.head.Load()
	tail := r.tail.Load()
	total := 0
	for head != tail {
		s := &r.slots[head&r.mask]
		n := atomic.LoadUint32(&s.word)
		if r.at < n {
			if total == len(p) {
				break
			}
			k := 0
			if s.buf == mem.NoBuf {
				k = r.spilled.read(p[total:min(len(p), total+int(n-r.at))])
			} else {
				k = copy(p[total:], pool.Slot(s.buf)[s.off+r.at:s.off+n])
			}
			r.at += uint32(k)
			total += k
			continue
		}
		if head+1 == tail {
			tail = r.tail.Load()
		}
		if head+1 != tail {
			if atomic.LoadUint32(&s.word) != n {
				continue // it grew before the next one came
			}
		} else if !atomic.CompareAndSwapUint32(&s.word, n, n|sealed) {
			continue
		}
		head++
		r.at = 0
	}
	r.head.Store(head)
	if total > 0 {
		r.taken.Store(r.taken.Load() + uint64(total))
	}
	return total
}

// left is how many octets are unread. For the holder of the gate, on any goroutine.
func (r *recvRing) left() int {
	n := -int(r.at)
	for head, tail := r.head.Load(), r.tail.Load(); head != tail; head++ {
		n += int(atomic.LoadUint32(&r.slots[head&r.mask].word) &^ sealed)
	}
	return max(n, 0)
}

// unread calls f for each Buf from the reader's place on, with what is unread of it, and takes it
// out of the ring; f frees it or keeps it. Spilled octets come without a Buf, in pieces of at most
// len(scratch), which f may not keep. For the holder of the gate, on the Poller's goroutine, after
// free.
func (r *recvRing) unread(pool *mem.Pool, scratch []byte, f func(b mem.Buf, data []byte)) {
	tail := r.tail.Load()
	for ; r.freed != tail; r.freed++ {
		s := &r.slots[r.freed&r.mask]
		if left := s.word&^sealed - r.at; s.buf != mem.NoBuf {
			f(s.buf, pool.Slot(s.buf)[s.off+r.at:][:left])
		} else {
			for left > 0 {
				n := r.spilled.read(scratch[:min(len(scratch), int(left))])
				f(mem.NoBuf, scratch[:n])
				left -= uint32(n)
			}
		}
		r.at = 0
	}
	r.head.Store(tail)
}

// grow makes the ring of so many slots. For the holder of the gate, on the Poller's goroutine.
func (r *recvRing) grow(slots int) {
	fresh := make([]recvSlot, slots)
	mask := uint64(slots - 1)
	for i := r.freed; i != r.tail.Load(); i++ {
		fresh[i&mask] = r.slots[i&r.mask]
	}
	r.slots, r.mask = fresh, mask
}
