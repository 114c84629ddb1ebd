package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

const (
	neighbourStepsMax = 64 // requests asked for in one Turn
)

// resolve sends frames whose neighbour became known, and sends the requests that are due.
func (p *Poller) resolve() int {
	work := 0
	if p.host.dueAt <= p.now {
		work += p.housekeep()
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
			p.batch(b, mac)
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
		p.ask(ip, mac)
	}
	for ip, ok := p.neighbours.TakeLost(); ok; ip, ok = p.neighbours.TakeLost() {
		p.lost(ip)
	}
	return work + p.takeDropped(DropNeighbourLost) // after Tick: given up
}

// found tells the connection whose SYN is in b that the SYN leaves now.
func (p *Poller) found(b mem.Buf) {
	m := &p.tx.meta[b]
	if m.conn == noConn {
		return
	}
	if c := &p.slab.conns[m.conn]; c.life == m.life && c.phase == phaseOpening {
		c.tcp.SynLeft(p.now)
		p.touch(c)
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
		p.unqueue(b)
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
	if c.nextHop != c.tcp.ID().Remote && !p.host.routes.IsDead(p.now, c.nextHop) {
		return // it has been given another gateway
	}
	if c.life == m.life && c.phase == phaseOpening && c.tcp.State() == tcp.SynSent {
		p.abort(c, whyNoRoute)
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
		p.unqueue(b)
	}
}

// housekeep does what is due and belongs neither to connections nor to neighbours.
func (p *Poller) housekeep() int {
	work := 0
	h := &p.host
	if h.routes.Expire(p.now) {
		work++
		h.routesLate = true
	}
	if h.routesLate && h.rerouteAt <= p.now {
		work++
		p.reroute()
	}
	for _, ok := h.paths.Expire(p.now); ok; _, ok = h.paths.Expire(p.now) {
		work++
		h.pathsChanged++ // the estimate is old: the link's MTU is tried again (RFC 1191 section 6.3)
	}
	for {
		quote, condemned, ok := h.fragments.Expire(p.now)
		if !ok {
			break
		}
		work++
		p.n.Inet[inet.DropReassemblyTimeout]++
		if quote != nil && !condemned {
			p.reassemblyExceeded(quote)
		}
	}
	work += p.checkAddrs()
	work += p.tellListening()
	if h.rsAt <= p.now {
		work++
		p.solicitRouters()
	}
	p.schedule()
	return work
}

// reroute asks the routes again for every connection.
func (p *Poller) reroute() {
	p.host.routesLate, p.host.rerouteAt = false, p.now+rerouteNs
	for i := range p.slab.conns {
		c := &p.slab.conns[i]
		if c.phase == phaseFree {
			continue
		}
		if hop, ok := p.route(c.tcp.ID().Remote); ok && hop != c.nextHop {
			c.nextHop = hop
			p.n.Rerouted++
		}
	}
}

// lost is called when the neighbour table has found that hop does not answer. If it is a gateway,
// the connections that went through it take another route (RFC 1122 section 3.3.1.4).
func (p *Poller) lost(hop inet.Addr) {
	if p.host.routes.Dead(p.now, hop) {
		p.reroute()
	}
}
