package tcp

// synAgain is whether our first SYN is sent again because the peer took it for one of an old
// connection: resetOldPeer.
type synAgain uint8

const (
	synAgainNot synAgain = iota
	synAgainDue          // at rtxAt
	synAgainDone
)

// synAgainMinNs is the least time between the RST and that SYN, as Linux has it (TCP_TIMEOUT_MIN).
const synAgainMinNs = 2_000_000

// resetOldPeer answers s, by which a peer that still has an old connection acknowledges what that
// one had sent (RFC 9293 section 3.5.1, figure 9; RFC 5961 section 4.2): a RST ends the old
// connection. Our SYN was dropped by the peer, not lost, so nothing is learned from waiting for an
// RTO (RFC 6298 section 5 is about that timer): it is sent again as soon as the RST is likely to be
// there first. A quarter of a round trip is what RACK allows for reordering (RFC 8985 section 6.2).
// As anybody may send s who guesses our port, that is done once.
func (c *Conn) resetOldPeer(now int64, s *Segment) {
	c.oweReset(s)
	if t := &c.timers; t.synSends == 1 && t.synAgain == synAgainNot && t.rtxAt != never {
		t.synAgain = synAgainDue
		t.rtxAt = min(t.rtxAt, now+max(synAgainMinNs, (now-t.sentAt)/4))
	}
}
