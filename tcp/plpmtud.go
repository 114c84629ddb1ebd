package tcp

import "github.com/rnicd/rnicd/internal/flight"

// plpmtud finds what the path carries without the help of routers: RFC 4821, in the terms of RFC
// 8899 section 5. Its sizes are MSSs, so that IP's and TCP's fixed headers are no concern of its.
// What is known to pass is Conn.limitMSS.
//
//	              one segment above the base timed out 3 times, and none as large arrived
//	            ┌─────────────────────────────────────────────┐
//	            │                                             ▼   probe acknowledged: limitMSS = size
//	SEARCH COMPLETE ── found: ten minutes later ──► SEARCHING ──┐ probe lost 3 times: ceiling = size
//	            ▲                                       │ ▲       │
//	            └──── ceiling close to limitMSS ────────┘ └───────┘
//
// A probe is a segment of the stream that is larger than EMSS: Room offers it, and only if the
// caller fills it beyond EMSS is it one. Its loss says nothing about congestion (RFC 4821 section
// 7.6.1); what was in it is sent again in pieces.
type plpmtud struct {
	found    milliseconds // when there was no more to find, if complete
	ceiling  uint16       // the least that is known not to pass; 0: none
	size     uint16       // of the probe in flight, 0: none
	fellFor  uint16       // the MSS that a black hole was found with, 0: none was
	losses   uint8        // of probes of one size (PROBE_COUNT)
	complete bool         // SEARCH COMPLETE, until PMTU_RAISE_TIMER
	// timers.stalls were not the path's, and nothing above the base has arrived since
	excused bool
}

const (
	probesMax    = 3         // MAX_PROBES of RFC 8899 section 5.1.2
	baseMSS      = 1200 - 60 // BASE_PLPMTU less the headers of IPv6 and TCP
	raiseAfterMs = 600_000   // PMTU_RAISE_TIMER, and RFC 1191 section 6.3
	searchStep   = 16        // a search closer than this is not worth its probes
)

// mssMax is what link and peer would take.
func (c *Conn) mssMax() int { return int(min(c.mss, c.peerMSS)) }

// wantProbe is the MSS to probe with now, 0 for none. The largest comes first: a path that carries
// more again is mostly the old one, back as it was.
func (c *Conn) wantProbe(now int64) int {
	p := &c.mtu
	most := c.mssMax()
	if int(c.limitMSS) >= most || p.size != 0 {
		return 0
	}
	n := p.next(int(c.limitMSS), most)
	switch {
	case n != 0:
	case !p.complete:
		p.found, p.complete = millisecondsOf(now), true
	case millisecondsOf(now)-p.found >= raiseAfterMs:
		p.complete, p.ceiling = false, 0
		n = most
	}
	return n
}

// next is the next step of a search between what passes and what does not.
func (p *plpmtud) next(floor, most int) int {
	ceiling := int(p.ceiling)
	switch {
	case ceiling == 0:
		return most
	case ceiling-floor <= searchStep:
		return 0
	}
	return (floor + ceiling) / 2
}

// probeRoom is how many octets a probe may carry now, 0 for none. It goes only while all is well
// and windows have room: its loss must be told from congestion, and must be found by what is sent
// around it. A sender that always fills its windows would never have that room: wait says that a
// round trip without new segments will make it.
func (c *Conn) probeRoom(now int64) (n int, wait bool) {
	if int(c.limitMSS) >= c.mssMax() || !c.useSACK || c.recovery.phase != phaseOpen ||
		c.sent.lost > 0 || c.due&dueLossProbe != 0 {
		return 0, false
	}
	n = c.wantProbe(now) - c.optionsLen()
	if n <= c.EMSS() || min(c.cong.Cwnd, int(c.sndWnd)) < n+2*c.EMSS() {
		return 0, false
	}
	if !c.cwndAdmits(n) || int(c.sndWnd)-c.flight() < n {
		return 0, c.flight() > 0
	}
	return n, false
}

// probeCarries says whether a probe may carry n octets now.
func (c *Conn) probeCarries(now int64, n int) bool {
	probe, _ := c.probeRoom(now)
	return n <= probe
}

