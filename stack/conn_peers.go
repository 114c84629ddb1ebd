package stack

import (
	"encoding/binary"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/inet"
)

// SetSilent says whether the peer has said nothing yet that is worth a place. The Upper sets it in
// Established and takes it back when the peer has spoken. A silent connection may be reset for a
// newcomer at any time outside of its Upper's calls: its Closed is given ErrGaveWay. Poller
// goroutine.
func (c *Conn) SetSilent(on bool) {
	if !on {
		c.p.leaveSilent(c)
	} else if c.phase == phaseOpen && c.marks&(markSilent|markWaiting) == 0 {
		c.marks |= markSilent
		c.p.silent.pushBack(c.p.slab.conns, c.index)
		c.p.peers.addSilent(c, 1)
	}
}

// leaveSilent takes c from the list, as does awaitBufs: a connection stands in one list at a time.
func (p *Poller) leaveSilent(c *Conn) {
	if c.marks&markSilent != 0 {
		c.marks &^= markSilent
		p.silent.remove(p.slab.conns, c.index)
		p.peers.addSilent(c, -1)
	}
}

// peers counts, for each remote address, the connections that it has opened to us, so that one
// address cannot fill the table (Config.PeerMax). A keyed hash finds the counter. Addresses may
// share a counter, but a peer cannot choose with which, and at most half of the counters are ever
// in use. Of an IPv6 address the first 64 bits count, as one host may have all addresses with them.
// The members of a Group share the counters.
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
		t.count(&c.tcp.ID().Remote).conns.Add(-1)
	}
}

// addSilent counts that c would give way, by 1, or does so no more, by -1.
func (t *peers) addSilent(c *Conn, by int32) {
	if c.marks&markPeer != 0 {
		t.count(&c.tcp.ID().Remote).silent.Add(by)
	}
}

func (t *peers) count(a *inet.Addr) *peerCount {
	h := binary.LittleEndian.Uint64(a[:8])
	if a.Is4() {
		h = binary.LittleEndian.Uint64(a[8:])
	}
	return &t.counts[fold(fold(h^t.k0, t.k1), t.k0)&uint64(len(t.counts)-1)]
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
