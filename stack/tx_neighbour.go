package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// send finds the next hop's MAC and puts the frame into the batch, or leaves it with the neighbour
// table.
func (p *Poller) send(b mem.Buf, hop inet.Addr) {
	p.tx.meta[b].queued = true
	if !p.tx.hopKnown || p.tx.hop != hop {
		mac, known, queued, ask := p.neighbours.Lookup(p.now, hop, b)
		if ask {
			to := inet.Broadcast
			if known {
				to = mac
			}
			p.ask(hop, to)
		}
		if !known {
			if !queued {
				p.n.Own[DropNeighbourFull]++
				p.unqueue(b)
			}
			return
		}
		p.tx.hop, p.tx.hopMAC, p.tx.hopKnown = hop, mac, true
	}
	p.batch(b, p.tx.hopMAC)
}

// ask sends an ARP request or a Neighbour Solicitation for ip to mac: Broadcast, or the neighbour
// itself to see whether it is still there.
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

// solicit sends a Neighbour Solicitation from src for target: to its group when mac is Broadcast,
// else to the neighbour itself. False: there was no Buf or no room.
func (p *Poller) solicit(src, target inet.Addr, mac inet.MAC) bool {
	p.claims(&src)
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		p.n.Own[DropNoBuf]++
		return false
	}
	to := target
	if mac == inet.Broadcast {
		to = target.SolicitedNode()
		mac = to.GroupMAC()
	}
	n := inet.PutNeighbourSolicitation(p.pool.Slot(b)[p.pool.Headroom():], p.mac, src, to, target)
	p.putPacket(b, &src, &to, inet.ProtoICMPv6, 0, ndHopLimit, n)
	if !p.reply(b, mac) {
		p.discard(b)
		return false
	}
	p.n.NDRequests++
	return true
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

// putARP makes the frame in b the packet a. The caller adds the Ethernet destination.
func (p *Poller) putARP(b mem.Buf, a *inet.ARP) {
	d := p.pool.Desc(b)
	d.Off, d.Len, d.Flags = uint32(p.pool.Headroom()), uint32(p.host.l2+inet.ARPLen), 0
	frame := p.pool.Data(b)
	p.putEthernet(frame, inet.EtherTypeARP)
	a.Put(frame[p.host.l2:])
}