// probePushed takes note of a segment beyond EMSS.
func (c *Conn) probePushed(n int) { c.mtu.size = uint16(n + c.optionsLen()) }

// probeArrived: the path carries r (RFC 8899 section 5.3), which tells so once, also should the
// peer renege on it. cwnd stays what it is in octets.
func (c *Conn) probeArrived(r *record) {
	r.flags &^= recProbe
	c.limitMSS = c.mtu.size
	c.mtu.size, c.mtu.losses = 0, 0
	c.setEMSS()
	c.events |= EvRoom
}

// probeFailed takes r, which is to be sent again, for a probe that did not arrive. One loss may be
// the network's; probesMax of them are the size's.
func (c *Conn) probeFailed(r *record) {
	p := &c.mtu
	if p.losses++; p.losses >= probesMax {
		p.losses, p.ceiling = 0, p.size
	}
	c.probeWithdrawn(r)
}

// probeWithdrawn makes r a segment as any other, if it is a probe.
func (c *Conn) probeWithdrawn(r *record) {
	if r.flags&recProbe != 0 {
		r.flags &^= recProbe
		c.mtu.size = 0
	}
}

// restartSearch begins again: what is known of the path has changed, and a probe that is queued or
// in flight becomes a segment as any other. Its arrival would tell of the path there was.
func (c *Conn) restartSearch(ceiling int) {
	for i := c.sent.una; i != c.sent.end && c.mtu.size != 0; i++ {
		c.probeWithdrawn(c.sent.rec(i))
	}
	c.mtu, c.timers.stalls = plpmtud{ceiling: uint16(ceiling)}, 0
}

// blackHole handles a timeout of the oldest segment. When it is one too many, the path swallows
// large segments without a word (RFC 8899 section 4.3): EMSS falls to the base, and is searched for
// from there. Without SACK there are no probes (probeRoom), and it stays.
//
// Not if a segment as large, of those sent after it, has arrived: then it is this one segment that
// does not pass, and it alone is cut. Should the path have become smaller just then, the next
// segment to stall tells.
func (c *Conn) blackHole() {
	r := c.sent.rec(c.sent.una)
	p := &c.mtu
	if int(r.len)+c.optionsLen() <= baseMSS || c.limitMSS <= baseMSS {
		return
	}
	if c.timers.stalls++; c.timers.stalls < probesMax {
		return
	}
	if !p.excused && c.sackedAsLarge(r.len) {
		p.excused = true
		c.probeWithdrawn(r)
		n := baseMSS - c.optionsLen()
		for i := c.sent.una; int(c.sent.rec(i).len) > n && c.sent.splittable(); i++ {
			i = c.sent.split(i, n)
		}
		return
	}
	c.stats.blackHoles.one()
	c.mem.totals.BlackHoles++
	was := c.limitMSS
	c.restartSearch(0)
	p.fellFor = was
	c.limitMSS = baseMSS
	c.setEMSS()
	c.Record(flight.BlackHole, uint64(c.EMSS()), 0)
	c.loseOversize()
}

// sackedAsLarge says whether the peer holds a segment of n octets or more.
func (c *Conn) sackedAsLarge(n int32) bool {
	for i := c.sent.una; i != c.sent.nxt; i++ {
		if r := c.sent.rec(i); r.flags&recSacked != 0 && r.len >= n {
			return true
		}
	}
	return false
}

// largeArrived takes note that r, which is above the base, has arrived, and was sent once. ahead:
// the peer said so in a SACK, while octets before it were missing. If a black hole was found
// meanwhile, there is none: what stalled was first sent before r. An ACK of all octets up to r
// tells nothing: r may have arrived long ago, before the path changed, and waited for octets that
// came in smaller segments.
func (c *Conn) largeArrived(r *record, ahead bool) {
	p := &c.mtu
	p.excused = false
	if size := uint16(int(r.len) + c.optionsLen()); ahead && p.fellFor != 0 && size > c.limitMSS {
		c.limitMSS = min(size, p.fellFor)
		c.restartSearch(0)
		c.setEMSS()
		c.events |= EvRoom
	}
}
