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
func (p *Poller) reply(b mem.Buf, mac inet.MAC) bool {
	if p.overheard {
		return false
	}
	if p.tx.n == len(p.tx.frames) {
		p.n.Own[DropTxFull]++
		return false
	}
	p.tx.meta[b] = bufMeta{conn: noConn, queued: true, freeAfter: true, ahead: true}
	p.batch(b, mac)
	return true
}

// batch adds a frame; without room it is dropped and counted, which only frames that waited for a
// neighbour meet.
func (p *Poller) batch(b mem.Buf, mac inet.MAC) {
	t := &p.tx
	if t.n == len(t.frames) {
		p.n.Own[DropTxFull]++
		p.unqueue(b)
		return
	}
	*(*inet.MAC)(p.pool.Data(b)) = mac
	at := t.n
	if m := &t.meta[b]; (m.ahead || t.express) && at != t.ahead {
		at = t.placeFor(m)
		copy(t.frames[at+1:t.n+1], t.frames[at:t.n])
	}
	if t.frames[at] = b; at == t.ahead && (t.meta[b].ahead || t.express) {
		t.ahead++
	}
	t.n++
}

// placeFor is where a frame like m goes that does not wait for others' octets.
func (t *transmitter) placeFor(m *bufMeta) int {
	if m.conn == noConn {
		return t.ahead
	}
	for at := t.n; at > t.ahead; at-- {
		if o := &t.meta[t.frames[at-1]]; o.conn == m.conn && o.life == m.life {
			return at
		}
	}
	return t.ahead
}

// room says whether the connection being served may add another frame.
func (p *Poller) room() bool {
	t := &p.tx
	if t.hasRoom() {
		return true
	}
	if !t.blocked {
		p.flush()
	}
	if t.hasRoom() && (t.express || !t.blocked) {
		return true
	}
	p.n.TxWaits++
	return false
}

func (t *transmitter) hasRoom() bool {
	if t.express {
		return t.ahead < t.burst && t.n < len(t.frames)-t.burst/4 // the rest is for replies and ARP
	}
	return t.dataRoom() > 0
}

// dataRoom is how many frames with octets may be added before the batch is offered to the device.
func (t *transmitter) dataRoom() int { return min(t.chunk-(t.n-t.ahead), t.connMax-t.n) }

// flush offers the batch to the device. What it does not take stays, in order, for the next Turn.
func (p *Poller) flush() {
	t := &p.tx
	if t.n == 0 || t.blocked {
		p.freeDead()
		return
	}
	n := p.queue.Tx(t.frames[:t.n])
	for _, b := range t.frames[:n] {
		if m := &t.meta[b]; m.refused {
			m.late, m.refused = max(uint32(p.now>>lateUnit), 1), false
		}
		p.n.TxFrames++
		p.n.TxOctets += uint64(p.pool.Desc(b).Len)
		p.unqueue(b)
	}
	if t.blocked = n < t.n; t.blocked {
		if t.chunk = min(t.burst, t.connMax); t.alone {
			t.chunk = min(2*t.burst, t.connMax)
		}
		p.n.TxDeferred += t.refuse(n)
		copy(t.frames, t.frames[n:t.n])
	} else if t.n >= t.chunk {
		t.chunk = min(2*t.chunk, t.connMax)
	}
	t.n -= n
	t.ahead = max(t.ahead-n, 0)
	t.refused = t.n
	p.freeDead()
}

// refuse marks the frames from n on as refused by the device, and returns how many were not before.
func (t *transmitter) refuse(n int) (first uint64) {
	for _, b := range t.frames[n:t.n] {
		if m := &t.meta[b]; !m.refused {
			m.refused = true
			first++
		}
	}
	return first
}

// unqueue says that b has left our queues.
func (p *Poller) unqueue(b mem.Buf) {
	m := &p.tx.meta[b]
	m.queued = false
	if m.freeAfter {
		m.freeAfter = false
		p.discard(b)
	}
}

// dropOwner ends TCP's use of b.
func (p *Poller) dropOwner(b mem.Buf) {
	if m := &p.tx.meta[b]; m.queued {
		m.freeAfter = true
		return
	}
	p.discard(b)
}

// discard frees b, together with others.
func (p *Poller) discard(b mem.Buf) {
	if len(p.dead) == cap(p.dead) {
		p.freeDead()
	}
	p.dead = append(p.dead, b)
}

func (p *Poller) freeDead() {
	if len(p.dead) > 0 {
		p.pool.FreeN(p.dead)
		p.dead = p.dead[:0]
	}
}
