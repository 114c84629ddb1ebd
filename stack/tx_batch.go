package stack

import (
	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
)

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
	p.tx.meta[b] = bufMeta{conn: noConn, queued: true, freeAfter: true}
	p.batch(b, mac)
	return true
}

// batch appends a frame; without room it is dropped and counted, which only frames that waited for
// a neighbour meet.
func (p *Poller) batch(b mem.Buf, mac inet.MAC) {
	if p.tx.n == len(p.tx.frames) {
		p.n.Own[DropTxFull]++
		p.unqueue(b)
		return
	}
	*(*inet.MAC)(p.pool.Data(b)) = mac
	p.tx.frames[p.tx.n] = b
	p.tx.n++
}

// flush offers the batch to the device. What it does not take stays, in order, for the next Turn.
func (p *Poller) flush() {
	if p.tx.n == 0 || p.tx.blocked {
		p.freeDead()
		return
	}
	n := p.queue.Tx(p.tx.frames[:p.tx.n])
	for _, b := range p.tx.frames[:n] {
		p.n.TxFrames++
		p.n.TxOctets += uint64(p.pool.Desc(b).Len)
		p.unqueue(b)
	}
	p.tx.blocked = n < p.tx.n
	copy(p.tx.frames, p.tx.frames[n:p.tx.n])
	p.tx.n -= n
	p.freeDead()
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
