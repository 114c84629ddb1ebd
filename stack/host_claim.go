package stack

import (
	"encoding/binary"
	"math"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// An address is claimed before it is used, and defended afterwards: RFC 5227 for IPv4, RFC 4862
// section 5.4 for IPv6.
//
//	             nobody objected: announced
//	 AddrTentative ──────────────────────────▶ AddrUsable ──┐ LinkUp: probed again while
//	    │ somebody has it                        │    ▲     │ it is used, then announced
//	    ▼                     somebody has it,   │    └─────┘
//	 AddrDuplicate ◀─────────────────────────────┘
//	                  and no connection uses it
//
// With Config.NoDAD an address is AddrUsable from the start. docs/adr/0016-addresses-on-the-link.md
// says why it is so.

// The numbers of RFC 5227 section 1.1 and of RFC 4861 section 10.
const (
	announceMax4 = 2            // ANNOUNCE_NUM
	announceNs4  = 2 * second64 // ANNOUNCE_INTERVAL
	announceMax6 = 3            // MAX_NEIGHBOR_ADVERTISEMENT, Neighbours.RetransNs apart
	defendNs     = 10 * second64
	conflictsMax = 10            // MAX_CONFLICTS
	probeLimitNs = 60 * second64 // RATE_LIMIT_INTERVAL
)

const (
	// between any two announcements (RFC 4861 section 7.2.6: "a small delay")
	announceGapNs = second64 / 100
	linkUpNs      = second64       // of several LinkUps within it the last takes effect
	claimRetryNs  = second64 / 100 // until a frame that found no Buf, or no room, is tried again
)

// claimTimes is how long duplicate address detection takes.
type claimTimes struct {
	waitNs       int64 // before the first probe, at random from 0: PROBE_WAIT
	probes       int   // PROBE_NUM
	minNs, maxNs int64 // between probes, at random: PROBE_MIN, PROBE_MAX
	settleNs     int64 // after the last: ANNOUNCE_WAIT
}

var (
	times5227 = claimTimes{waitNs: second64, probes: 3, minNs: second64, maxNs: 2 * second64,
		settleNs: 2 * second64}
	// MAX_RTR_SOLICITATION_DELAY, RetransTimer
	times4862  = claimTimes{waitNs: second64, probes: 1, settleNs: second64}
	timesQuick = claimTimes{probes: 3, minNs: second64 / 20, maxNs: second64 / 10,
		settleNs: second64 / 10}
)

func (cfg *Config) claimTimes(a *inet.Addr) *claimTimes {
	switch {
	case cfg.QuickDAD:
		return &timesQuick
	case a.Is4():
		return &times5227
	}
	return &times4862
}

// AddrState is the result of duplicate address detection for an address of ours.
type AddrState uint8

const (
	AddrTentative AddrState = iota // being checked: not used yet
	AddrUsable
	AddrDuplicate // another host has it: not used, for good
)

// claimStep is what comes next for an address.
type claimStep uint8

const (
	stepNone claimStep = iota
	stepProbe
	stepSettle // the last probe has been sent
	stepAnnounce
)

// localAddr is an address of ours.
type localAddr struct {
	addr      inet.Addr
	bits      int // of its on-link prefix, in the 128-bit form
	broadcast inet.Addr
	state     AddrState
	group     *groupAddr // what other members have to know of it

	listening bool // to its solicited-node group, and its Listener knows

	step   claimStep
	at     int64 // when step is due
	sent   int   // probes, or announcements, of this step
	saidAt int64 // the last announcement

	defend     bool  // an announcement is owed to a station that claims it
	defendedAt int64 // the conflict that was last answered
	conflicts  uint64
	rival      inet.MAC // of the station that claimed it last
}

// never stands for the time of what has not happened.
const never = math.MinInt64 / 2

// claim begins the checks of an address, or with NoDAD its announcements, at the earliest at now.
func (h *hostState) claim(cfg *Config, now int64, s *secret, l *localAddr) {
	l.sent = 0
	if cfg.NoDAD {
		h.listen(cfg, now, l)
		l.step, l.at = stepAnnounce, now
		if cfg.NoAnnounce {
			l.step = stepNone
		}
		return
	}
	l.step, l.at = stepProbe, now+h.draw(s, l, 0, cfg.claimTimes(&l.addr).waitNs)
}

// draw is a random time from lo to hi.
func (h *hostState) draw(s *secret, l *localAddr, lo, hi int64) int64 {
	h.draws++
	return lo +
		int64(s.prf(useDelay, binary.BigEndian.AppendUint64(l.addr[:], h.draws))%uint64(hi-lo+1))
}

func (p *Poller) linkUp() {
	p.n.LinkUps++
	h := &p.host
	if h.linkAt != math.MaxInt64 {
		p.n.Own[DropAnnounceLimited]++
		return
	}
	h.linkAt = max(p.now, h.linkedAt+linkUpNs)
	p.schedule()
}

// checkAddrs takes the steps that are due.
func (p *Poller) checkAddrs() int {
	work := 0
	h := &p.host
	if h.linkAt <= p.now {
		work++
		p.checkAgain()
	}
	for i := range h.local {
		l := &h.local[i]
		if l.defend && h.quietTo <= p.now {
			work++
			if l.defend = !p.announce(l); !l.defend && p.speaks() {
				p.n.AddrDefended++
			}
		}
		if l.step != stepNone && p.stepAt(l) <= p.now {
			work++
			p.takeStep(l)
		}
	}
	if work > 0 {
		p.tellWaiters()
	}
	return work
}

// checkAgain is what a LinkUp asks for. RFC 5227 section 2.1: "when a link-state change signals
// that an Ethernet cable has been connected", an address is probed as if it were new.
func (p *Poller) checkAgain() {
	h := &p.host
	h.linkAt, h.linkedAt = math.MaxInt64, p.now
	for i := range h.local {
		if l := &h.local[i]; l.state != AddrDuplicate {
			h.claim(&p.cfg, p.now, &p.secret, l)
		}
	}
}

// takeStep takes the step of l that is due.
func (p *Poller) takeStep(l *localAddr) {
	t := p.cfg.claimTimes(&l.addr)
	switch l.step {
	case stepProbe:
		if l.sent == 0 { // RFC 4862 section 5.4.2: joined before, with the same delay
			p.host.listen(&p.cfg, p.now, l)
			p.tellListening()
		}
		if !p.probe(l) {
			l.at = p.now + claimRetryNs
			return
		}
		if l.sent++; l.sent < t.probes {
			l.at = p.now + p.host.draw(&p.secret, l, t.minNs, t.maxNs)
			return
		}
		l.step, l.at = stepSettle, p.now+t.settleNs
	case stepSettle: // no host has objected
		l.step, l.sent, l.at = stepAnnounce, 0, p.now
		if p.cfg.NoAnnounce {
			l.step = stepNone
			p.use(l)
		} else if p.stepAt(l) <= p.now {
			p.takeStep(l)
		}
	case stepAnnounce:
		times, interval := announceMax4, int64(announceNs4)
		if !l.addr.Is4() {
			times, interval = announceMax6, p.neighbours.RetransNs()
		}
		switch {
		case p.now < l.saidAt+interval:
			l.at = l.saidAt + interval
			return
		case !p.announce(l):
			l.at = p.now + claimRetryNs
			return
		}
		p.use(l)
		l.at = p.now + interval
		if l.sent++; l.sent == times {
			l.step = stepNone
		}
	}
}

// use makes l ours. "The host may begin legitimately using the IP address immediately after sending
// the first of the two ARP Announcements" (RFC 5227 section 2.3).
func (p *Poller) use(l *localAddr) {
	l.state = AddrUsable
	if !l.addr.Is4() && p.cfg.Discover && p.host.rsAt == math.MaxInt64 && p.host.rsSent == 0 {
		p.host.rsAt = p.now
	}
}

// probe asks the link for l from no address, so that no station learns from it (RFC 5227 section
// 2.1.1, RFC 4862 section 5.4.2).
func (p *Poller) probe(l *localAddr) bool {
	if !p.speaks() {
		return true
	}
	if !l.addr.Is4() {
		l.group.probedAt.Store(p.now)
		return p.solicit(inet.Addr{}, l.addr, inet.Broadcast)
	}
	l.group.probedAt.Store(p.now)
	a := inet.ProbeARP(p.mac, l.addr)
	if !p.sendARP(&a, inet.Broadcast) {
		return false
	}
	p.n.ARPProbes++
	return true
}

// announce tells the link that l is here (RFC 5227 section 2.3, RFC 4861 section 7.2.6).
func (p *Poller) announce(l *localAddr) bool {
	if p.speaks() {
		sent := false
		if l.addr.Is4() {
			p.claims(&l.addr)
			a := inet.AnnounceARP(p.mac, l.addr)
			sent = p.sendARP(&a, inet.Broadcast)
		} else {
			sent = p.advertise(l.addr, inet.AllNodes, inet.AllNodes.GroupMAC())
		}
		if !sent {
			return false
		}
		p.n.Announcements++
	}
	l.saidAt, p.host.quietTo = p.now, p.now+announceGapNs
	return true
}

// advertise sends a Neighbour Advertisement for target, which is ours: an answer, or to all nodes.
// False: there was no Buf or no room.
func (p *Poller) advertise(target, to inet.Addr, mac inet.MAC) bool {
	p.claims(&target)
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		p.n.Own[DropNoBuf]++
		return false
	}
	n := inet.PutNeighbourAdvertisement(p.pool.Slot(b)[p.pool.Headroom():], p.mac, target, to, target)
	p.putPacket(b, &target, &to, inet.ProtoICMPv6, 0, ndHopLimit, n)
	if !p.reply(b, mac) {
		p.discard(b)
		return false
	}
	return true
}

