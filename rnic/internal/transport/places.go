package transport

import (
	"container/list"
	"fmt"
	"net/netip"
	"sync"

	"github.com/rnicd/rnicd/stack"
)

// Places bound the connections over kernel sockets: Config.ConnsMax in all, and Config.PeerMax of
// those that one address has opened to us. A connection is silent while its peer has not sent its
// start-up frame. Where there is no place for one that comes in, the oldest silent one gives way,
// as on a Poller (stack.Conn.SetSilent).
//
// Everything is for any goroutine, also with the mutex of a KernelConn held. Nothing above is
// called.
type Places struct {
	max, peerMax int

	mu     sync.Mutex
	taken  int
	peers  map[netip.Addr]int
	silent list.List // of *Place, oldest first
}

// ErrPeerMax is a stack.ErrConnMax: one address has as many connections over kernel sockets as
// Config.PeerMax says. A Poller does not answer further ones and counts them (stack.DropPeerMax).
var ErrPeerMax = fmt.Errorf("%w from one address", stack.ErrConnMax)

// Place is one connection's.
type Place struct {
	of     *Places
	peer   netip.Addr // that opened it to us; invalid: we opened it
	silent *list.Element
	socket *KernelConn // while it is silent
	lost   bool        // another connection has it
}

// NewPlaces makes max places, of which one address may have peerMax; 0: all.
func NewPlaces(max, peerMax int) *Places {
	return &Places{max: max, peerMax: peerMax, peers: map[netip.Addr]int{}}
}

// Take takes a place for a connection that we open.
func (p *Places) Take() (*Place, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.max {
		return nil, fmt.Errorf("%w (ConnsMax is %d)", stack.ErrConnMax, p.max)
	}
	p.taken++
	return &Place{of: p}, nil
}

// TakeFor takes a place for a connection that peer has opened. gaveWay, if not nil, has lost its
// place to that one: the caller ends it with GiveWay.
func (p *Places) TakeFor(peer netip.Addr) (pl *Place, gaveWay *KernelConn, err error) {
	peer = addressOf(peer)
	p.mu.Lock()
	defer p.mu.Unlock()
	var e *list.Element
	switch {
	case p.peerMax > 0 && p.peers[peer] >= p.peerMax:
		if e = p.silentOf(peer); e == nil {
			return nil, nil, fmt.Errorf("%w (PeerMax is %d)", ErrPeerMax, p.peerMax)
		}
	case p.taken >= p.max:
		if e = p.silent.Front(); e == nil {
			return nil, nil, fmt.Errorf("%w (ConnsMax is %d)", stack.ErrConnMax, p.max)
		}
	}
	if e != nil {
		old := e.Value.(*Place)
		gaveWay = old.socket
		old.give()
		old.lost = true
	}
	p.taken++
	p.peers[peer]++
	return &Place{of: p, peer: peer}, gaveWay, nil
}

// silentOf is the oldest silent connection that peer has opened.
func (p *Places) silentOf(peer netip.Addr) *list.Element {
	e := p.silent.Front()
	for e != nil && e.Value.(*Place).peer != peer {
		e = e.Next()
	}
	return e
}

// addressOf is what counts as one address: of IPv6 the first 64 bits, because a host has all
// addresses with that prefix.
func addressOf(a netip.Addr) netip.Addr {
	if a = a.Unmap().WithZone(""); a.Is4() {
		return a
	}
	prefix, _ := a.Prefix(64) // of an IPv6 address that is always possible
	return prefix.Addr()
}

// setSilent says that the peer of s, whose place this is, has not sent its start-up frame yet. A
// connection that we opened never gives way.
func (pl *Place) setSilent(s *KernelConn) {
	pl.of.mu.Lock()
	defer pl.of.mu.Unlock()
	if pl.peer.IsValid() && pl.silent == nil && !pl.lost {
		pl.socket = s
		pl.silent = pl.of.silent.PushBack(pl)
	}
}

// spoke says that the frame has come. False: too late, the place is another's.
func (pl *Place) spoke() bool {
	pl.of.mu.Lock()
	defer pl.of.mu.Unlock()
	pl.unlist()
	return !pl.lost
}

// Leave gives the place back.
func (pl *Place) Leave() {
	pl.of.mu.Lock()
	defer pl.of.mu.Unlock()
	if !pl.lost {
		pl.give()
		pl.lost = true
	}
}

func (pl *Place) give() {
	p := pl.of
	pl.unlist()
	p.taken--
	if !pl.peer.IsValid() {
		return
	}
	if p.peers[pl.peer]--; p.peers[pl.peer] == 0 {
		delete(p.peers, pl.peer)
	}
}

func (pl *Place) unlist() {
	if pl.silent != nil {
		pl.of.silent.Remove(pl.silent)
		pl.silent, pl.socket = nil, nil
	}
}
