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
		c.p.peers.leaveSilent(c)
	} else if c.phase == phaseOpen && c.marks&(markSilent|markWaiting) == 0 {
		c.p.peers.joinSilent(c)
	}
}

// peers counts, for each remote address, the connections that it has opened to us, so that one
// address cannot fill the table (Config.PeerMax). A keyed hash finds the counter. Addresses may
// share a counter, but a peer cannot choose with which, and at most half of the counters are ever
// in use. Of an IPv6 address the first 64 bits count, as one host may have all addresses with them.
// The members of a Group share the counters.
//
// Of this Poller's connections those whose peer has said nothing yet stand in silent.
type peers struct {
	counts []peerCount // a power of two; none when there is no limit
	k0, k1 uint64
	max    int32

	conns      []Conn
	silent     list   // oldest first
	group      *Group // nil: alone
	placesSeen uint32 // Group.placesWanted, as far as it was heeded
}

// silentLooks bounds how far the list is searched for one of a certain address: a segment must not
// cost a walk over all.
const silentLooks = 64

// peerCount is a counter. Any member's goroutine.
type peerCount struct {
	conns  atomic.Int32
	silent atomic.Int32 // of them, those that would give way
	wanted atomic.Bool  // the place of a silent one, by another member than those that have them
}

func newPeers(cfg *Config, s *secret, conns []Conn) peers {
	t := peers{conns: conns, silent: emptyList, group: cfg.Group, max: int32(cfg.PeerMax)}
	if cfg.PeerMax == 0 {
		return t
	}
	if cfg.Group != nil {
		t.counts = cfg.Group.peerCounts(cfg)
	} else {
		t.counts = make([]peerCount, powerOfTwo(2*cfg.ConnsMax))
	}
	t.k0, t.k1 = s.prf(usePeer, []byte{0})|1, s.prf(usePeer, []byte{1})|1
	return t
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

// closed says whether a has as many connections as it may, and none that would give way.
func (t *peers) closed(a *inet.Addr) bool { return t.full(a) && t.silentOf(a) == noConn }

// silentOf is the oldest silent connection of a's address, as peers counts addresses, or noConn.
func (t *peers) silentOf(a *inet.Addr) connIndex {
	i, count := t.silent.first, t.count(a)
	for n := 0; i != noConn && n < silentLooks; n++ {
		c := &t.conns[i]
		if c.marks&markPeer != 0 && t.count(&c.tcp.ID().Remote) == count {
			return i
		}
		i = c.next
	}
	return noConn
}

// silentElsewhere says whether another member may have a connection of a that would give way.
func (t *peers) silentElsewhere(a *inet.Addr) bool {
	return t.group != nil && t.max > 0 && t.count(a).silent.Load() > 0
}

// askForPlace asks the other members for a place: one of a's connections that would give way is to
// do so. The handshake that wants it has been done; its peer sends again what found no place.
func (t *peers) askForPlace(a *inet.Addr) {
	if t.silentElsewhere(a) {
		t.count(a).wanted.Store(true)
		t.group.placesWanted.Add(1)
		t.group.rouseAll()
	}
}

// placeNews says that a member has asked for a place.
func (t *peers) placeNews() bool {
	return t.group != nil && t.group.placesWanted.Load() != t.placesSeen
}

// heedPlaces is the first that may have to give way to what was asked for until now.
func (t *peers) heedPlaces() connIndex {
	t.placesSeen = t.group.placesWanted.Load()
	return t.silent.first
}

func (t *peers) joinSilent(c *Conn) {
	c.marks |= markSilent
	t.silent.pushBack(t.conns, c.index)
	t.addSilent(c, 1)
}

// leaveSilent takes c from the list, if it stands there.
func (t *peers) leaveSilent(c *Conn) {
	if c.marks&markSilent != 0 {
		c.marks &^= markSilent
		t.silent.remove(t.conns, c.index)
		t.addSilent(c, -1)
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
