package engine

import (
	"net/netip"
	"slices"

	"github.com/rnicd/rnicd/rnic"
)

// View is what a program has at one moment, for whoever looks at it from outside.
type View struct {
	QueuePairs, Datagrams int // the latter are those for datagrams, which are not among the former
	Listeners             []netip.AddrPort
	Regions               int
	RegionOctets          uint64
	Connections           []ViewedConnection
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
	if s := e.slotNow(); s != nil {
		v.Listeners = append(v.Listeners, netip.AddrPortFrom(netip.IPv6Unspecified(), s.port()))
	}
	slices.SortFunc(v.Listeners, netip.AddrPort.Compare)
	for i := range e.qps {
		q := e.qps[i].Load()
		switch {
		case q == nil:
			continue
		case q.ud != nil:
			v.Datagrams++
			continue
		}
		v.QueuePairs++
		for _, r := range q.ends() {
			if r.State() != rnic.Idle {
				v.Connections = append(v.Connections, ViewedConnection{q.number, r, peers[q]})
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

// slotNow is the slot, if one is claimed.
func (e *Engine) slotNow() *slot {
	e.slotting.Lock()
	defer e.slotting.Unlock()
	return e.slot
}
