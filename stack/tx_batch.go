package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// The batch, from its front:
//
//	frames[:ahead]   without octets: ACKs, RSTs, SYNs, FINs, probes, ARP, ND, ICMP; the first
//	                 retransmission after a timeout; and, while the device refuses frames, the first
//	                 octets of a connection that has sent little (conn_serve.go)
//	frames[ahead:n]  the others, in the order of their turns
//
// No frame goes before another one of its connection: it then stands right after that one. So the
// receiver finds nothing out of order, and no ACK whose sequence number lies beyond its window.
//
// While the device takes all it is offered, a batch grows to connMax frames. After it has refused
// some, connections add a burst at a time, or two if one is alone, and see whether the device takes
// that: so what stands before the next connection's turn is a burst, and what stands before an ACK
// is what the device holds.

// reply sends the frame in b to mac and frees b afterwards; false when there is no room: b stays
// the caller's.
func (x *transmitter) reply(b mem.Buf, mac inet.MAC) bool {
	if x.mute {
		return false
	}
	if x.n == len(x.frames) {
		x.counters.Own[DropTxFull]++
		return false
	}
	x.meta[b] = bufMeta{conn: noConn, queued: true, freeAfter: true, ahead: true}
	x.batch(b, mac)
	return true
}

// batch adds a frame; without room it is dropped and counted, which only frames that waited for a
// neighbour meet.
func (x *transmitter) batch(b mem.Buf, mac inet.MAC) {
	if x.n == len(x.frames) {
		x.counters.Own[DropTxFull]++
		x.unqueue(b)
		return
	}
	*(*inet.MAC)(x.pool.Data(b)) = mac
	at := x.n
	if m := &x.meta[b]; (m.ahead || x.express) && at != x.ahead {
		at = x.placeFor(m)
		copy(x.frames[at+1:x.n+1], x.frames[at:x.n])
	}
	if x.frames[at] = b; at == x.ahead && (x.meta[b].ahead || x.express) {
		x.ahead++
	}
	x.n++
}

// placeFor is where a frame like m goes that does not wait for others' octets.
func (x *transmitter) placeFor(m *bufMeta) int {
	if m.conn == noConn {
		return x.ahead
	}
	for at := x.n; at > x.ahead; at-- {
		if o := &x.meta[x.frames[at-1]]; o.conn == m.conn && o.life == m.life {
			return at
		}
	}
	return x.ahead
}

// room says whether the connection being served may add another frame.
func (x *transmitter) room(now int64) bool {
	if x.hasRoom() {
		return true
	}
	if !x.blocked {
		x.flush(now)
	}
	if x.hasRoom() && (x.express || !x.blocked) {
		return true
	}
	x.counters.TxWaits++
	return false
}

func (x *transmitter) hasRoom() bool {
	if x.express {
		return x.ahead < x.burst && x.n < len(x.frames)-x.burst/4 // the rest is for replies and ARP
	}
	return x.dataRoom() > 0
}

// dataRoom is how many frames with octets may be added before the batch is offered to the device.
func (x *transmitter) dataRoom() int { return min(x.chunk-(x.n-x.ahead), x.connMax-x.n) }

// flush offers the batch to the device. What it does not take stays, in order, for the next Turn.
func (x *transmitter) flush(now int64) {
	if x.n == 0 || x.blocked {
		x.dead.free()
		return
	}
	n := x.queue.Tx(x.frames[:x.n])
	for _, b := range x.frames[:n] {
		if m := &x.meta[b]; m.refused {
			m.late, m.refused = max(uint32(now>>lateUnit), 1), false
		}
		x.counters.TxFrames++
		x.counters.TxOctets += uint64(x.pool.Desc(b).Len)
		x.unqueue(b)
	}
	if x.blocked = n < x.n; x.blocked {
		if x.chunk = min(x.burst, x.connMax); x.alone {
			x.chunk = min(2*x.burst, x.connMax)
		}
		x.counters.TxDeferred += x.refuse(n)
		copy(x.frames, x.frames[n:x.n])
	} else if x.n >= x.chunk {
		x.chunk = min(2*x.chunk, x.connMax)
	}
	x.n -= n
	x.ahead = max(x.ahead-n, 0)
	x.refused = x.n
	x.dead.free()
}

// refuse marks the frames from n on as refused by the device, and returns how many were not before.
func (x *transmitter) refuse(n int) (first uint64) {
	for _, b := range x.frames[n:x.n] {
		if m := &x.meta[b]; !m.refused {
			m.refused = true
			first++
		}
	}
	return first
}

// abandon drops what was never sent, at the end of the Poller.
func (x *transmitter) abandon() {
	for _, b := range x.frames[:x.n] {
		x.counters.Own[DropStopped]++
		x.unqueue(b)
	}
	x.n, x.ahead, x.refused = 0, 0, 0
	if x.spare != mem.NoBuf {
		x.dead.add(x.takeSpare())
	}
}

// unqueue says that b has left our queues.
func (x *transmitter) unqueue(b mem.Buf) {
	m := &x.meta[b]
	m.queued = false
	if m.freeAfter {
		m.freeAfter = false
		x.dead.add(b)
	}
}

// dropOwner ends TCP's use of b.
func (x *transmitter) dropOwner(b mem.Buf) {
	if m := &x.meta[b]; m.queued {
		m.freeAfter = true
		return
	}
	x.dead.add(b)
}

// hasFrames says whether the device has yet to take a frame of c's.
func (x *transmitter) hasFrames(c *Conn) bool {
	for _, b := range x.frames[:x.n] {
		if m := &x.meta[b]; m.conn == c.index && m.life == c.life {
			return true
		}
	}
	return false
}

// haveSpare makes sure that a Buf is at hand. It comes before every tcp.Conn.Next, which must not
// be asked for a segment that could not be built.
func (x *transmitter) haveSpare() bool {
	if x.spare != mem.NoBuf {
		return true
	}
	if x.spare = x.pool.Alloc(); x.spare == mem.NoBuf {
		x.counters.NoBufWaits++
		return false
	}
	return true
}

func (x *transmitter) takeSpare() mem.Buf {
	b := x.spare
	x.spare = mem.NoBuf
	return b
}
