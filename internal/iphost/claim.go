package iphost

import (
	"encoding/binary"
	"math"

	"github.com/rnicd/rnicd/internal/inet"
)

// An address is claimed before it is used, and defended afterwards: RFC 5227 for IPv4, RFC 4862
// section 5.4 for IPv6. docs/adr/0016-addresses-on-the-link.md says why it is so.

// State is the result of duplicate address detection for an address of ours.
//
//	          nobody objected: announced
//	Tentative ──────────────────────────▶ Usable ──┐ LinkUp: probed again while
//	   │ somebody has it                   │   ▲   │ it is used, then announced
//	   ▼                somebody has it,   │   └───┘
//	Duplicate ◀────────────────────────────┘
//	             and no connection uses it
//
// With Config.NoDAD an address is Usable from the start.
type State uint8

const (
	Tentative State = iota // being checked: not used yet
	Usable
	Duplicate // another host has it: not used, for good
)

// step is what comes next for an address.
//
//	stepProbe ──last probe──▶ stepSettle ──no objection──▶ stepAnnounce ──last one──▶ stepNone
type step uint8

const (
	stepNone step = iota
	stepProbe
	stepSettle // the last probe has been sent
	stepAnnounce
)

// The numbers of RFC 5227 section 1.1 and of RFC 4861 section 10.
const (
	announceMax4 = 2           // ANNOUNCE_NUM
	announceNs4  = 2 * second  // ANNOUNCE_INTERVAL
	announceMax6 = 3           // MAX_NEIGHBOR_ADVERTISEMENT, Neighbours.RetransNs apart
	defendNs     = 10 * second // DEFEND_INTERVAL
	conflictsMax = 10          // MAX_CONFLICTS
	probeLimitNs = 60 * second // RATE_LIMIT_INTERVAL
)

const (
	announceGapNs = second / 100 // between any two (RFC 4861 section 7.2.6: "a small delay")
	linkUpNs      = second       // of several LinkUps within it the last takes effect
	retryNs       = second / 100 // until a frame that found no room is tried again
)

// claimTimes is how long duplicate address detection takes.
type claimTimes struct {
	waitNs       int64 // before the first probe, at random from 0: PROBE_WAIT
	probes       int   // PROBE_NUM
	minNs, maxNs int64 // between probes, at random: PROBE_MIN, PROBE_MAX
	settleNs     int64 // after the last: ANNOUNCE_WAIT
}

var (
	times5227 = claimTimes{
		waitNs: second, probes: 3, minNs: second, maxNs: 2 * second, settleNs: 2 * second,
	}
	// MAX_RTR_SOLICITATION_DELAY, RetransTimer
	times4862  = claimTimes{waitNs: second, probes: 1, settleNs: second}
	timesQuick = claimTimes{
		probes: 3, minNs: second / 20, maxNs: second / 10, settleNs: second / 10,
	}
)

func (h *Host) claimTimes(a *inet.Addr) *claimTimes {
	switch {
	case h.cfg.QuickDAD:
		return &timesQuick
	case a.Is4():
		return &times5227
	}
	return &times4862
}

// claim begins the checks of an address, or with NoDAD its announcements, at the earliest at now.
func (h *Host) claim(now int64, l *Address) {
	l.sent = 0
	if h.cfg.NoDAD {
		h.listen(now, l)
		l.step, l.at = stepAnnounce, now
		if h.cfg.NoAnnounce {
			l.step = stepNone
		}
		return
	}
	l.step, l.at = stepProbe, now+h.draw(l, 0, h.claimTimes(&l.Addr).waitNs)
}

// draw is a random time from lo to hi.
func (h *Host) draw(l *Address, lo, hi int64) int64 {
	h.draws++
	at := h.cfg.Random(binary.BigEndian.AppendUint64(l.Addr[:], h.draws))
	return lo + int64(at%uint64(hi-lo+1))
}

// LinkUp says that the device has been connected: a cable, a bridge. RFC 5227 section 2.1: "when a
// link-state change signals that an Ethernet cable has been connected", an address is probed as if
// it were new, while it is used where it was in use.
func (h *Host) LinkUp(now int64) {
	h.n.LinkUps++
	if !h.linkUps.want(now, linkUpNs) {
		h.n.AnnounceLimited++
		return
	}
	h.schedule(now)
}

// stepAddrs takes the steps that are due.
func (h *Host) stepAddrs(now int64) (work int) {
	if h.linkUps.due(now) {
		work++
		for i := range h.addrs {
			if l := &h.addrs[i]; l.State != Duplicate {
				h.claim(now, l)
			}
		}
		h.renew(now)
	}
	for i := range h.addrs {
		l := &h.addrs[i]
		if l.defend && h.quietTo <= now {
			work++
			if l.defend = !h.announce(now, l); !l.defend && h.speaks() {
				h.n.AddrDefended++
			}
		}
		if l.step != stepNone && h.stepAt(l) <= now {
			work++
			h.takeStep(now, l)
		}
	}
	if work > 0 {
		h.news |= AddrChanged
	}
	return work
}

