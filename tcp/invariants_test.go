package tcp

import "fmt"

// broken recomputes everything that a Conn keeps incrementally, the naive way, and says what does not agree.
func (c *Conn) broken() error {
	s := &c.sent
	if s.una-s.rel > s.nxt-s.rel || s.nxt-s.rel > s.end-s.rel || int(s.end-s.rel) > len(s.recs) {
		return fmt.Errorf("ring order: rel %d una %d nxt %d end %d", s.rel, s.una, s.nxt, s.end)
	}
	if c.state == Closed {
		return nil
	}
	if c.sndUna > c.sndNxt || c.sndNxt > c.sndMax || c.sndMax > c.sndNxt+1 {
		return fmt.Errorf("una %d nxt %d max %d", c.sndUna, c.sndNxt, c.sndMax)
	}
	at, sacked, lost, resent, pipe := c.sndUna, 0, 0, 0, 0
	for i := s.una; i != s.end; i++ {
		r := s.rec(i)
		if r.at != at || r.seqLen() < 1 {
			return fmt.Errorf("record %d at %d length %d, want at %d", i-s.rel, r.at, r.seqLen(), at)
		}
		at = r.endAt()
		if i-s.rel >= s.nxt-s.rel {
			if r.flags&(recSacked|recLost|recResent) != 0 {
				return fmt.Errorf("unsent record with flags %#x", r.flags)
			}
			continue
		}
		switch r.flags & (recSacked | recLost | recResent) {
		case recSacked:
			sacked += r.seqLen()
		case recLost:
			lost += r.seqLen()
			if r.at < c.recovery.resendFrom {
				return fmt.Errorf("lost record at %d before resendFrom %d", r.at, c.recovery.resendFrom)
			}
		case recResent:
			resent++
			pipe += r.seqLen()
		case 0:
			pipe += r.seqLen()
		default:
			return fmt.Errorf("record with flags %#x", r.flags)
		}
		if i+1 == s.nxt && at != c.sndNxt {
			return fmt.Errorf("last record in flight ends at %d, SND.NXT is %d", at, c.sndNxt)
		}
	}
	if sacked != s.sacked || lost != s.lost || resent != s.resent || pipe != c.pipe() {
		return fmt.Errorf("counts: sacked %d lost %d resent %d pipe %d, recomputed %d %d %d %d",
			s.sacked, s.lost, s.resent, c.pipe(), sacked, lost, resent, pipe)
	}
	end := c.pushed
	if c.finQueued && c.state.synchronized() {
		end++
	}
	if c.state.synchronized() && s.una != s.end && at != end {
		return fmt.Errorf("records end at %d, pushed %d", at, end)
	}
	if c.edge > c.rcvAdv && c.state.synchronized() {
		return fmt.Errorf("edge %d beyond advertised %d", c.edge, c.rcvAdv)
	}
	left := c.edge
	for i, h := range c.held.spans {
		if h.left <= left || h.right <= h.left || h.right > c.rcvAdv {
			return fmt.Errorf("span %d [%d,%d) after %d, advertised %d", i, h.left, h.right, left, c.rcvAdv)
		}
		left = h.right
	}
	if c.outstanding() && c.due == 0 && c.sent.una != c.sent.nxt && c.timers.rtxAt == never {
		return fmt.Errorf("%v: in flight and no timer", c.state)
	}
	return nil
}
