package tcp

import "github.com/rnicd/rnicd/internal/cc"

// Explicit Congestion Notification (RFC 3168), and the exact feedback that DCTCP asks for (RFC 8257
// section 3.2). The network marks CE on packets that say ECT; the receiver echoes it by ECE; the
// sender reduces, and says so by CWR.

// Codepoints of the low two bits of the TOS octet (RFC 3168 section 5).
const (
	ecnMask = 3
	ecnECT0 = 2
	ecnCE   = 3
)

// ecnSynTries is how many SYNs ask for ECN. The next ones do not: there are middleboxes that drop
// those which do (section 6.1.1.1).
const ecnSynTries = 2

// ceRunsMax is how many changes of the CE mark are told exactly between two turns of output.
const ceRunsMax = 8

// ecnState is a connection's ECN, and its TOS octet.
type ecnState struct {
	tos    uint8 // of all segments, ECN bits 0
	on     bool  // both SYNs agreed
	asked  bool  // a SYN of ours asked
	plain  bool  // and a later one did not: we echo, but send no ECT (RFC 3168 section 6.1.1)
	exact  bool  // ECE says which octets were marked: RFC 8257 section 3.2
	echo   bool  // ECE goes on what we send; with exact it is DCTCP.CE
	cwrDue bool  // the first new segment says CWR
}

// ceRuns are the runs of octets with the same mark that came before the present run; each is to be
// acknowledged on its own. They are kept with exact only, and lent by Memory from a change of the
// mark until it is told, which is in the same turn of output as a rule; dueMarkRun says that there
// are some.
type ceRuns struct {
	ends  [ceRunsMax]Seq // their marks alternate
	n     uint8
	first bool // mark of the first
}

// marksMax is how many Conns can have runs at a time: more than a Poller takes segments of between
// two turns of output. Without a place marks are told as where there are more than ceRunsMax runs.
const marksMax = 1024

func newMarks(n int) []*ceRuns {
	all, free := make([]ceRuns, n), make([]*ceRuns, n)
	for i := range all {
		free[i] = &all[i]
	}
	return free
}

// takeMarks sees to a place for runs and says whether there is one.
func (c *Conn) takeMarks() bool {
	free := c.mem.marks
	if c.runs != nil || len(free) == 0 {
		return c.runs != nil
	}
	c.runs, c.mem.marks = free[len(free)-1], free[:len(free)-1]
	*c.runs = ceRuns{first: c.ecn.echo}
	c.due |= dueMarkRun
	return true
}

// giveBackMarks returns the place for runs, all of which have been told or are to be forgotten.
func (c *Conn) giveBackMarks() {
	if c.runs != nil {
		c.mem.marks = append(c.mem.marks, c.runs)
		c.runs = nil
		c.due &^= dueMarkRun
	}
}

func wantsExactECN(a cc.Algorithm) bool {
	x, ok := a.(cc.ExactECN)
	return ok && x.ExactECN()
}

func (c *Conn) startECN() {
	c.ecn = ecnState{tos: c.mem.cfg.TOS &^ ecnMask, exact: wantsExactECN(*c.control)}
}

// SetTOS sets the DS field of the segments sent from now on (RFC 9293 section 3.9.1.9); the two ECN
// bits of tos are not taken. After Connect or Accept and before Next it holds for the SYN as well.
func (c *Conn) SetTOS(tos uint8) { c.ecn.tos = tos &^ ecnMask }

// SetCongestion replaces the congestion control; cwnd and ssthresh stay. Once the SYNs are
// exchanged it no longer changes whether ECN is used, nor how marks are echoed. It allocates the
// two words of a.
func (c *Conn) SetCongestion(a cc.Algorithm) {
	c.control = &a
	if !c.state.synchronized() {
		c.ecn.exact = wantsExactECN(a)
		return
	}
	cwnd, ssthresh := c.cong.Cwnd, c.cong.Ssthresh
	a.Start(&c.cong, cwnd)
	c.cong.Ssthresh = ssthresh
	c.undo.possible = false
}

// Congestion is the name of the congestion control in use.
func (c *Conn) Congestion() string { return (*c.control).Name() }

