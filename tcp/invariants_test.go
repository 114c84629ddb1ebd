package tcp

import (
	"fmt"
	"math"
	"reflect"
)

// broken recomputes everything that a Conn keeps incrementally, the naive way, and says what does
// not agree.
func (c *Conn) broken() error {
	s := &c.sent
	if len(s.recs) == 0 {
		if err := c.mem.idleBroken(c); err != nil {
			return err
		}
	}
	if s.una-s.rel > s.nxt-s.rel || s.nxt-s.rel > s.end-s.rel || int(s.end-s.rel) > len(s.recs) {
		return fmt.Errorf("ring order: rel %d una %d nxt %d end %d", s.rel, s.una, s.nxt, s.end)
	}
	if c.state == Closed {
		return nil
	}
	if c.sndUna > c.sndNxt || c.probed && c.sent.una == c.sent.end {
		return fmt.Errorf("una %d nxt %d, one more was sent: %v", c.sndUna, c.sndNxt, c.probed)
	}
	if err := c.brokenRecords(); err != nil {
		return err
	}
	if err := s.brokenList(); err != nil {
		return err
	}
	if err := c.brokenRecovery(); err != nil {
		return err
	}
	if err := c.brokenReceiver(); err != nil {
		return err
	}
	if c.outstanding() && c.due == 0 && c.sent.una != c.sent.nxt && c.timers.rtxAt == never {
		return fmt.Errorf("%v: in flight and no timer", c.state)
	}
	return nil
}

// recount is what a sentRing counts of the records in flight, counted from the first to the last.
type recount struct {
	sacked, lost, resent, pipe, sackedRecs int

	runs   uint32 // from una on, where the longest run of SACKed records so far ends
	sentAt int64  // of the last that was sent once and is in flight
}

// brokenRecords walks the records of what was pushed and is not acknowledged.
func (c *Conn) brokenRecords() error {
	s := &c.sent
	at, n := c.sndUna, recount{sentAt: math.MinInt64}
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
		if err := n.add(c, i); err != nil {
			return err
		}
		if i+1 == s.nxt && at != c.sndNxt {
			return fmt.Errorf("last record in flight ends at %d, SND.NXT is %d", at, c.sndNxt)
		}
	}
	if n.sacked != s.sacked || n.lost != s.lost || n.resent != s.resent || n.pipe != c.pipe() {
		return fmt.Errorf("counts: sacked %d lost %d resent %d pipe %d, recomputed %+v", s.sacked, s.lost,
			s.resent, c.pipe(), n)
	}
	if n.runs > s.nxt-s.una {
		return fmt.Errorf("a run of SACKed records ends %d after una, SND.NXT stands at %d", n.runs,
			s.nxt-s.una)
	}
	if n.sackedRecs != s.sackedRecs {
		return fmt.Errorf("%d records SACKed, counted %d", n.sackedRecs, s.sackedRecs)
	}
	end := c.pushed
	if c.finQueued && c.state.synchronized() {
		end++
	}
	if c.state.synchronized() && s.una != s.end && at != end {
		return fmt.Errorf("records end at %d, pushed %d", at, end)
	}
	probes := 0
	for i := s.una; i != s.end; i++ {
		if s.rec(i).flags&recProbe != 0 {
			probes++
		}
	}
	if probes > 1 || (probes == 1) != (c.mtu.size != 0) || c.EMSS() < 1 {
		return fmt.Errorf("%d probes of the path, size %d, EMSS %d", probes, c.mtu.size, c.EMSS())
	}
	return nil
}

// add counts record i, which is in flight.
func (n *recount) add(c *Conn, i uint32) error {
	s := &c.sent
	r := s.rec(i)
	if r.flags&recSacked == 0 && n.runs > i-s.una {
		return fmt.Errorf("record at %d stands in a run of SACKed ones", r.at)
	}
	switch r.flags & (recSacked | recLost | recResent) {
	case recSacked:
		n.sacked += r.seqLen()
		n.sackedRecs++
		if r.next == 0 {
			return fmt.Errorf("record at %d: SACKed, in no run", r.at)
		}
		n.runs = max(n.runs, i+r.next-s.una)
	case recLost:
		n.lost += r.seqLen()
		if r.at < c.recovery.resendFrom {
			return fmt.Errorf("lost record at %d before resendFrom %d", r.at, c.recovery.resendFrom)
		}
	case recResent:
		n.resent++
		n.pipe += r.seqLen()
	case 0:
		n.pipe += r.seqLen()
		if r.flags&recEver != 0 {
			return fmt.Errorf("record at %d was sent again, is in flight, and not in the list", r.at)
		}
		if r.sentAt < n.sentAt {
			return fmt.Errorf("record at %d first sent before one that stands before it", r.at)
		}
		if n.sentAt = r.sentAt; int32(s.unjudged-i) > 0 {
			return fmt.Errorf("record at %d in flight before unjudged", r.at)
		}
	default:
		return fmt.Errorf("record with flags %#x", r.flags)
	}
	return nil
}

