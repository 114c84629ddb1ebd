package tcp

import (
	"math"

	"github.com/rnicd/rnicd/internal/flight"
)

// Piece is one segment of new octets for Push.
type Piece struct {
	Handle Handle
	Len    int32
	Push   bool // a unit ends in it for which the receiver may wait
}

// Room says how many segments may be queued now, most at the most, and how many octets each may
// carry: EMSS, at times more, of a single segment, to find out whether the path carries it
// (plpmtud.go). 0 segments: none may (no window, sent ring full, not established, or one is queued
// that has not been sent yet). More than one: they can leave together (sendMore).
//
// With nothing in flight it does not ask for the peer's window: a closed or small window then needs
// a segment to probe with, which Next does.
func (c *Conn) Room(now int64, most int) (segments, octets int) {
	if c.state != Established && c.state != CloseWait || c.finQueued {
		return 0, 0
	}
	if c.flight() == 0 && !c.mem.cfg.NoIdleRestart && now-c.timers.sentAt > c.rto() {
		c.cong.Cwnd = min(c.cong.Cwnd, c.initialWindow()) // RFC 5681 section 4.1
	}
	emss := c.EMSS()
	if c.sent.unsent() || !c.probeWantsNew() && !(c.cwndAdmits(emss) && c.paced(now)) {
		return 0, 0
	}
	if flight := c.flight(); flight != 0 && int(c.sndWnd)-flight < emss {
		return 0, 0
	}
	if !c.hasRecord() {
		return 0, 0
	}
	if probe, wait := c.probeRoom(now); wait {
		return 0, 0
	} else if probe > 0 {
		return 1, probe
	}
	if most == 1 || !c.sendsAlike() {
		return 1, emss
	}
	return max(1, min(most, c.sent.free()-splitReserve, c.admitted(emss))), emss
}

// sendsAlike says whether new segments of a burst differ in nothing but their octets, sequence
// number and PSH: nothing is lost, no probe or mark of ECN is due, nothing is paced, and there is
// nothing to SACK.
func (c *Conn) sendsAlike() bool {
	rv := &c.recovery
	return c.due == 0 && rv.phase == phaseOpen && rv.dupAcks == 0 && c.sent.lost == 0 && !c.ecn.on &&
		!c.mem.cfg.Pacing &&
		len(c.held.spans) == 0 && !c.ack.hasDup
}

// admitted is how many segments of n octets both windows admit where segments are alike.
func (c *Conn) admitted(n int) int {
	return min(c.cong.Cwnd-c.pipe(), int(c.sndWnd)-c.flight()) / n
}

// hasRecord says whether Push will find a free record. It does not take a first run, for Room is
// also asked by callers with nothing to send: Push does.
func (c *Conn) hasRecord() bool {
	if len(c.sent.recs) != 0 {
		return c.provideRecord()
	}
	if c.noMemory = c.mem.RunsFree() == 0; c.noMemory {
		c.mem.records.short++
	}
	return !c.noMemory
}

// probeWantsNew says that a loss probe is due for which a new segment would do, whatever cwnd says.
func (c *Conn) probeWantsNew() bool {
	return c.due&dueLossProbe != 0 && c.recovery.phase == phaseOpen &&
		c.pto() >= c.mem.cfg.PeerAckDelayNs
}

// cwndAdmits says whether n more octets may be in the network (RFC 6675 section 5). RFC 3042 is for
// peers without SACK only: with SACK, what duplicate ACKs report has left the pipe. It lets go what
// is sent again after a timeout as well, but not out of the loss window: two segments draw no three
// duplicate ACKs.
func (c *Conn) cwndAdmits(n int) bool {
	if c.recovery.hold == holdAll {
		return false
	}
	pipe := c.pipe()
	limit := c.cong.Cwnd
	if phase := c.recovery.phase; !c.useSACK &&
		(phase == phaseOpen || phase == phaseLoss && limit > c.EMSS()) {
		limit += int(min(c.recovery.dupAcks, 2)) * c.EMSS()
	}
	return pipe+n <= limit || pipe <= 0
}

// Push queues pieces of 1 to EMSS octets as the next segments, as many as Room has allowed; Next
// sends them. With Nagle's algorithm only the last may be short. Piece.Push sets PSH; so does
// every half of the peer's largest window, which a receiver that delivers on PSH must not fill
// without one (Linux: forced_push): Push says so in the piece. The caller keeps the octets of
// each handle unchanged until Release returns it. Panics when a length is out of range or a
// segment is queued already: ask Room first.
func (c *Conn) Push(now int64, pieces []Piece) {
	if c.state != Established && c.state != CloseWait || c.finQueued || c.sent.unsent() ||
		!c.provideRecord() ||
		len(pieces) > max(1, c.sent.free()-splitReserve) {
		panic("tcp: Push without Room")
	}
	c.noteOutstanding(now)
	c.answered = c.answered || c.edge > 0
	c.owed.Advance(c.AckedOffset(), c.pushed+uint64(pieces[0].Len), now)
	emss := c.EMSS()
	for i := range pieces {
		p := &pieces[i]
		n := int(p.Len)
		flags := c.pushFlags(n, p.Push)
		p.Push = flags&recPSH != 0
		if n < 1 || n > emss {
			c.pushProbe(now, n)
			flags |= recProbe
		}
		c.sent.append(c.pushed, p.Handle, n, flags)
		c.pushed += uint64(n)
	}
	if c.sent.una == c.sent.nxt && int(pieces[0].Len) > int(c.sndWnd) {
		c.armRetransmit(now)
	}
}