// takeStep takes the step of l that is due.
func (h *Host) takeStep(now int64, l *Address) {
	t := h.claimTimes(&l.Addr)
	switch l.step {
	case stepProbe:
		if l.sent == 0 { // RFC 4862 section 5.4.2: joined before, with the same delay
			h.listen(now, l)
			h.tellListening(now)
		}
		if !h.probe(now, l) {
			l.at = now + retryNs
			return
		}
		if l.sent++; l.sent < t.probes {
			l.at = now + h.draw(l, t.minNs, t.maxNs)
			return
		}
		l.step, l.at = stepSettle, now+t.settleNs
	case stepSettle: // no host has objected
		l.step, l.sent, l.at = stepAnnounce, 0, now
		if h.cfg.NoAnnounce {
			l.step = stepNone
			h.use(now, l)
		} else if h.stepAt(l) <= now {
			h.takeStep(now, l)
		}
	case stepAnnounce:
		times, interval := announceMax4, announceNs4
		if !l.Addr.Is4() {
			times, interval = announceMax6, h.neighbours.RetransNs()
		}
		switch {
		case now < l.saidAt+interval:
			l.at = l.saidAt + interval
			return
		case !h.announce(now, l):
			l.at = now + retryNs
			return
		}
		h.use(now, l)
		l.at = now + interval
		if l.sent++; l.sent == times {
			l.step = stepNone
		}
	}
}

// use makes l ours. "The host may begin legitimately using the IP address immediately after sending
// the first of the two ARP Announcements" (RFC 5227 section 2.3).
func (h *Host) use(now int64, l *Address) {
	l.State = Usable
	if !l.Addr.Is4() && h.cfg.Discover && h.rsAt == math.MaxInt64 && h.rsSent == 0 {
		h.rsAt = now
	}
}

// probe asks the link for l from no address, so that no station learns from it (RFC 5227 section
// 2.1.1, RFC 4862 section 5.4.2).
func (h *Host) probe(now int64, l *Address) bool {
	if !h.speaks() {
		return true
	}
	l.shared.probedAt.Store(now)
	if !l.Addr.Is4() {
		return h.solicit(now, inet.Addr{}, l.Addr, inet.Broadcast)
	}
	a := inet.ProbeARP(h.cfg.MAC, l.Addr)
	if !h.sendARP(&a, inet.Broadcast) {
		return false
	}
	h.n.ARPProbes++
	return true
}

// announce tells the link that l is here (RFC 5227 section 2.3, RFC 4861 section 7.2.6).
func (h *Host) announce(now int64, l *Address) bool {
	if h.speaks() {
		sent := false
		if l.Addr.Is4() {
			h.claims(now, &l.Addr)
			a := inet.AnnounceARP(h.cfg.MAC, l.Addr)
			sent = h.sendARP(&a, inet.Broadcast)
		} else {
			sent = h.advertise(now, l.Addr, inet.AllNodes, inet.AllNodes.GroupMAC())
		}
		if !sent {
			return false
		}
		h.n.Announcements++
	}
	l.saidAt, h.quietTo = now, now+announceGapNs
	return true
}

// conflict is called when the station at mac takes l for its own. Found by a probe it is not used,
// unless it was in use before and a connection needs it (RFC 5227 section 2.4: "active TCP
// connections or other reasons to prefer to keep"), be it another Host's.
func (h *Host) conflict(now int64, l *Address, mac inet.MAC) {
	h.n.AddrConflicts++
	l.Conflicts++
	l.Rival = mac
	probing := l.step == stepProbe || l.step == stepSettle
	if l.shared.isGone() || (l.State == Tentative || probing) && l.shared.giveUp(mac) {
		if h.cfg.Shared != nil {
			h.cfg.Shared.gone.Add(1)
			h.news |= AddrGivenUp
		}
		h.giveUp(now, l, mac)
		h.schedule(now)
		return
	}
	if probing && l.State == Usable {
		l.step = stepNone // answered: it is kept
	}
	h.defend(now, l)
}

// defend answers a station that claims l with one announcement in DEFEND_INTERVAL: RFC 5227 section
// 2.4 (c), as our addresses are configured, and no server would give us another.
func (h *Host) defend(now int64, l *Address) {
	if now-l.defendedAt < defendNs {
		h.n.DefenceLimited++
	} else {
		l.defendedAt, l.defend = now, true
	}
	h.schedule(now)
}
