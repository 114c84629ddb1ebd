package iphost

import (
	"slices"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/inet"
)

// Shared is the addresses that several Hosts have in common, one for each queue of a port. An
// address of theirs is one address, so whether it is kept is one decision for all of them.
type Shared struct {
	members int
	mu      sync.Mutex
	addrs   []*SharedAddr
	gone    atomic.Uint32 // how many were given up
}

// NewShared is for so many Hosts.
func NewShared(members int) *Shared { return &Shared{members: members} }

// SharedAddr is what all Hosts know of one of their addresses. A Host without a Shared has one of
// its own. Any goroutine.
type SharedAddr struct {
	users atomic.Int64  // connections, those of TIME-WAIT not counted; below 0: it was given up
	rival atomic.Uint64 // the MAC of the host that has it, then

	claimedAt atomic.Int64 // when an ARP packet, or a message of ND, was last sent from it
	probedAt  atomic.Int64 // or a probe for it

	// Under Shared.mu.
	addr    inet.Addr
	sharers uint64 // Hosts that have ever had it, a bit each
	refs    int    // that have it
}

func newSharedAddr(addr inet.Addr) *SharedAddr {
	a := &SharedAddr{addr: addr}
	a.claimedAt.Store(never)
	a.probedAt.Store(never)
	return a
}

// givenUp is what users begins from when the address was given up.
const givenUp = -1 << 62

// Use counts a connection from a, an address of ours, until its Leave; nil: it is none, or was
// given up by another Host just now.
func (h *Host) Use(now int64, a *inet.Addr) *SharedAddr {
	for i := range h.addrs {
		if l := &h.addrs[i]; l.Addr == *a && l.State == Usable && l.shared.use() {
			return l.shared
		}
	}
	h.Heed(now)
	return nil
}

func (a *SharedAddr) use() bool {
	if a.users.Add(1) > 0 {
		return true
	}
	a.users.Add(-1)
	return false
}

// Users is how many connections use the address; below 0: it was given up.
func (a *SharedAddr) Users() int64 { return a.users.Load() }

// Leave undoes a Use.
func (a *SharedAddr) Leave() { a.users.Add(-1) }

// giveUp gives the address up because the station at mac has it, unless a connection uses it. It
// returns whether it is given up, by this call or before.
func (a *SharedAddr) giveUp(mac inet.MAC) bool {
	if a.users.CompareAndSwap(0, givenUp) {
		a.rival.Store(macWord(mac))
	}
	return a.isGone()
}

func (a *SharedAddr) isGone() bool { return a.Users() < 0 }

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

// sharedMax bounds the addresses that no Host has any more and some never had.
const sharedMax = 4 * Max

// enter returns what member shares with the others of an address that it adds. Each Host adds and
// removes an address in its own time: its n-th time is the n-th time of the others.
func (s *Shared) enter(member int, addr inet.Addr) *SharedAddr {
	s.mu.Lock()
	defer s.mu.Unlock()
	bit := uint64(1) << member
	for _, a := range s.addrs {
		if a.addr == addr && a.sharers&bit == 0 {
			a.sharers |= bit
			a.refs++
			return a
		}
	}
	for len(s.addrs) >= sharedMax {
		i := slices.IndexFunc(s.addrs, func(a *SharedAddr) bool { return a.refs == 0 })
		if i < 0 {
			break // as many as the Hosts have
		}
		s.addrs = slices.Delete(s.addrs, i, i+1)
	}
	a := newSharedAddr(addr)
	a.sharers, a.refs = bit, 1
	s.addrs = append(s.addrs, a)
	return a
}

// leave is called when a Host has removed the address.
func (s *Shared) leave(a *SharedAddr) {
	s.mu.Lock()
	defer s.mu.Unlock()
	a.refs--
	if a.refs == 0 && a.sharers == 1<<s.members-1 {
		s.addrs = slices.DeleteFunc(s.addrs, func(b *SharedAddr) bool { return a == b })
	}
}

// MustHeed says that another Host has given an address up.
func (h *Host) MustHeed() bool {
	return h.cfg.Shared != nil && h.cfg.Shared.gone.Load() != h.goneSeen
}

// Heed gives up the addresses that another Host has given up, and returns how many.
func (h *Host) Heed(now int64) (work int) {
	if !h.MustHeed() {
		return 0
	}
	h.goneSeen = h.cfg.Shared.gone.Load()
	for i := range h.addrs {
		if l := &h.addrs[i]; l.State != Duplicate && l.shared.isGone() {
			work++
			h.giveUp(now, l, macOf(l.shared.rival.Load()))
		}
	}
	if work > 0 {
		h.schedule(now)
	}
	return work
}

// giveUp ends the use of l, which was given up for all Hosts, as the station at rival has it.
func (h *Host) giveUp(now int64, l *Address, rival inet.MAC) {
	h.unlisten(now, l)
	l.State, l.step, l.defend, l.Rival = Duplicate, stepNone, false, rival
	h.n.AddrDuplicate++
	h.conflicts++
	h.news |= AddrChanged
}
