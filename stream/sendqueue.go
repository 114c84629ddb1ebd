package stream

import "sync/atomic"

// sendQueue carries octets from the one writer to the Poller. It is a ring that grows by being followed: when the
// newest ring is full and the limit allows, the writer links one four times as large behind it and never touches the
// old one again; the Poller goes over when that is empty. So an idle connection has no ring, one that sends little a
// small one, and neither side waits for the other.
type sendQueue struct {
	max   int
	in    *sendRing // writer's
	out   *sendRing // Poller's
	first sendRing  // of no octets: always full
}

type sendRing struct {
	buf  []byte // a power of two
	next atomic.Pointer[sendRing]

	_    [cacheLine]byte
	tail atomic.Uint64 // writer's: octets put in
	_    [cacheLine]byte
	head atomic.Uint64 // Poller's: octets taken out
	_    [cacheLine]byte
}

const (
	cacheLine   = 64
	sendRingMin = 16 << 10
	sendGrowth  = 4
)

func (q *sendQueue) init(limit int) {
	q.max, q.in, q.out = limit, &q.first, &q.first
}

// space is the next run of octets the writer may fill, at least one if there is room at all. want: how many it has.
func (q *sendQueue) space(want int) []byte {
	r := q.in
	tail := r.tail.Load()
	free := len(r.buf) - int(tail-r.head.Load())
	if free == 0 {
		if len(r.buf) >= q.max {
			return nil
		}
		n := min(q.max, powerOfTwo(max(sendRingMin, sendGrowth*len(r.buf), min(want, q.max))))
		next := &sendRing{buf: make([]byte, n)}
		r.next.Store(next)
		q.in = next
		return next.buf
	}
	at := int(tail) & (len(r.buf) - 1)
	return r.buf[at:min(at+free, len(r.buf))]
}

// put says that the writer filled the first n octets of space.
func (q *sendQueue) put(n int) { q.in.tail.Store(q.in.tail.Load() + uint64(n)) }

// write copies what fits.
func (q *sendQueue) write(p []byte) int {
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

// read fills dst, Poller's side.
func (q *sendQueue) read(dst []byte) int {
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
		dst = dst[n:]
		total += n
	}
	return total
}

// follow goes over to the next ring; false when there is none or the old one is not empty after all.
func (q *sendQueue) follow() bool {
	r := q.out
	next := r.next.Load()
	if next == nil {
		return false
	}
	if r.tail.Load() == r.head.Load() { // looked at behind next: nothing more comes
		q.out = next
	}
	return true
}

// pending says whether read would give something. Poller's side.
func (q *sendQueue) pending() bool {
	for {
		if q.out.tail.Load() != q.out.head.Load() {
			return true
		}
		if !q.follow() {
			return false
		}
	}
}

// roomy says whether a writer that waits is worth waking: half of its ring is free. Poller's side.
func (q *sendQueue) roomy() bool {
	r := q.out
	return r.next.Load() == nil && 2*int(r.tail.Load()-r.head.Load()) <= len(r.buf)
}
