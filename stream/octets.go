package stream

import "sync/atomic"

// octetQueue carries octets from one writer to one reader: what is to be sent to the Poller, and
// from the Poller what came when the pool was short. It is a ring that grows by being followed:
// when the newest ring is full and the limit allows, the writer links one four times as large
// after it and never writes to the old one again; the reader goes over when that is empty. So an
// idle connection has no ring, one that sends little a small one, and neither side waits for the
// other.
type octetQueue struct {
	max    atomic.Int64              // octets; to be changed by anybody
	in     atomic.Pointer[octetRing] // writer's
	out    *octetRing                // reader's
	from   uint64                    // reader's: where in out the last read began
	passed bool                      // reader's: read has passed the end of a write
	first  octetRing                 // of no octets: always full
}

type octetRing struct {
	buf    []byte // a power of two
	next   atomic.Pointer[octetRing]
	before atomic.Pointer[octetRing] // the ring that this one follows, while that has octets

	_     [cacheLine]byte
	tail  atomic.Uint64 // writer's: octets put in
	ended atomic.Uint32 // writer's: ends put in
	_     [cacheLine]byte
	head  atomic.Uint64 // reader's: octets taken out
	past  atomic.Uint32 // reader's: ends that head has passed
	_     [cacheLine]byte

	ends [endsMax]atomic.Uint64 // where writes ended, as tail said then
}

// endsMax ends of writes may be ahead of the reader in one ring; what finds no place is not told.
const endsMax = 16

const (
	cacheLine    = 64
	octetRingMin = 16 << 10
	octetGrowth  = 4
)

func (q *octetQueue) init(limit int) {
	q.max.Store(int64(limit))
	q.in.Store(&q.first)
	q.out = &q.first
}

// space is the next run of octets the writer may fill, at least one if there is room at all. want:
// how many it has.
func (q *octetQueue) space(want int) []byte {
	r, limit := q.in.Load(), int(q.max.Load())
	left := limit - r.unread()
	if left <= 0 {
		return nil
	}
	tail := r.tail.Load()
	free := len(r.buf) - int(tail-r.head.Load())
	if free == 0 {
		n := powerOfTwo(min(limit, max(octetRingMin, octetGrowth*len(r.buf), want)))
		next := &octetRing{buf: make([]byte, n)}
		next.before.Store(r)
		r.next.Store(next)
		q.in.Store(next)
		return next.buf[:min(n, left)]
	}
	at := int(tail) & (len(r.buf) - 1)
	return r.buf[at:min(at+min(free, left), len(r.buf))]
}

// unread is how many octets wait in r and the rings before it.
func (r *octetRing) unread() int {
	n := int(r.tail.Load() - r.head.Load())
	b := r.before.Load()
	if b == nil {
		return n
	}
	more := b.unread()
	if more == 0 {
		r.before.Store(nil)
	}
	return n + more
}

// room says whether space would give something. Anybody.
func (q *octetQueue) room() bool { return q.in.Load().unread() < int(q.max.Load()) }

// put says that the writer filled the first n octets of space.
func (q *octetQueue) put(n int) {
	r := q.in.Load()
	r.tail.Store(r.tail.Load() + uint64(n))
}

// fits says whether the octets of one segment can be written at once. Writer's.
func (q *octetQueue) fits(n int) bool { return int(q.max.Load())-q.in.Load().unread() >= n }

// write copies what fits. Writer's.
func (q *octetQueue) write(p []byte) int {
	total := 0
	for len(p) > 0 {
		n := copy(q.space(len(p)), p)
		if n == 0 {
			break
		}
		q.put(n)
		p = p[n:]
		total += n
	}
	return total
}

// end says that a write ends with what was put in last. Writer's.
func (q *octetQueue) end() {
	r := q.in.Load()
	if n := r.ended.Load(); n-r.past.Load() < endsMax {
		r.ends[n%endsMax].Store(r.tail.Load())
		r.ended.Store(n + 1)
	}
}

// pass takes note of the ends of writes up to head. One before from was not told in time: all there
// was had been read then.
func (q *octetQueue) pass() {
	r := q.out
	n, ended := r.past.Load(), r.ended.Load()
	if n == ended {
		return
	}
	for head := r.head.Load(); n != ended; n++ {
		at := r.ends[n%endsMax].Load()
		if at > head {
			break
		}
		q.passed = q.passed || at > q.from
	}
	r.past.Store(n)
}

// pushed says whether what was read since it was last asked has the end of a write in it. Reader's.
func (q *octetQueue) pushed() bool {
	q.pass() // the writer says so after it has put the octets in
	passed := q.passed
	q.passed = false
	return passed
}

// read fills dst. Reader's.
func (q *octetQueue) read(dst []byte) int {
	total := 0
	for len(dst) > 0 {
		r := q.out
		head := r.head.Load()
		have := int(r.tail.Load() - head)
		if have == 0 {
			if !q.follow() {
				break
			}
			continue
		}
		at := int(head) & (len(r.buf) - 1)
		n := copy(dst, r.buf[at:min(at+have, len(r.buf))])
		r.head.Store(head + uint64(n))
		q.from = head
		q.pass()
		dst = dst[n:]
		total += n
	}
	return total
}

// follow goes over to the next ring; false when there is none or the old one is not empty after
// all.
func (q *octetQueue) follow() bool {
	r := q.out
	next := r.next.Load()
	if next == nil {
		return false
	}
	if r.tail.Load() == r.head.Load() { // looked at after next: nothing more comes
		q.out = next
	}
	return true
}

// pending says whether read would give something. Reader's.
func (q *octetQueue) pending() bool {
	for {
		if q.out.tail.Load() != q.out.head.Load() {
			return true
		}
		if !q.follow() {
			return false
		}
	}
}

// roomy says whether a writer that waits is worth waking: half of its ring, or of what it may leave
// there, is free. Reader's.
func (q *octetQueue) roomy() bool {
	r := q.out
	return r.next.Load() == nil && 2*int(r.tail.Load()-r.head.Load()) <= min(len(r.buf),
		int(q.max.Load()))
}