// pushProbe is for a segment that is no full one: it probes the path, or is the caller's mistake.
func (c *Conn) pushProbe(now int64, n int) {
	if n < 1 || !c.probeCarries(now, n) {
		panic("tcp: Push of a segment that is empty or larger than Room")
	}
	c.probePushed(n)
}

// pushFlags are recPSH, if the next n octets end with it, or none.
func (c *Conn) pushFlags(n int, psh bool) recordFlags {
	c.unpushed += uint32(n)
	if !psh && c.unpushed <= uint32(c.sndWndMax)/2 {
		return 0
	}
	c.unpushed = 0
	return recPSH
}

// SetNoDelay turns Nagle's algorithm off or on for this connection, for good until the Conn is
// started again.
func (c *Conn) SetNoDelay(on bool) { c.noDelay = on }

// noteOutstanding starts the user timeout when the first record is queued.
func (c *Conn) noteOutstanding(now int64) {
	if c.sent.una == c.sent.end {
		c.timers.progressAt, c.timers.outlasted = now, false
	}
}

// Next gives the next segment to send: RST, SYN, retransmission, queued data, FIN, probe, or a due
// ACK; false when there is none. The caller calls it until then, after Commit, Push, CloseSend,
// Abort and Expire, once per burst where it can. Up to most segments go at once: t is the first of
// them, and Transmit.More says how many more.
func (c *Conn) Next(now int64, most int, t *Transmit) bool {
	t.More = 0
	if c.due != 0 && c.nextDue(now, t) {
		return true
	}
	if c.sent.lost > 0 && c.nextLost(now, t) {
		return true
	}
	if c.sent.unsent() && c.nextNew(now, most, t) {
		return true
	}
	if c.sent.lost > 0 && c.frtoDry(now) && c.nextLost(now, t) {
		return true
	}
	return c.nextACK(now, t)
}

// nextACK is an ACK without octets, if one is due.
func (c *Conn) nextACK(now int64, t *Transmit) bool {
	if !c.ack.urgent {
		return false
	}
	c.header(now, t)
	c.acknowledge(t, sackBlocksMax)
	c.ackSent()
	return true
}

// NextControl is Next of the segments that do not wait for their turn among connections: all
// except new octets, and retransmissions after the first one that a timeout asks for. A probe is
// among them, for the window or for a loss.
func (c *Conn) NextControl(now int64, t *Transmit) bool {
	t.More = 0
	switch {
	case c.due != 0 && c.nextDue(now, t):
	case c.due&dueRepair != 0 && c.sent.lost > 0 && c.nextLost(now, t):
	case c.sent.unsent() && (c.due&dueProbe != 0 || c.sent.rec(c.sent.nxt).len == 0) &&
		c.nextNew(now, 1, t):
	default:
		return c.nextACK(now, t)
	}
	return true
}

// nextDue is what goes before data.
func (c *Conn) nextDue(now int64, t *Transmit) bool {
	if c.due&dueFIN != 0 {
		c.due &^= dueFIN
		c.queueFIN(now)
	}
	switch {
	case c.due&dueAbort != 0:
		c.due &^= dueAbort
		c.events |= EvClosed
		c.resetHeader(t, c.seqOf(c.sndNxt))
		t.Ack, t.Flags = c.rcvNxt(), RST|ACK // in the window for the peer: RFC 9293 section 3.10.5
		c.stamp(now, t)
		return true
	case c.due&dueReset != 0:
		c.due &^= dueReset
		c.resetHeader(t, c.refusal.seq)
		t.Options.HasTimestamps, t.Options.TSecr = c.refusal.stamped, c.refusal.echo // as ResetFor
		return true
	case c.due&dueSYN != 0:
		c.due &^= dueSYN
		c.nextSYN(now, t)
		return true
	case c.due&dueKeepAlive != 0:
		c.due &^= dueKeepAlive
		if !c.outstanding() { // else what is being sent asks as well
			c.nextKeepAlive(now, t)
			return true
		}
		return c.nextDue(now, t)
	case c.due&dueMarkRun != 0:
		c.nextRun(now, t)
		return true
	case c.due&dueLossProbe != 0:
		return c.nextLossProbe(now, t)
	case c.due&dueTailProbe != 0:
		c.due &^= dueTailProbe
		if c.sent.una != c.sent.nxt {
			c.stats.probes.one()
			c.Record(flight.WindowProbe, uint64(c.timers.probes), 0)
			c.mem.totals.WindowProbes++
			c.resend(now, c.sent.una, t)
			return true
		}
	}
	return false
}

