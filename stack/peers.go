package stack

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rnicd/rnicd/inet"
)

// peers counts, by remote address, the connections that were opened to us, so that one address cannot fill the table
// (Config.PeerMax). A counter is found by a keyed hash and may be shared by addresses, at most half of the counters ever
// being in use: a peer cannot choose with whom. Of IPv6 the first 64 bits count, as a host has all addresses behind them.
// The members of a Group have the counters in common.
type peers struct {
	counts []peerCount // a power of two; none when there is no limit
	k0, k1 uint64
	max    int32
}

// peerCount is a counter. Any member's goroutine.
type peerCount struct {
	conns  atomic.Int32
	silent atomic.Int32 // of them, those that would give way
	wanted atomic.Bool  // the place of a silent one, by another member than those that have them
}

func newPeers(cfg *Config, s *secret) peers {
	if cfg.PeerMax == 0 {
		return peers{}
	}
	var counts []peerCount
	if cfg.Group != nil {
		counts = cfg.Group.peerCounts(cfg)
	} else {
		counts = make([]peerCount, powerOfTwo(2*cfg.ConnsMax))
	}
	return peers{
		counts: counts, max: int32(cfg.PeerMax),
		k0: s.prf(usePeer, []byte{0}) | 1, k1: s.prf(usePeer, []byte{1}) | 1,
	}
}

func (t *peers) count(a *inet.Addr) *peerCount {
	h := binary.LittleEndian.Uint64(a[:8])
	if a.Is4() {
		h = binary.LittleEndian.Uint64(a[8:])
	}
	return &t.counts[fold(fold(h^t.k0, t.k1), t.k0)&uint64(len(t.counts)-1)]
}

// full says whether a has as many connections as it may.
func (t *peers) full(a *inet.Addr) bool { return t.max > 0 && t.count(a).conns.Load() >= t.max }

// take counts a connection that a opens, unless a has as many as it may; untake, that none came of
// it.
func (t *peers) take(a *inet.Addr) bool {
	if t.max > 0 && t.count(a).conns.Add(1) > t.max {
		t.untake(a)
		return false
	}
	return true
}

func (t *peers) untake(a *inet.Addr) {
	if t.max > 0 {
		t.count(a).conns.Add(-1)
	}
}

// add makes c the connection that take has counted; it bears markPeer until remove.
func (t *peers) add(c *Conn) {
	if t.max > 0 {
		c.marks |= markPeer
	}
}

func (t *peers) remove(c *Conn) {
	if c.marks&markPeer != 0 {
		c.marks &^= markPeer
		t.count(&c.id.Remote).conns.Add(-1)
	}
}

// addSilent counts that c would give way, by 1, or does so no more, by -1.
func (t *peers) addSilent(c *Conn, by int32) {
	if c.marks&markPeer != 0 {
		t.count(&c.id.Remote).silent.Add(by)
	}
}

// peerCounts are the counters of all members.
func (g *Group) peerCounts(cfg *Config) []peerCount {
	g.lock.Lock()
	defer g.lock.Unlock()
	if g.peers == nil {
		g.peers = make([]peerCount, powerOfTwo(2*cfg.ConnsMax*len(g.inboxes)))
	}
	return g.peers
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
		if k := p.peers.count(&c.id.Remote); k.conns.Load() >= p.peers.max && k.wanted.CompareAndSwap(true, false) {
			work++
			p.giveWay(c)
		}
	}
	return work
}
