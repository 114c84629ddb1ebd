package stack

import "github.com/rnicd/rnicd/inet"

// Connections that were opened to us and whose peer has said nothing that counts yet
// (Conn.SetSilent) stand in a list, oldest first. They give way to connections that come in: where
// no slot is free the oldest does, and where an address has Config.PeerMax connections the oldest
// of that address. So connections that are opened and left alone keep nobody out.

// silentLooks bounds how far the list is searched for one of a certain address: a segment must not
// cost a walk over all.
const silentLooks = 64

// SetSilent says whether the peer has said nothing yet that is worth a place. The Upper sets it in
// Established and takes it back when the peer has spoken. A silent connection may be reset for a
// newcomer at any time outside of its Upper's calls: its Closed is given ErrGaveWay. Poller
// goroutine.
func (c *Conn) SetSilent(on bool) {
	if !on {
		c.p.leaveSilent(c)
	} else if c.phase == phaseOpen && c.marks&(markSilent|markStarved) == 0 {
		c.marks |= markSilent
		c.p.silent.pushBack(c.p.slab.conns, c.index)
		c.p.peers.addSilent(c, 1)
	}
}

// leaveSilent takes c from the list, as does starve: a connection stands in one list at a time.
func (p *Poller) leaveSilent(c *Conn) {
	if c.marks&markSilent != 0 {
		c.marks &^= markSilent
		p.silent.remove(p.slab.conns, c.index)
		p.peers.addSilent(c, -1)
	}
}

// silentOf is the oldest silent connection of a's address, as peers counts addresses, or noConn.
func (p *Poller) silentOf(a *inet.Addr) connIndex {
	i, count := p.silent.first, p.peers.count(a)
	for n := 0; i != noConn && n < silentLooks; n++ {
		c := &p.slab.conns[i]
		if c.marks&markPeer != 0 && p.peers.count(&c.id.Remote) == count {
			return i
		}
		i = c.next
	}
	return noConn
}

// peerFull says whether a has as many connections as it may, and none that would give way.
func (p *Poller) peerFull(a *inet.Addr) bool { return p.peers.full(a) && p.silentOf(a) == noConn }

// makePlace lets a silent connection give way to one of a's that has come in, where there is no
// place for it.
func (p *Poller) makePlace(a *inet.Addr) {
	i := noConn
	switch {
	case p.peers.full(a):
		i = p.silentOf(a)
	case !p.slotFree():
		i = p.silent.first
	}
	if i != noConn {
		p.giveWay(&p.slab.conns[i])
	}
}

// giveWay resets c at once: its slot is wanted in the middle of a burst.
func (p *Poller) giveWay(c *Conn) {
	p.n.GaveWay++
	p.leaveSilent(c)
	c.fail(ErrGaveWay)
	c.tcp.Abort(p.now)
	p.tx.hopKnown = false // of the Turn before
	switch {
	case p.tx.n >= p.tx.connMax:
		p.n.Own[DropTxFull]++
		c.tcp.Next(p.now, &p.tx.segment) // the Conn closes when it has handed out the RST
	case !p.haveSpare():
		p.n.Own[DropNoBuf]++
		c.tcp.Next(p.now, &p.tx.segment)
	case c.tcp.Next(p.now, &p.tx.segment):
		p.emit(c, &p.tx.segment)
	}
	c.tcp.TakeEvents()
	p.finish(c)
}
