package stack

import (
	"slices"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/inet"
)

// groupAddr is what the members of a Group share about one of their addresses. It is one address,
// so whether it is kept is one decision for all of them. A Poller without a Group has a groupAddr
// of its own. Any goroutine.
type groupAddr struct {
	conns atomic.Int64  // that use it, those of TIME-WAIT not counted; below 0: it was given up
	rival atomic.Uint64 // the MAC of the host that has it, then

	claimedAt atomic.Int64 // when a member last sent an ARP packet or a message of ND from it
	probedAt  atomic.Int64 // or a probe for it

	// Under Group.lock.
	addr    inet.Addr
	sharers uint64 // members that have ever had it, a bit each
	refs    int    // that have it
}

func newGroupAddr(addr inet.Addr) *groupAddr {
	a := &groupAddr{addr: addr}
	a.claimedAt.Store(never)
	a.probedAt.Store(never)
	return a
}

// addrGone is what conns begins from when the address was given up.
const addrGone = -1 << 62

// enter counts a connection; false: the address was given up.
func (a *groupAddr) enter() bool {
	if a.conns.Add(1) > 0 {
		return true
	}
	a.conns.Add(-1)
	return false
}

func (a *groupAddr) leave() { a.conns.Add(-1) }

// giveUp gives the address up because the station at mac has it, unless a connection uses it. It
// returns whether it is given up, by this call or before.
func (a *groupAddr) giveUp(mac inet.MAC) bool {
	if a.conns.CompareAndSwap(0, addrGone) {
		a.rival.Store(macWord(mac))
	}
	return a.gone()
}

func (a *groupAddr) gone() bool { return a.conns.Load() < 0 }

func macWord(mac inet.MAC) (w uint64) {
	for _, octet := range mac {
		w = w<<8 | uint64(octet)
	}
	return w
}

func macOf(w uint64) (mac inet.MAC) {
	for i := len(mac) - 1; i >= 0; i, w = i-1, w>>8 {
		mac[i] = byte(w)
	}
	return mac
}

// groupAddrsMax bounds those of a Group that no member has any more and some never had.
const groupAddrsMax = 4 * addrsMax

// shareAddr returns what member shares with the others of an address that it adds. Each member adds
// and removes an address in its own time: its n-th time is the n-th time of the others.
func (g *Group) shareAddr(member int, addr inet.Addr) *groupAddr {
	g.lock.Lock()
	defer g.lock.Unlock()
	bit := uint64(1) << member
	for _, a := range g.addrs {
		if a.addr == addr && a.sharers&bit == 0 {
			a.sharers |= bit
			a.refs++
			return a
		}
	}
	for len(g.addrs) >= groupAddrsMax {
		i := slices.IndexFunc(g.addrs, func(a *groupAddr) bool { return a.refs == 0 })
		if i < 0 {
			break // as many as the members have
		}
		g.addrs = slices.Delete(g.addrs, i, i+1)
	}
	a := newGroupAddr(addr)
	a.sharers, a.refs = bit, 1
	g.addrs = append(g.addrs, a)
	return a
}

// unshareAddr is called when a member has removed the address.
func (g *Group) unshareAddr(a *groupAddr) {
	g.lock.Lock()
	defer g.lock.Unlock()
	a.refs--
	if a.refs == 0 && a.sharers == 1<<len(g.inboxes)-1 {
		g.addrs = slices.DeleteFunc(g.addrs, func(b *groupAddr) bool { return a == b })
	}
}

// enterAddr counts a connection of a, an address of ours; nil: it is none, or was given up by
// another member just now.
func (p *Poller) enterAddr(a *inet.Addr) *groupAddr {
	for i := range p.host.local {
		if l := &p.host.local[i]; l.addr == *a && l.state == AddrUsable && l.group.enter() {
			return l.group
		}
	}
	p.heedGroup()
	return nil
}

// leaveAddr is called when c needs its address no more.
func (c *Conn) leaveAddr() {
	if c.home != nil {
		c.home.leave()
		c.home = nil
	}
}

// addrNews says that another member has given an address up.
func (p *Poller) addrNews() bool {
	return p.cfg.Group != nil && p.cfg.Group.addrsGone.Load() != p.host.goneSeen
}

// heedGroup gives up the addresses that another member has given up.
func (p *Poller) heedGroup() int {
	if !p.addrNews() {
		return 0
	}
	p.host.goneSeen = p.cfg.Group.addrsGone.Load()
	work := 0
	for i := range p.host.local {
		if l := &p.host.local[i]; l.state != AddrDuplicate && l.group.gone() {
			work++
			p.giveUp(l, macOf(l.group.rival.Load()))
		}
	}
	if work > 0 {
		p.schedule()
		p.tellWaiters()
	}
	return work
}

// giveUp ends the use of l, which was given up for the whole Group, as the station at rival has it.
func (p *Poller) giveUp(l *localAddr, rival inet.MAC) {
	p.dropSynsOf(&l.addr)
	p.host.unlisten(p.now, l)
	l.state, l.step, l.defend, l.rival = AddrDuplicate, stepNone, false, rival
	p.n.AddrDuplicate++
	p.host.conflicts++
}
