package stack

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

const (
	neighbourStepsMax = 64 // requests asked for in one Turn
)

// resolve sends frames whose neighbour became known, and sends the requests that are due.
func (p *Poller) resolve() int {
	work := p.expireHost()
	if p.host.HasNews() {
		p.heedHost()
	}
	if p.learned {
		for p.tx.n < len(p.tx.frames) {
			b, mac, ok := p.neighbours.Take()
			if !ok {
				p.learned = false
				break
			}
			work++
			p.found(b)
			p.tx.batch(b, mac)
			p.resolved++
		}
	}
	work += p.takeDropped(DropNeighbourFull) // displaced by later ones: before Tick
	if p.neighbours.Deadline() > p.now {
		return work
	}
	for range neighbourStepsMax {
		ip, mac, ok := p.neighbours.Tick(p.now)
		if !ok {
			break
		}
		work++
		p.host.Ask(p.now, ip, mac)
	}
	for ip, ok := p.neighbours.TakeLost(); ok; ip, ok = p.neighbours.TakeLost() {
		p.lost.add(p.now, ip)
		p.resolved++
		p.host.Lost(p.now, ip)
		p.heedHost()
	}
	return work + p.takeDropped(DropNeighbourLost) // after Tick: given up
}

// Resolved changes when frames that waited for a neighbour have left, or a neighbour was given up:
// SendUDP may say something else than SentUnresolved now. Poller goroutine.
func (p *Poller) Resolved() uint32 { return p.resolved }

// found tells the connection whose SYN is in b that the SYN leaves now.
func (p *Poller) found(b mem.Buf) {
	m := &p.tx.meta[b]
	if m.conn == noConn {
		return
	}
	if c := &p.slab.conns[m.conn]; c.life == m.life && c.phase == phaseOpening {
		c.tcp.SynLeft(p.now)
		p.active.add(c)
	}
}

// takeDropped takes back the frames that the neighbour table will not pass on.
func (p *Poller) takeDropped(why Drop) int {
	for work := 0; ; work++ {
		b, ok := p.neighbours.TakeDropped()
		if !ok {
			return work
		}
		p.n.Own[why]++
		if why == DropNeighbourLost {
			p.unreachable(b)
		}
		p.tx.unqueue(b)
	}
}

// unreachable ends the connection whose SYN is in b: its next hop does not answer, and there is no
// other. Established ones go on, as the next hop may come back before TCP gives up (a soft error,
// RFC 1122 section 4.2.3.9).
func (p *Poller) unreachable(b mem.Buf) {
	m := &p.tx.meta[b]
	if m.conn == noConn {
		return
	}
	c := &p.slab.conns[m.conn]
	if c.nextHop != c.tcp.ID().Remote && !p.host.IsDead(p.now, c.nextHop) {
		return // it has been given another gateway
	}
	if c.life == m.life && c.phase == phaseOpening && c.tcp.State() == tcp.SynSent {
		c.abort(whyNoRoute)
	}
}

// abandonNeighbours takes back all frames that wait in the table.
func (p *Poller) abandonNeighbours() {
	p.neighbours.Clear()
	p.takeDropped(DropStopped)
	for {
		b, _, ok := p.neighbours.Take()
		if !ok {
			return
		}
		p.n.Own[DropStopped]++
		p.tx.unqueue(b)
	}
}
