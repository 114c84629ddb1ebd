package stack

import (
	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

const (
	neighbourStepsMax = 64 // requests asked for in one Turn
)

// arp handles a received ARP packet: RFC 826, "Packet Reception". It returns whether b is done with.
func (p *Poller) arp(b mem.Buf, packet []byte) bool {
	a, drop := inet.ParseARP(packet)
	if drop != inet.DropNone {
		p.n.Inet[drop]++
		return true
	}
	if l := p.contested(&a); l != nil {
		p.n.Inet[inet.DropSource]++
		echo := a.SenderMAC == p.mac // of a probe
		if !a.SenderIP.IsUnspecified() {
			echo = p.isEcho(l, a.SenderMAC, l.group.claimedAt.Load())
		}
		if !echo {
			p.conflict(l, a.SenderMAC)
		}
		return true
	}
	if p.probeEcho(&a) {
		p.n.Inet[inet.DropSource]++
		return true
	}
	us := a.TargetIP
	if !p.isLocal(&us) {
		us = inet.Addr{} // nobody's: what remains is the merge
	}
	answer, ours, drop := p.neighbours.Input(p.now, &a, us, p.mac)
	if drop != inet.DropNone {
		p.n.Inet[drop]++
		return true
	}
	p.learned = true
	if !ours {
		return true
	}
	p.claims(&us)
	p.putARP(b, &answer)
	if !p.reply(b, answer.TargetMAC) {
		return true
	}
	p.n.ARPReplies++
	return false
}

// probeEcho says that a is a probe of ours for an address in use, which the link gives back: our
// answer would come back as well, and look like another host's.
func (p *Poller) probeEcho(a *inet.ARP) bool {
	if a.SenderMAC != p.mac || !a.SenderIP.IsUnspecified() {
		return false
	}
	l := p.ours(&a.TargetIP)
	return l != nil && p.isEcho(l, a.SenderMAC, l.group.probedAt.Load())
}

// putARP makes the frame in b the packet a; the Ethernet destination is for whoever sends it.
func (p *Poller) putARP(b mem.Buf, a *inet.ARP) {
	d := p.pool.Desc(b)
	d.Off, d.Len, d.Flags = uint32(p.pool.Headroom()), uint32(p.host.l2+inet.ARPLen), 0
	frame := p.pool.Data(b)
	p.putEthernet(frame, inet.EtherTypeARP)
	a.Put(frame[p.host.l2:])
}

// ask sends an ARP request or a Neighbour Solicitation for ip to mac: Broadcast, or the neighbour itself to see whether it
// is still there.
func (p *Poller) ask(ip inet.Addr, mac inet.MAC) {
	src, ok := p.source(ip, ip)
	if !ok {
		p.n.Own[DropNoRoute]++
		return
	}
	if !ip.Is4() {
		p.solicit(src, ip, mac)
		return
	}
	p.claims(&src)
	a := inet.RequestARP(p.mac, src, ip)
	if p.sendARP(&a, mac) {
		p.n.ARPRequests++
	}
}

// sendARP sends a packet to mac. False: there was no Buf or no room.
func (p *Poller) sendARP(a *inet.ARP, mac inet.MAC) bool {
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		p.n.Own[DropNoBuf]++
		return false
	}
	p.putARP(b, a)
	if !p.reply(b, mac) {
		p.discard(b)
		return false
	}
	return true
}

// resolve sends frames whose neighbour became known and asks for those that are due.
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
	if p.neighbours.Deadline() > p.now {
		return work
	}
	work += p.takeDropped(DropNeighbourFull) // before Tick: displaced by later ones
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

// unreachable ends the connection whose SYN is in b: its next hop does not answer, and there is no other. Established
// ones go on, as the next hop may come back before TCP gives up (a soft error, RFC 1122 section 4.2.3.9).
func (p *Poller) unreachable(b mem.Buf) {
	m := &p.tx.meta[b]
	if m.conn == noConn {
		return
	}
	c := &p.slab.conns[m.conn]
	if c.nextHop != c.id.Remote && !p.host.routes.IsDead(p.now, c.nextHop) {
		return // it has been given another gateway
	}
	if c.life == m.life && c.phase == phaseOpening && c.tcp.State() == tcp.SynSent {
		p.abort(c, ErrNoRoute)
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
