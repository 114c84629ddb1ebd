package stack

import "github.com/rnicd/rnicd/internal/inet"

// Connections that were opened to us and whose peer has said nothing that counts yet
// (Conn.SetSilent) stand in a list, oldest first. They give way to connections that come in: where
// no slot is free the oldest does, and where an address has Config.PeerMax connections the oldest
// of that address. So idle connections do not keep new ones out.

// makePlace lets a silent connection give way to one of a's that has come in, where there is no
// place for it.
func (p *Poller) makePlace(a *inet.Addr) {
	i := noConn
	switch {
	case p.peers.full(a):
		i = p.peers.silentOf(a)
	case !p.slab.slotFree():
		i = p.peers.silent.first
	}
	if i != noConn {
		p.giveWay(&p.slab.conns[i])
	}
}

// makePlaces lets silent connections give way to those that have come to other members.
func (p *Poller) makePlaces() int {
	if !p.peers.placeNews() {
		return 0
	}
	i, work := p.peers.heedPlaces(), 0
	for n := 0; i != noConn && n < silentLooks; n++ {
		c := &p.slab.conns[i]
		i = c.next
		if c.marks&markSilent == 0 { // an Upper's Closed has ended it, too
			break
		}
		if c.marks&markPeer == 0 {
			continue
		}
		if k := p.peers.count(&c.tcp.ID().Remote); k.conns.Load() >= p.peers.max &&
			k.wanted.CompareAndSwap(true, false) {
			work++
			p.giveWay(c)
		}
	}
	return work
}

// giveWay resets c at once: its slot is wanted in the middle of a burst.
func (p *Poller) giveWay(c *Conn) {
	p.n.GaveWay++
	p.peers.leaveSilent(c)
	c.fail(whyGaveWay)
	c.tcp.Abort(p.now)
	p.tx.forgetHop()
	switch {
	case p.tx.n >= p.tx.connMax:
		p.n.Own[DropTxFull]++
		c.tcp.Next(p.now, 1, &p.tx.segment) // the Conn closes when it has handed out the RST
	case !p.tx.haveSpare():
		p.n.Own[DropNoBuf]++
		c.tcp.Next(p.now, 1, &p.tx.segment)
	case c.tcp.Next(p.now, 1, &p.tx.segment):
		p.tx.emit(p.now, c, &p.tx.segment)
	}
	c.tcp.TakeEvents()
	p.finish(c)
}