func (c *Conn) resetHeader(t *Transmit, seq Seq) {
	*t = Transmit{ID: c.id, Seq: seq, Flags: RST, TOS: c.ecn.tos, Handle: NoHandle}
	t.Options.clear()
	c.flow.segsOut++
}

// nextSYN is a SYN, or in SYN-RECEIVED a SYN,ACK, which offers only what the peer's SYN offered.
func (c *Conn) nextSYN(now int64, t *Transmit) {
	tm := &c.timers
	reply := c.state == SynReceived
	*t = Transmit{ID: c.id, Seq: c.iss, Flags: SYN, TOS: c.ecn.tos, Handle: NoHandle,
		Retransmit: tm.synSends > 0}
	o := &t.Options
	o.clear()
	o.MSS = c.mss
	if reply {
		t.Flags |= ACK
		t.Ack = c.rcvNxt()
	}
	c.ecn.askECN(t, c.mem.cfg.ECN, reply, int(tm.synSends))
	o.SACKPermitted = !c.mem.cfg.NoSACK && (!reply || c.useSACK)
	if !c.mem.cfg.NoTimestamps && (!reply || c.useTS) {
		o.HasTimestamps = true
		o.TSval = c.tsNow(now)
		o.TSecr = c.tsRecent // 0 on a SYN
	}
	if !c.mem.cfg.NoWindowScale && (!reply || c.useScale) {
		o.WindowScale = int8(c.rcvShift)
	}
	t.Window = uint16(min(c.rcvWnd, 65535)) // never scaled: RFC 7323 section 2.2
	c.rcvAdv = max(c.rcvAdv, uint64(t.Window))
	if tm.synSends == 0 {
		tm.sentAt = now
	}
	tm.synSends = min(tm.synSends, math.MaxUint8-1) + 1
	if tm.rtxAt == never {
		tm.synTries = min(tm.synTries, math.MaxUint16-1) + 1
		tm.rtxAt = now + c.rto()
	}
	c.ackSent()
	c.flow.segsOut++
}

// header fills what all segments of a synchronized connection have in common.
func (c *Conn) header(now int64, t *Transmit) {
	t.ID = c.id
	t.Seq = c.seqOf(c.ackFrom())
	t.Ack = c.rcvNxt()
	t.Flags = ACK
	t.TOS = c.ecn.tos
	if c.ecn.on && c.ecn.echo {
		t.Flags |= ECE
	}
	t.Window = c.advertise()
	t.Handle = NoHandle
	t.Off, t.Len = 0, 0
	t.Retransmit = false
	t.Options.clear()
	c.stamp(now, t)
	c.flow.segsOut++
}

// stamp adds the timestamps, if the SYNs agreed on them (RFC 7323 section 3.2; for an abort,
// section 5.2).
func (c *Conn) stamp(now int64, t *Transmit) {
	if c.useTS {
		t.Options.HasTimestamps = true
		t.Options.TSval = c.tsNow(now)
		t.Options.TSecr = c.tsRecent
	}
}

// ackFrom is where a segment without octets stands: at SND.NXT, or at the right edge where the
// window has shrunk below what was sent, or a FIN probes it. Beyond it the peer would drop the
// segment, and what it acknowledges (RFC 9293 section 3.10.7.4; Linux: tcp_acceptable_seq). A
// rounding of the scale is no shrinking: what stands there was received.
func (c *Conn) ackFrom() uint64 {
	if over := c.flight() - int(c.sndWnd); over >= 1<<c.sndShift {
		return c.sndNxt - uint64(over)
	}
	return c.sndNxt
}

// acknowledge adds the SACK blocks there are to tell, up to blocks and to what options hold.
func (c *Conn) acknowledge(t *Transmit, blocks int) {
	if !c.useSACK || len(c.held.spans) == 0 && !c.ack.hasDup {
		return
	}
	if c.useTS {
		blocks = min(blocks, sackBlocksMax-1)
	}
	if blocks > 0 {
		c.putSACK(&t.Options, blocks)
	}
}

// ackSent takes note that all that was received has been acknowledged.
func (c *Conn) ackSent() {
	c.lastAck = c.rcvNxt()
	c.timers.delackAt = never
	c.ack.full = 0
	if c.ack.dups > 0 {
		c.ack.dups--
		return
	}
	c.ack.urgent = false
}

// piggyback makes a segment that carries octets serve as the ACK that is owed. Not when that ACK is
// a duplicate one, or has SACK blocks to tell that do not fit next to the octets: it then follows
// on its own.
func (c *Conn) piggyback(t *Transmit) {
	if len(c.held.spans) == 0 && !c.ack.hasDup {
		c.ackSent()
		return
	}
	if c.useSACK {
		if blocks := (c.EMSS() - t.Len - 4) / 8; blocks > 0 {
			c.acknowledge(t, min(blocks, sackBlocksMax))
			c.ackSent()
			return
		}
	}
	c.lastAck = c.rcvNxt()
	c.timers.delackAt = never
}
