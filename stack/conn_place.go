package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
)

// Connections that were opened to us and whose peer has said nothing that counts yet
// (Conn.SetSilent) stand in a list, oldest first. They give way to connections that come in: where
// no slot is free the oldest does, and where an address has Config.PeerMax connections the oldest
// of that address. So idle connections do not keep new ones out.

// silentLooks bounds how far the list is searched for one of a certain address: a segment must not
// cost a walk over all.
const silentLooks = 64

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

// silentElsewhere says whether another member may have a connection of a that would give way.
func (p *Poller) silentElsewhere(a *inet.Addr) bool {
	return p.cfg.Group != nil && p.peers.max > 0 && p.peers.count(a).silent.Load() > 0
}

// askForPlace asks the other members for a place: one of a's connections that would give way is to
// do so. The handshake that wants it has been done; its peer sends again what found no place.
func (p *Poller) askForPlace(a *inet.Addr) {
	if p.silentElsewhere(a) {
		p.peers.count(a).wanted.Store(true)
		p.cfg.Group.placesWanted.Add(1)
		p.cfg.Group.rouseAll()
	}
}

// placeNews says that a member has asked for a place.
func (p *Poller) placeNews() bool {
	return p.cfg.Group != nil && p.cfg.Group.placesWanted.Load() != p.placesSeen
}

// makePlaces lets silent connections give way to those that have come to other members.
func (p *Poller) makePlaces() int {
	if !p.placeNews() {
		return 0
	}
	p.placesSeen = p.cfg.Group.placesWanted.Load()
	i, work := p.silent.first, 0
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

// silentOf is the oldest silent connection of a's address, as peers counts addresses, or noConn.
func (p *Poller) silentOf(a *inet.Addr) connIndex {
	i, count := p.silent.first, p.peers.count(a)
	for n := 0; i != noConn && n < silentLooks; n++ {
		c := &p.slab.conns[i]
		if c.marks&markPeer != 0 && p.peers.count(&c.tcp.ID().Remote) == count {
			return i
		}
		i = c.next
	}
	return noConn
}

// giveWay resets c at once: its slot is wanted in the middle of a burst.
func (p *Poller) giveWay(c *Conn) {
	p.n.GaveWay++
	p.leaveSilent(c)
	c.fail(whyGaveWay)
	c.tcp.Abort(p.now)
	p.tx.hopKnown = false // of the Turn before
	switch {
	case p.tx.n >= p.tx.connMax:
		p.n.Own[DropTxFull]++
		c.tcp.Next(p.now, 1, &p.tx.segment) // the Conn closes when it has handed out the RST
	case !p.haveSpare():
		p.n.Own[DropNoBuf]++
		c.tcp.Next(p.now, 1, &p.tx.segment)
	case c.tcp.Next(p.now, 1, &p.tx.segment):
		p.emit(c, &p.tx.segment)
	}
	c.tcp.TakeEvents()
	p.finish(c)
}
