package tap

import (
	"github.com/rnicd/rnicd/mem"
	"golang.org/x/sys/unix"
)

// receive is Rx with a virtio_net_hdr: first what is left of a large frame, then what waits in the
// kernel. It returns less than it was given room for only when neither has more, or the pool is
// empty.
func (q *queue) receive(bufs []mem.Buf) int {
	s, c := &q.scatter, &q.cut
	n := 0
	for n < len(bufs) {
		if c.next < c.count {
			b := c.take(s)
			if b == mem.NoBuf {
				q.counters.RxNoBuf++
				break
			}
			bufs[n] = b
			n++
			q.counters.RxOctets += uint64(q.pool.Desc(b).Len)
			if c.next == c.count {
				s.next(c.layout(), c.len, c.inBuf)
			}
			continue
		}
		if !s.refill() {
			q.counters.RxNoBuf++
			break
		}
		total, errno := s.read(q.fd)
		if errno != 0 {
			// EINTR: a signal found us between frames; the next poll goes on.
			if errno != unix.EAGAIN && errno != unix.EINTR {
				q.counters.RxErrors++
			}
			break
		}
		if b := q.sort(total); b != mem.NoBuf {
			bufs[n] = b
			n++
		}
	}
	q.counters.RxFrames += uint64(n)
	return n
}

// sort returns the frame of total octets that was read, if it is one; a large one it leaves to cut.
func (q *queue) sort(total int) mem.Buf {
	s, c := &q.scatter, &q.cut
	v := parseVnet(s.header())
	if v.gsoType != vnetGSONone {
		q.large(&v, total)
		return mem.NoBuf
	}
	if total > q.rxMax || total < ethertypeAt+2 {
		q.refuse(total)
		return mem.NoBuf
	}
	if total > s.lay.first {
		s.refit(0, layout{total, 1}, total)
	}
	c.first = s.base - s.h
	b := s.takeFirst()
	d := q.pool.Desc(b)
	*d = mem.Desc{Off: uint32(c.first), Len: uint32(total)}
	if !v.describe(d) {
		q.counters.RxErrors++
		q.pool.Free(b)
		return mem.NoBuf
	}
	q.counters.RxOctets += uint64(total)
	return b
}

// large takes a frame to be cut, or drops it.
func (q *queue) large(v *vnetHeader, total int) {
	s, c := &q.scatter, &q.cut
	if total < 0 || total > segmentedMax {
		q.refuse(total)
		return
	}
	s.gather(c.head[:], 0, min(total, headersMax))
	switch {
	case !c.begin(v, total):
		c.next, c.count = 0, 0
		q.counters.RxErrors++
	case min(total, c.len+c.size) > q.rxMax:
		q.counters.RxTooLong += uint64(c.count)
		c.next, c.count = 0, 0
	default:
		c.first = s.base - s.h
		c.inBuf = min(c.count, s.n)
		s.mend(c.layout(), total)
	}
}

// giveBack frees what the queue holds.
func (q *queue) giveBack() {
	if !q.vnet {
		return
	}
	s, c := &q.scatter, &q.cut
	if c.next < c.count { // those before it were handed out
		k := min(c.next, c.inBuf)
		s.n = copy(s.armed[:], s.armed[k:s.n])
		c.next, c.count = 0, 0
	}
	s.release()
}