// brokenReceiver is what must hold of what came: the edge, and beyond it spans in order with gaps
// between them.
func (c *Conn) brokenReceiver() error {
	if int(c.rcvRounded)>>c.rcvShift != 0 {
		return fmt.Errorf("%d octets added to the window by rounding to 2^%d", c.rcvRounded, c.rcvShift)
	}
	if c.edge > c.rcvAdv && c.state.synchronized() {
		return fmt.Errorf("edge %d beyond advertised %d", c.edge, c.rcvAdv)
	}
	if (cap(c.held.spans) == 0) != (c.held == &c.mem.noGap) ||
		!reflect.DeepEqual(c.mem.noGap, ranges{}) {
		return fmt.Errorf("spans %+v, of Conns without %+v", c.held, c.mem.noGap)
	}
	left := c.edge
	for i, h := range c.held.spans {
		if h.left <= left || h.right <= h.left || h.right > c.rcvAdv {
			return fmt.Errorf("span %d [%d,%d) after %d, advertised %d", i, h.left, h.right, left, c.rcvAdv)
		}
		left = h.right
	}
	return nil
}

// brokenList walks the list of what was sent again, both ways.
func (s *sentRing) brokenList() error {
	seen := map[uint32]bool{}
	i := s.resentFirst
	for n := range s.resent {
		r := s.rec(i)
		if i-s.una >= s.nxt-s.una || r.flags&recResent == 0 || seen[i] {
			return fmt.Errorf("resent list: record %d, flags %#x, seen %v", i-s.una, r.flags, seen[i])
		}
		seen[i] = true
		if n == s.resent-1 {
			if i != s.resentLast {
				return fmt.Errorf("resent list ends at %d, last is %d", i, s.resentLast)
			}
			break
		}
		next := s.rec(r.next)
		if next.prev != i || next.sentAt < r.sentAt {
			return fmt.Errorf("resent list: record %d sent %d, after it %d sent %d, whose prev is %d", i,
				r.sentAt, r.next, next.sentAt, next.prev)
		}
		i = r.next
	}
	return nil
}

// brokenRecovery is what must hold of the loss episode.
func (c *Conn) brokenRecovery() error {
	rv := &c.recovery
	switch {
	case !c.state.synchronized():
	case rv.phase != phaseOpen && c.sndUna >= c.point:
		return fmt.Errorf("in recovery beyond its point %d", c.point)
	case rv.frto.step != frtoOff && rv.phase != phaseLoss:
		return fmt.Errorf("F-RTO without a timeout")
	case rv.hold == holdLost && rv.frto.step != frtoNext:
		return fmt.Errorf("lost records held back without F-RTO")
	case c.cong.Cwnd < 1 && rv.phase != phaseRecovery:
		return fmt.Errorf("cwnd %d", c.cong.Cwnd)
	case c.timers.kind == timerLossProbe && c.timers.rtxAt != never &&
		(!c.useSACK || rv.phase == phaseOpen && c.sent.sackedRecs > 0):
		return fmt.Errorf("probe timer in phase %d with %d SACKed", rv.phase, c.sent.sackedRecs)
	case c.timers.kind != timerPersist && c.sent.una != c.sent.nxt && c.timers.rtxAt > c.rtoAt:
		return fmt.Errorf("timer %d later than the retransmission timer", c.timers.kind)
	case c.timers.kind == timerReorder && c.sent.una != c.sent.nxt && c.timers.rtxAt != rv.rack.reoAt:
		return fmt.Errorf("reordering timer at %d, RACK wants %d", c.timers.rtxAt, rv.rack.reoAt)
	case !c.useSACK && (rv.rack.endSeq != 0 && c.sent.sackedRecs > 0 || rv.rack.reoAt != never):
		return fmt.Errorf("RACK without SACK")
	case c.due&dueMarkRun != 0 != (c.runs != nil) || c.runs != nil && c.runs.n == 0:
		return fmt.Errorf("runs of marks %+v, due %#x", c.runs, c.due)
	}
	if c.reo.mult < 1 || c.useSACK && c.reoWnd() > c.rtt.srtt {
		return fmt.Errorf("reordering window %d beyond SRTT %d", c.reoWnd(), c.rtt.srtt)
	}
	return nil
}

// idleBroken says that c has no run, and that what all such Conns share is as it was made.
func (m *Memory) idleBroken(c *Conn) error {
	if c.inFlight != &m.none {
		return fmt.Errorf("no run, but an inFlight of its own")
	}
	if want := nothing(); !reflect.DeepEqual(m.none, want) {
		return fmt.Errorf("what is in flight of nobody changed: %+v", m.none)
	}
	if c.sndUna != c.sndNxt && c.state.synchronized() {
		return fmt.Errorf("no run, but %d octets in flight", c.flight())
	}
	return nil
}
