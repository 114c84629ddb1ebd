package godpdk

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/yerden/go-dpdk/ethdev"
	"github.com/yerden/go-dpdk/mbuf"
	"github.com/yerden/go-dpdk/mempool"
)

// burstMax is the longest burst of one call of the device.
const burstMax = 64

// Queue is one receive/transmit queue pair. One goroutine calls it.
type Queue struct {
	id       ethdev.Port
	index    uint16
	mbufs    *mempool.Mempool
	pool     *mem.Pool
	counters pmd.Counters
	// Allocations of their own: cgo looks through the whole of what a pointer that it is given lies
	// in, and refuses it for any Go pointer there.
	rx, tx []*mbuf.Mbuf
	at     [burstMax]uint8 // which frame of a burst each of tx is
}

var _ pmd.Queue = (*Queue)(nil)

func newQueue(id ethdev.Port, i uint16, mbufs *mempool.Mempool, pool *mem.Pool) *Queue {
	return &Queue{id: id, index: i, mbufs: mbufs, pool: pool, rx: make([]*mbuf.Mbuf, burstMax),
		tx: make([]*mbuf.Mbuf, burstMax)}
}

// Counters implements pmd.Queue.
func (q *Queue) Counters() pmd.Counters { return q.counters }

// Rx implements pmd.Queue. At most 64 frames a call; without Bufs frames wait in the device.
func (q *Queue) Rx(bufs []mem.Buf) (n int) {
	bufs = bufs[:min(len(bufs), burstMax)]
	have := q.pool.AllocN(bufs)
	if have < len(bufs) {
		q.counters.RxNoBuf++
	}
	if have == 0 {
		return 0
	}
	got := int(q.id.RxBurst(q.index, q.rx[:have]))
	for _, m := range q.rx[:got] {
		if q.take(bufs[n], m) {
			n++
		}
	}
	if got > 0 {
		mbuf.PktMbufFreeBulk(q.rx[:got])
	}
	q.pool.FreeN(bufs[n:have])
	return n
}

// take copies a frame, a chain of mbufs perhaps, into b.
func (q *Queue) take(b mem.Buf, m *mbuf.Mbuf) bool {
	room := q.pool.Stride() - mem.Headroom
	if int(m.PktLen()) > room {
		q.counters.RxTooLong++
		return false
	}
	q.pool.Desc(b).Len = m.PktLen()
	to := q.pool.Data(b)
	for ; m != nil; m = m.Next() {
		to = to[copy(to, m.Data()):]
	}
	q.counters.RxFrames++
	q.counters.RxOctets += uint64(q.pool.Desc(b).Len)
	return true
}

// Tx implements pmd.Queue. A frame that asks for an offload is taken, dropped and counted.
func (q *Queue) Tx(bufs []mem.Buf) (sent int) {
	for sent < len(bufs) {
		burst := bufs[sent:min(len(bufs), sent+burstMax)]
		n := q.send(burst)
		sent += n
		if n < len(burst) {
			break
		}
	}
	q.counters.TxFull += uint64(len(bufs) - sent)
	return sent
}

func (q *Queue) send(burst []mem.Buf) (taken int) {
	ms := q.tx[:len(burst)]
	if mbuf.PktMbufAllocBulk(q.mbufs, ms) != nil {
		return 0 // all are with the device
	}
	n := 0
	for i, b := range burst {
		m := ms[i]
		if q.pool.Desc(b).Flags&(mem.TxChecksum|mem.TxSegment) != 0 ||
			m.PktMbufAppend(q.pool.Data(b)) != nil {
			m.PktMbufFree()
			continue
		}
		ms[n], q.at[n] = m, uint8(i)
		n++
	}
	k := 0
	if n > 0 {
		k = int(q.id.TxBurst(q.index, ms[:n]))
	}
	taken = len(burst)
	if k < n {
		taken = int(q.at[k])
		mbuf.PktMbufFreeBulk(ms[k:n])
	}
	for _, i := range q.at[:k] {
		q.counters.TxOctets += uint64(q.pool.Desc(burst[i]).Len)
	}
	q.counters.TxFrames += uint64(k)
	q.counters.TxErrors += uint64(taken - k) // of the prefix, those that asked for what there is not
	return taken
}

// drain gives back what was received, so that no mbuf of a peer's stays with us.
func (q *Queue) drain() {
	for range 4096 { // a device under traffic never runs dry
		n := q.id.RxBurst(q.index, q.rx)
		if n == 0 {
			return
		}
		mbuf.PktMbufFreeBulk(q.rx[:n])
	}
}
