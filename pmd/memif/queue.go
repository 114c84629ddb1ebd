package memif

import (
	"runtime"
	"runtime/debug"
	"unsafe"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Drops tells why frames were lost, of those in pmd.Counters' RxErrors and TxErrors, and what
// else was wrong with a peer. Read on the queue's own goroutine.
type Drops struct {
	Down uint64 // sent while there was no peer
	// shorter than an Ethernet header; to be sent: longer than MTU + pmd.FrameOverhead
	Length     uint64
	Descriptor uint64 // names memory outside of its region, or of a frame that never ends
	Index      uint64 // rings whose other index cannot be: the connection ends
	Fault      uint64 // the memory of a peer is no longer there: the connection ends
	Slow       uint64 // the memory of a peer takes too long to get at: the connection ends
}

// Queue is a pair of rings, or nothing at all while there is no peer. All of its methods belong
// to one goroutine.
type Queue struct {
	port     *Port
	index    int
	pool     *mem.Pool
	frameMax int
	counters pmd.Counters
	drops    Drops

	interrupt interrupt

	session *session // whose rings rx and tx are; nil: none
	broken  bool     // and not to be used any more
	last    int      // frames that may still come of it, once it is not the port's current one
	rx      receiver
	tx      sender
	budget  budget // of a session without guard

	held   []mem.Buf       // that Rx has in hand, should a fault end it
	pieces [piecesMax]desc // of the frame that is put into the ring, as they were checked
}

// piecesMax bounds the descriptors of one frame.
const piecesMax = 256

// receiver and sender are the two directions of a queue in a session; there is one of each that
// copies, for either role, and one without a copy.
type receiver interface {
	// receive is Queue.Rx. What it takes from the pool stands in q.held while memory of the peer is
	// touched.
	receive(q *Queue, bufs []mem.Buf) int
	// giveBack frees what lies in the ring.
	giveBack(q *Queue)
}

type sender interface {
	send(q *Queue, bufs []mem.Buf) int
	// reclaim frees what the peer has read.
	reclaim(q *Queue)
	giveBack(q *Queue)
}

func (q *Queue) Counters() pmd.Counters { return q.counters }

// Drops says why frames were lost.
func (q *Queue) Drops() Drops { return q.drops }

// Rx takes frames that the peer has sent, the last of them after it has gone. With an empty pool
// they go on waiting in the ring.
func (q *Queue) Rx(bufs []mem.Buf) int {
	if q.port.current.Load() != q.session {
		if n := q.drain(bufs); n > 0 {
			return n
		}
		q.change()
	}
	return q.receive(bufs)
}

// drain is Rx of a session that has ended: what had been sent by then, and not more than a ring
// holds, for the peer may still be there and send.
func (q *Queue) drain(bufs []mem.Buf) int {
	n := q.receive(bufs[:min(len(bufs), q.last)])
	q.last -= n
	return n
}

func (q *Queue) receive(bufs []mem.Buf) (n int) {
	if q.session == nil || q.broken {
		return 0
	}
	defer q.guard(debug.SetPanicOnFault(true))
	if q.session.guarded {
		q.tx.reclaim(q)
		n = q.rx.receive(q, bufs)
	} else {
		watch := q.budget.begin()
		q.tx.reclaim(q)
		n = q.rx.receive(q, bufs)
		q.charge(watch)
	}
	q.held = nil
	return n
}

// Tx puts frames into the ring. Without zero copy they are the peer's when it returns, with it
// their Bufs are held until the peer has read them. While there is no peer they are lost
// (Drops.Down). A frame that asks for an offload is the caller's bug: panic.
func (q *Queue) Tx(bufs []mem.Buf) (n int) {
	if q.session == nil {
		q.change()
	}
	if q.session == nil || q.broken || q.port.current.Load() != q.session {
		q.drops.Down += uint64(len(bufs))
		q.counters.TxErrors += uint64(len(bufs))
		return len(bufs)
	}
	defer q.guard(debug.SetPanicOnFault(true))
	if q.session.guarded {
		q.tx.reclaim(q)
		n = q.tx.send(q, bufs)
	} else {
		watch := q.budget.begin()
		q.tx.reclaim(q)
		n = q.tx.send(q, bufs)
		q.charge(watch)
	}
	q.counters.TxFull += uint64(len(bufs) - n)
	return n
}

// frame is the octets of a Buf to be sent; nil: it cannot be.
func (q *Queue) frame(b mem.Buf) []byte {
	if q.pool.Desc(b).Flags&(mem.TxSegment|mem.TxChecksum) != 0 {
		panic("memif: frame asks for an offload that the port's Caps do not claim")
	}
	frame := q.pool.Data(b)
	if len(frame) < pmd.EthernetLen || len(frame) > q.frameMax {
		q.drops.Length++
		q.counters.TxErrors++
		return nil
	}
	return frame
}

// published is called when n frames of so many octets in all were.
func (q *Queue) published(n, octets int) {
	q.counters.TxFrames += uint64(n)
	q.counters.TxOctets += uint64(octets)
	if q.session.rings[q.index].tx.wanted() && q.session.bells != nil {
		q.session.bells.ring(q.index)
	}
}

// violated ends the connection to a peer whose index cannot be.
func (q *Queue) violated() int {
	q.drops.Index++
	q.broken = true
	q.session.fail("ring index out of range")
	return 0
}

// charge ends the connection to a peer whose memory takes too much of our time.
func (q *Queue) charge(watch stopwatch) {
	if !q.budget.end(watch) && !q.broken {
		q.drops.Slow++
		q.offend("memory of a region takes too long to get at")
	}
}

// offend ends the connection to a peer whose memory is not as it was.
func (q *Queue) offend(why string) {
	q.broken = true
	q.port.offences.Add(1)
	q.session.offend(why)
}

// guard ends a call that touched memory of the peer. Where that has gone, as pages of a file can,
// the call ends as if there had been nothing to do, and the connection with it; the panic of
// anybody else goes on.
func (q *Queue) guard(before bool) {
	debug.SetPanicOnFault(before)
	reason := recover()
	if reason == nil {
		return
	}
	fault, ok := reason.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || !q.session.maps(fault.Addr()) {
		panic(reason)
	}
	q.pool.FreeN(q.held)
	q.held = nil
	q.drops.Fault++
	q.offend("memory of a region has gone")
}

// maps says whether an address lies in a region.
func (s *session) maps(addr uintptr) bool {
	for _, r := range s.regions {
		first := uintptr(unsafe.Pointer(unsafe.SliceData(r)))
		if addr >= first && addr-first < uintptr(len(r)) {
			return true
		}
	}
	return false
}

// change leaves the session that the queue is in and enters the current one.
func (q *Queue) change() {
	q.detach()
	s := q.port.current.Load()
	if s == nil || !s.enter() {
		return
	}
	r := s.rings[q.index]
	q.session, q.broken, q.last = s, false, int(r.rx.size())
	q.budget = newBudget()
	if q.interrupt.armed {
		q.unmask(true)
	}
	if s.own != nil && s.own.arena != nil {
		q.rx, q.tx = newPosted(q, r.rx), newLent(q, r.tx)
		return
	}
	q.rx, q.tx = newCopyIn(q, r.rx), newCopyOut(q, r.tx)
}

// detach leaves the session. Its goroutine, or once that has ended, the one that closes the port.
func (q *Queue) detach() {
	if q.session == nil {
		return
	}
	q.rx.giveBack(q)
	q.tx.giveBack(q)
	q.session.leave()
	q.session, q.rx, q.tx = nil, nil, nil
}