// conflict is called when the station at mac takes l for its own. Found by a probe it is not used,
// unless it was in use before and a connection needs it (RFC 5227 section 2.4: "active TCP
// connections or other reasons to prefer to keep"), be it another member's of the Group.
func (p *Poller) conflict(l *localAddr, mac inet.MAC) {
	p.n.AddrConflicts++
	l.conflicts++
	l.rival = mac
	probing := l.step == stepProbe || l.step == stepSettle
	if l.group.gone() || (l.state == AddrTentative || probing) && l.group.giveUp(mac) {
		if p.cfg.Group != nil {
			p.cfg.Group.addrsGone.Add(1)
			p.cfg.Group.rouseAll()
		}
		p.giveUp(l, mac)
		p.schedule()
		p.tellWaiters()
		return
	}
	if probing && l.state == AddrUsable {
		l.step = stepNone // answered: it is kept
	}
	p.defend(l)
}

// defend answers a station that claims l with one announcement in DEFEND_INTERVAL: RFC 5227 section
// 2.4 (c), as our addresses are configured, and no server would give us another.
func (p *Poller) defend(l *localAddr) {
	if p.now-l.defendedAt < defendNs {
		p.n.Own[DropDefenceLimited]++
	} else {
		l.defendedAt, l.defend = p.now, true
	}
	p.schedule()
}
