package engine

import (
	"net/netip"
	"slices"

	"github.com/rnicd/rnicd/rnic"
)

// View is what a program has at one moment, for those who look at it from outside.
type View struct {
	QueuePairs int      // without those for datagrams
	Datagrams  []uint32 // the numbers of those
	// where they and queue pairs by number are reached; invalid: there is none of them
	Numbered     netip.AddrPort
	Listeners    []netip.AddrPort
	Regions      int
	RegionOctets uint64
	Connections  []ViewedConnection
}

// ViewedConnection is one of a queue pair, or an attempt to have one.
type ViewedConnection struct {
	Number uint32 // of the queue pair, as the program knows it
	RNIC   *rnic.QueuePair
	Peer   netip.AddrPort // where it is not known yet, the address that the program has given
}

// RoCE says whether the device looks like one of RoCE.
func (e *Engine) RoCE() bool { return e.roce }

// View looks at the program's objects. Any goroutine. It holds up calls of the program that make or
// find objects while it does, and no requests.
func (e *Engine) View() (v View) {
	peers := map[*qp]netip.AddrPort{}
	for _, id := range e.objects.see(&v) {
		id.mu.Lock()
		if id.listening != nil && !id.over {
			v.Listeners = append(v.Listeners, id.local)
		}
		if id.qp != nil {
			peers[id.qp] = id.remote
		}
		id.mu.Unlock()
	}
	numbers := map[*qp]uint32{}
	if s := e.slotNow(); s != nil {
		v.Numbered = netip.AddrPortFrom(netip.IPv6Unspecified(), s.port())
		v.Listeners = append(v.Listeners, v.Numbered)
		v.Datagrams = s.see(numbers)
	}
	slices.SortFunc(v.Listeners, netip.AddrPort.Compare)
	for i := range e.qps {
		q := e.qps[i].Load()
		if q == nil || q.ud != nil {
			continue
		}
		v.QueuePairs++
		for _, r := range q.ends() {
			if r.State() != rnic.Idle {
				number, ok := numbers[q]
				if !ok {
					number = r.Number()
				}
				v.Connections = append(v.Connections, ViewedConnection{number, r, peers[q]})
			}
		}
	}
	return v
}

// see counts regions, and returns the ids of the connection manager, to be locked without h.
func (h *handles) see(v *View) (ids []*cmID) {
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, o := range h.all {
		switch o := o.(type) {
		case *rnic.MemoryRegion:
			v.Regions++
			v.RegionOctets += uint64(o.Len())
		case *cmID:
			ids = append(ids, o)
		}
	}
	return ids
}

// see is the numbers of queue pairs for datagrams, in order; those of others go into numbers.
func (s *slot) see(numbers map[*qp]uint32) (datagrams []uint32) {
	s.mu.RLock()
	defer s.mu.RUnlock()
	for n, q := range s.all {
		switch q := q.(type) {
		case *ud:
			datagrams = append(datagrams, n)
		case *qp:
			numbers[q] = n
		}
	}
	slices.Sort(datagrams)
	return datagrams
}

// slotNow is the slot, if one is claimed.
func (e *Engine) slotNow() *slot {
	e.slotting.Lock()
	defer e.slotting.Unlock()
	return e.slot
}
