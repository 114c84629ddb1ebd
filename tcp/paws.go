package tcp

// paws is what RFC 7323 section 5 compares timestamps with. While nothing is missing it is
// TS.Recent. While something is, it is TS.Recent of before: what is sent again to fill the gap
// carries a later timestamp than segments to the right of it that are still under way, and to the
// letter of section 5.3 each of those that a link has delayed by a tick would be dropped as old, be
// taken for lost, and be sent again in front of others. Such losses keep themselves going.
//
// It stays as safe: a segment of 2^32 octets ago that lies in the window (2^30 at most) was sent 3
// * 2^30 octets before the left edge, and what it is compared with is not further before that than
// 2^30. Between the two the peer's clock ticks (section 5.4).
type paws struct {
	guard     uint32
	since     seconds // when guard was last known to be current
	mark      uint32
	markedOff uint32 // mark was TS.Recent when the left edge was here, modulo 2^32
}

// pawsMarkEvery is how many octets the left edge moves, always with a gap after it, before the
// guard follows: to TS.Recent as it was so many octets ago.
const pawsMarkEvery = 1 << 29

func (p *paws) start(now int64, ts uint32) { *p = paws{guard: ts, since: secondsOf(now), mark: ts} }

// old says that ts is of a segment to drop.
func (p *paws) old(now int64, ts uint32) bool { return int32(ts-p.guard) < 0 && !p.expired(now) }

// expired is section 5.5.
func (p *paws) expired(now int64) bool { return int32(secondsOf(now)-p.since) >= paws24DaysS }

// takeTimestamp makes ts TS.Recent, unless that is later (RFC 7323 section 4.3).
func (c *Conn) takeTimestamp(now int64, ts uint32) {
	if int32(ts-c.tsRecent) < 0 && !c.paws.expired(now) {
		return
	}
	c.tsRecent = ts
	c.paws.advance(now, ts, c.edge, len(c.held.spans) > 0)
}

// advance takes note that TS.Recent is ts, with the left edge at edge and a gap after it or none.
func (p *paws) advance(now int64, ts uint32, edge uint64, gap bool) {
	switch {
	case !gap:
		p.guard, p.mark, p.markedOff = ts, ts, uint32(edge)
	case uint32(edge)-p.markedOff >= pawsMarkEvery:
		p.guard, p.mark, p.markedOff = p.mark, ts, uint32(edge)
	}
	p.since = secondsOf(now)
}
