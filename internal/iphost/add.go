package iphost

import (
	"fmt"
	"math"
	"net/netip"
	"slices"

	"github.com/rnicd/rnicd/internal/inet"
)

// Add adds an address with its prefix, which is on the link: it is checked, announced and then
// used. With the first one of IPv6 comes a link-local one. Errors: no unicast address, ours
// already, too many.
func (h *Host) Add(now int64, prefix netip.Prefix) error {
	if err := h.cfg.checkAddr(prefix); err != nil {
		return err
	}
	added := []netip.Prefix{prefix}
	if !h.ip6 {
		added = WithLinkLocal(added, h.cfg.MAC)
	}
	a := inet.AddrFrom(prefix.Addr())
	switch {
	case h.index(a) >= 0:
		return fmt.Errorf("address %v is ours already", prefix.Addr())
	case len(h.addrs)+len(added) > Max:
		return fmt.Errorf("address %v: %d addresses are all there can be", prefix.Addr(), Max)
	case h.routes.Room() < len(added): // all of them or none
		return fmt.Errorf("address %v: %d routes are all there can be", prefix.Addr(), inet.RoutesMax)
	}
	for _, x := range added {
		h.add(now, x)
	}
	h.schedule(now)
	return nil
}

func (h *Host) add(now int64, prefix netip.Prefix) {
	h.routes.Add(inet.Route{Prefix: prefix.Masked()})
	a := Address{
		Addr: inet.AddrFrom(prefix.Addr()), bits: prefix.Bits(), saidAt: never, defendedAt: never,
	}
	if h.cfg.Shared != nil {
		a.shared = h.cfg.Shared.enter(h.cfg.Member, a.Addr)
	} else {
		a.shared = newSharedAddr(a.Addr)
	}
	if a.Addr.Is4() {
		a.bits += 96
		a.broadcast = subnetBroadcast(prefix)
	} else {
		h.ip6 = true
		if h.cfg.NoDAD && h.cfg.Discover && h.rsSent == 0 {
			h.rsAt = now + h.draw(&a, 0, rsDelayNs)
		}
	}
	if h.cfg.NoDAD {
		a.State = Usable
	} else if h.conflicts >= conflictsMax {
		// RFC 5227 section 2.1.1: "no more than one attempted new address per RATE_LIMIT_INTERVAL"
		now = max(now, h.claimedAt+probeLimitNs)
	}
	h.claimedAt = now
	h.claim(now, &a)
	h.addrs = append(h.addrs, a)
	h.goneSeen-- // another Host may have given it up: look once
}

// CanRemove says whether addr is an address of ours, and not the first, which stays.
func (h *Host) CanRemove(addr inet.Addr) bool { return h.index(addr) > 0 }

func (h *Host) index(addr inet.Addr) int {
	return slices.IndexFunc(h.addrs, func(a Address) bool { return a.Addr == addr })
}

// Remove takes an address away that CanRemove. The caller has ended what uses it.
func (h *Host) Remove(now int64, addr inet.Addr) {
	i := h.index(addr)
	h.unlisten(now, &h.addrs[i])
	a := h.addrs[i]
	if h.cfg.Shared != nil {
		h.cfg.Shared.leave(a.shared)
	}
	h.addrs = slices.Delete(h.addrs, i, i+1)
	h.routes.Remove(a.Addr, a.bits) // its own: another address of the network has another
	if h.ip6 && !slices.ContainsFunc(h.addrs, func(a Address) bool { return !a.Addr.Is4() }) {
		h.ip6 = false
		h.rsAt, h.rsSent = math.MaxInt64, 0
	}
	h.reroutes.want(now, rerouteNs)
	h.news |= AddrChanged
	h.schedule(now)
}
