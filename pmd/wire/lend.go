package wire

import (
	"fmt"
	"math/bits"
	"sync"

	"github.com/rnicd/rnicd/mem"
)

// A Link without copying. A Buf that is sent is held for the device (mem.Pool.HoldDevice) and its
// number goes through the ring. The receiver adopts it, for it has the same number and memory in
// its Pool (mem.NewPair); when it frees it, the next Rx sends the number back, and the sender drops
// the device's hold:
//
//	sender    HoldDevice ── ring ──► Adopt      receiver
//	sender    DeviceDone ◄─ back ─── TakeReturned
//
// So a Buf is read by both while its sender waits for an acknowledgement, and written to by
// neither. A receiver that keeps many Bufs takes them from its sender.

// backBurst is how many Bufs go back together.
const backBurst = 64

// poolPair are the Pools of the two ends, as the ports are opened.
type poolPair struct {
	sync.Mutex
	pools [2]*mem.Pool
}

// take has port p receive into pool. A nil poolPair takes any Pool.
func (s *poolPair) take(p *Port, pool *mem.Pool) error {
	if s == nil {
		return nil
	}
	s.Lock()
	defer s.Unlock()
	other := s.pools[1-p.index]
	if pool.Pair() == nil || other != nil && other.Pair() != pool {
		return fmt.Errorf("wire: %s: a link without copying needs the two Pools of one mem.NewPair, "+
			"one at each end", p.name)
	}
	s.pools[p.index] = pool
	// All Bufs of the Pool may be on their way back at once.
	p.out[0].ring.back = mem.NewSPSC(make([]mem.Buf, 1<<bits.Len(uint(pool.Size()-1))))
	return nil
}

// lend puts b, a frame of n octets, into the next cell of e's ring. False: the ring is full, or
// there is no Buf for a copy. What is not ours to lend is copied: a Buf that was received, or that
// is lent already.
func (q *queue) lend(e *egress, b mem.Buf, n int, d *mem.Desc) bool {
	if e.ring.full(e.pending) {
		return false
	}
	if q.pool.Lent(b) || q.pool.InDevice(b) {
		twin := q.pool.Alloc()
		if twin == mem.NoBuf {
			return false
		}
		*q.pool.Desc(twin) = *d
		copy(q.pool.Data(twin), q.pool.Data(b))
		q.pool.HoldDevice(twin)
		q.pool.Free(twin)
		b = twin
	} else {
		q.pool.HoldDevice(b)
	}
	c := e.ring.lent(e.ring.after(e.ring.to, e.pending))
	c.describe(n, d)
	c.buf, c.off = b, d.Off
	return true
}

// borrow receives Bufs that were lent.
func (q *queue) borrow(r *ring, bufs []mem.Buf) int {
	q.giveBack(r)
	q.takeBack(&q.port.out[0])
	n := r.ready(len(bufs))
	if n == 0 {
		return 0
	}
	octets := uint64(0)
	for i := range n {
		c := r.lent(r.after(r.from, i))
		q.pool.Adopt(c.buf)
		*q.pool.Desc(c.buf) = mem.Desc{Off: c.off, Len: c.len, Flags: c.flags, CsumStart: c.csumStart,
			CsumOffset: c.csumOffset}
		bufs[i] = c.buf
		octets += uint64(c.len)
	}
	r.release(n)
	q.counters.RxFrames += uint64(n)
	q.counters.RxOctets += octets
	return n
}

// giveBack returns the Bufs that were freed here to their sender, whose ring has room for all.
func (q *queue) giveBack(r *ring) {
	for n := q.pool.TakeReturned(q.back[:]); n > 0; n = q.pool.TakeReturned(q.back[:]) {
		r.back.PushN(q.back[:n])
	}
}

// takeBack drops the device's hold of the Bufs that came back through e, and once the other end is
// closed of those that it never received.
func (q *queue) takeBack(e *egress) {
	back := e.ring.back
	for n := back.PopN(q.back[:]); n > 0; n = back.PopN(q.back[:]) {
		for _, b := range q.back[:n] {
			q.pool.DeviceDone(b)
		}
	}
	if e.gone || !e.to.closed.Load() {
		return
	}
	e.gone = true
	r := e.ring
	for n := r.head.Load(); n != r.sent; n++ {
		q.pool.DeviceDone(r.lent(uint32(n%r.cells) * r.stride).buf)
	}
}
