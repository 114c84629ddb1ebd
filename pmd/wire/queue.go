package wire

import (
	"encoding/binary"
	"math/bits"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Drops tells why copies of frames were lost: a frame that a switch floods has one copy per
// receiver, and counts in pmd.Counters.TxErrors only when none of them got through. Read on the
// queue's own goroutine.
type Drops struct {
	Length uint64 // shorter than an Ethernet header or longer than MTU + pmd.FrameOverhead
	Down   uint64 // the receiving port is not open
	Switch uint64 // a switch's egress ring was full
}

// queue is the one queue of a Port. All of its methods belong to one goroutine.
type queue struct {
	port     *Port
	pool     *mem.Pool
	frameMax int
	turn     int // ring that the next Rx begins with
	counters pmd.Counters
	drops    Drops

	// address at the other end of each egress, as two words: forwarding compares no octets
	macHi []uint32
	macLo []uint16
	back  [backBurst]mem.Buf // Bufs on their way back, either way
}

func (q *queue) Counters() pmd.Counters { return q.counters }

// Drops of the frames this queue sent.
func (q *queue) Drops() Drops { return q.drops }

// Rx copies waiting frames into fresh Bufs. With an empty pool they go on waiting in their slots,
// as in the descriptors of a NIC, until the sender finds the ring full.
//
// Without copying it hands out the Bufs themselves, and needs none.
func (q *queue) Rx(bufs []mem.Buf) int {
	if q.port.pair != nil {
		return q.borrow(q.port.in[0], bufs)
	}
	n := 0
	for range q.port.in {
		if n == len(bufs) {
			break
		}
		n += q.drain(q.port.in[q.turn], bufs[n:])
		q.turn++
		if q.turn == len(q.port.in) {
			q.turn = 0
		}
	}
	return n
}

// drain takes up to len(bufs) frames from r.
func (q *queue) drain(r *ring, bufs []mem.Buf) int {
	want := r.ready(len(bufs))
	if want == 0 {
		return 0
	}
	n := q.pool.AllocN(bufs[:want])
	if n < want {
		q.counters.RxNoBuf++
	}
	octets := uint64(0)
	for i, b := range bufs[:n] {
		c, frame := r.peek(i)
		d := q.pool.Desc(b)
		d.Len, d.Flags, d.CsumStart, d.CsumOffset = c.len, c.flags, c.csumStart, c.csumOffset
		copy(q.pool.Data(b), frame)
		octets += uint64(c.len)
	}
	r.release(n)
	q.counters.RxFrames += uint64(n)
	q.counters.RxOctets += octets
	return n
}

// Tx copies frames into the rings of those they are for. On a pair of ports a full ring ends the
// burst (TxFull); on a switch it costs the one receiver its copy (Drops.Switch), for a port that
// sleeps must not stop those that do not. A frame that asks for an offload the Link was not made
// with is the caller's bug: panic.
func (q *queue) Tx(bufs []mem.Buf) int {
	out := q.port.out
	for i := range out {
		out[i].up = out[i].to.up.Load()
	}
	if q.port.pair != nil {
		q.takeBack(&out[0])
	}
	n := 0
	for _, b := range bufs {
		d := q.pool.Desc(b)
		if d.Flags&mem.TxSegment != 0 || d.Flags&mem.TxChecksum != 0 && !q.port.caps.TxChecksum {
			panic("wire: frame asks for an offload that the port's Caps do not claim")
		}
		frame := q.pool.Data(b)
		if len(frame) < pmd.EthernetLen || len(frame) > q.frameMax {
			q.drops.Length++
			q.counters.TxErrors++
			n++
			continue
		}
		if !q.forward(b, frame, d) {
			q.counters.TxFull += uint64(len(bufs) - n)
			break
		}
		n++
	}
	for i := range out {
		if out[i].pending > 0 {
			out[i].ring.publish(out[i].pending)
			out[i].pending = 0
		}
	}
	return n
}

// forward puts one frame into every ring it belongs in. False: back-pressure, nothing was done.
func (q *queue) forward(b mem.Buf, frame []byte, d *mem.Desc) bool {
	sent := false
	for dst := q.route(frame); dst != 0; dst &= dst - 1 {
		e := &q.port.out[bits.TrailingZeros32(dst)]
		if !e.up {
			q.drops.Down++
			continue
		}
		if q.put(e, b, frame, d) {
			e.pending++
			sent = true
			continue
		}
		if len(q.port.out) == 1 {
			return false
		}
		q.drops.Switch++
	}
	if !sent {
		q.counters.TxErrors++
		return true
	}
	q.counters.TxFrames++
	q.counters.TxOctets += uint64(len(frame))
	return true
}

// put hands a frame to the ring of e. False: there is no room.
func (q *queue) put(e *egress, b mem.Buf, frame []byte, d *mem.Desc) bool {
	if q.port.pair != nil {
		return q.lend(e, b, len(frame), d)
	}
	return e.ring.put(e.pending, frame, d)
}

// route is the set of egresses for a frame: the port with its destination address, or all of them
// for a group address and for one that no port has.
func (q *queue) route(frame []byte) uint32 {
	all := uint32(1)<<len(q.port.out) - 1
	if all == 1 || frame[0]&1 != 0 {
		return all
	}
	hi, lo := binary.BigEndian.Uint32(frame), binary.BigEndian.Uint16(frame[4:6])
	for i := range q.macHi {
		if q.macHi[i] == hi && q.macLo[i] == lo {
			return 1 << i
		}
	}
	return all
}