// askECN puts the bits on our SYN (section 6.1.1); reply says that it is a SYN,ACK.
func (e *ecnState) askECN(t *Transmit, mode ECNMode, reply bool, sent int) {
	switch {
	case reply:
		if e.on {
			t.Flags |= ECE
		}
	case mode == ECNActive || e.exact:
		if e.plain = sent >= ecnSynTries; !e.plain {
			e.asked = true
			t.Flags |= ECE | CWR
		}
	}
}

// agreeECN reads them on the peer's SYN or SYN,ACK.
func (e *ecnState) agreeECN(s *Segment, mode ECNMode) {
	bits := s.Flags & (ECE | CWR)
	if s.Flags&ACK != 0 {
		e.on = e.asked && bits == ECE // both: a peer that reflects what it does not know
		return
	}
	e.on = bits == ECE|CWR && (mode != ECNOff || e.exact)
}

// askedAgain reads the peer's SYN when it comes again: one that no longer asks for ECN has given it
// up.
func (e *ecnState) askedAgain(s *Segment) {
	e.on = e.on && s.Flags&(ECE|CWR) == ECE|CWR
}

// markArrived takes the ECN field and CWR of a data segment in the window; it comes before the
// segment's octets do.
func (c *Conn) markArrived(s *Segment) {
	e := &c.ecn
	ce := s.TOS&ecnMask == ecnCE
	if ce {
		c.stats.ceIn.one()
		c.mem.totals.CongestionMarked++
	}
	if !e.exact {
		if s.Flags&CWR != 0 {
			e.echo = false
		}
		e.echo = e.echo || ce // section 6.1.3: until CWR comes
		return
	}
	if ce == e.echo {
		return
	}
	runs := c.runs
	at := c.rcvNxt()
	begin := c.lastAck
	if runs != nil {
		begin = runs.ends[runs.n-1]
	}
	switch {
	case at == begin && e.echo && len(c.held.spans) > 0:
		return // the mark may be on octets out of order, which no cumulative ACK has told yet: it stays
	case at == begin && runs != nil:
		if runs.n--; runs.n == 0 { // the run before had the same mark
			c.giveBackMarks()
		}
	case at == begin:
	case !c.takeMarks() || c.runs.n == ceRunsMax:
		e.echo = true // rather some octets too many than a mark unsaid
		return
	default:
		c.runs.ends[c.runs.n] = at
		c.runs.n++
	}
	e.echo = ce
}

// nextRun acknowledges the oldest run on its own, with the mark it had.
func (c *Conn) nextRun(now int64, t *Transmit) {
	runs := c.runs
	end, mark := runs.ends[0], runs.first
	copy(runs.ends[:], runs.ends[1:runs.n])
	runs.n--
	runs.first = !mark
	if runs.n == 0 {
		c.giveBackMarks()
	}
	c.header(now, t)
	t.Ack = end
	t.Flags &^= ECE
	if mark {
		t.Flags |= ECE
	}
	// The right edge is where it is (RFC 9293 section 3.8.6), seen from further left and rounded up
	// as advertise does.
	c.lastAck = end
	t.Window = c.advertiseUp(c.rcvNxtOff() - uint64(c.rcvNxt()-end))
}

// markAcked answers an ACK that carries ECE, once per window of data (section 6.1.2).
func (c *Conn) markAcked(now int64) {
	c.stats.eceIn.one()
	if c.recovery.phase == phaseOpen && c.sndUna > c.markedTo {
		c.undo.possible = false
		(*c.control).Reduce(&c.cong, cc.Mark, now, min(c.before(now).flight, c.cong.Cwnd), c.EMSS())
		c.cong.Cwnd = min(c.cong.Cwnd, c.cong.Ssthresh)
		c.sayReduced()
	}
}

// sayReduced takes note that cwnd was reduced: the peer is to be told, and marks of what is
// outstanding have been answered.
func (c *Conn) sayReduced() {
	if c.ecn.on {
		c.ecn.cwrDue = true
		c.markedTo = c.sndNxt
	}
}

// markNew makes a new data segment ECN-capable (section 6.1.2): not retransmissions, probes and
// empty segments.
func (e *ecnState) markNew(t *Transmit) {
	if e.plain {
		return
	}
	t.TOS |= ecnECT0
	if e.cwrDue {
		e.cwrDue = false
		t.Flags |= CWR
	}
}
