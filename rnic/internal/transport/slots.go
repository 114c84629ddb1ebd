package transport

import (
	"container/list"
	"fmt"
	"net/netip"
	"sync"

	"github.com/rnicd/rnicd/stack"
)

// Slots bound the connections over kernel sockets: Config.ConnsMax in all, and Config.PeerMax of
// those that one address has opened to us. A connection is silent while its peer has not sent its
// start-up frame. Where there is no slot for one that comes in, or that we open, the oldest silent
// one gives way (as on a Poller for one that comes in: stack.Conn.SetSilent).
//
// Everything is for any goroutine, also one that holds a Loop. Nothing above is
// called.
type Slots struct {
	max, peerMax int

	mu     sync.Mutex
	taken  int
	peers  map[netip.Addr]*peerSlots
	silent list.List // of *Slot, oldest first
}

// peerSlots are those of connections that one address has opened.
type peerSlots struct {
	taken  int
	silent list.List // of *Slot, oldest first
}

// ErrPeerMax is a stack.ErrConnMax: one address has as many connections over kernel sockets as
// Config.PeerMax says. A Poller does not answer further ones and counts them (stack.DropPeerMax).
var ErrPeerMax = fmt.Errorf("%w from one address", stack.ErrConnMax)

// Slot is one connection's.
type Slot struct {
	of     *Slots
	peer   netip.Addr    // that opened it to us; invalid: we opened it
	silent *list.Element // in Slots.silent
	ofPeer *list.Element // in peerSlots.silent
	socket *KernelConn   // while it is silent
	lost   bool          // another connection has it
}

// NewSlots makes max slots. One address may have peerMax of them; 0: all.
func NewSlots(max, peerMax int) *Slots {
	return &Slots{max: max, peerMax: peerMax, peers: map[netip.Addr]*peerSlots{}}
}

// Take takes a slot for a connection that we open. gaveWay, if not nil, has lost its slot to that
// one: the caller ends it with GiveWay.
func (p *Slots) Take() (sl *Slot, gaveWay *KernelConn, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.taken >= p.max {
		if gaveWay, err = p.makePlace(); err != nil {
			return nil, nil, err
		}
	}
	p.taken++
	return &Slot{of: p}, gaveWay, nil
}

// makePlace takes the slot of the oldest silent connection. p is locked.
func (p *Slots) makePlace() (gaveWay *KernelConn, err error) {
	e := p.silent.Front()
	if e == nil {
		return nil, fmt.Errorf("%w (ConnsMax is %d)", stack.ErrConnMax, p.max)
	}
	return e.Value.(*Slot).lose(), nil
}

// TakeFor is Take for a connection that peer has opened.
func (p *Slots) TakeFor(peer netip.Addr) (sl *Slot, gaveWay *KernelConn, err error) {
	peer = addressOf(peer)
	p.mu.Lock()
	defer p.mu.Unlock()
	theirs := p.peers[peer]
	switch {
	case p.peerMax > 0 && theirs != nil && theirs.taken >= p.peerMax:
		e := theirs.silent.Front()
		if e == nil {
			return nil, nil, fmt.Errorf("%w (PeerMax is %d)", ErrPeerMax, p.peerMax)
		}
		gaveWay = e.Value.(*Slot).lose()
	case p.taken >= p.max:
		if gaveWay, err = p.makePlace(); err != nil {
			return nil, nil, err
		}
	}
	p.taken++
	if theirs = p.peers[peer]; theirs == nil { // or its last has just given way
		theirs = &peerSlots{}
		p.peers[peer] = theirs
	}
	theirs.taken++
	return &Slot{of: p, peer: peer}, gaveWay, nil
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

// setSilent says that the peer of s, whose slot this is, has not sent its start-up frame yet. A
// connection that we opened never gives way.
func (sl *Slot) setSilent(s *KernelConn) {
	sl.of.mu.Lock()
	defer sl.of.mu.Unlock()
	if sl.peer.IsValid() && sl.silent == nil && !sl.lost {
		sl.socket = s
		sl.silent = sl.of.silent.PushBack(sl)
		sl.ofPeer = sl.of.peers[sl.peer].silent.PushBack(sl)
	}
}

// spoke says that the frame has come. False: too late, the slot is another's.
func (sl *Slot) spoke() bool {
	sl.of.mu.Lock()
	defer sl.of.mu.Unlock()
	sl.unlist()
	return !sl.lost
}

// Free gives the slot back.
func (sl *Slot) Free() {
	sl.of.mu.Lock()
	defer sl.of.mu.Unlock()
	if !sl.lost {
		sl.give()
		sl.lost = true
	}
}

// lose gives the slot of a silent connection to another one.
func (sl *Slot) lose() (gaveWay *KernelConn) {
	gaveWay = sl.socket
	sl.give()
	sl.lost = true
	return gaveWay
}

func (sl *Slot) give() {
	p := sl.of
	sl.unlist()
	p.taken--
	if !sl.peer.IsValid() {
		return
	}
	theirs := p.peers[sl.peer]
	if theirs.taken--; theirs.taken == 0 {
		delete(p.peers, sl.peer)
	}
}

func (sl *Slot) unlist() {
	if sl.silent != nil {
		sl.of.silent.Remove(sl.silent)
		sl.of.peers[sl.peer].silent.Remove(sl.ofPeer)
		sl.silent, sl.ofPeer, sl.socket = nil, nil, nil
	}
}
