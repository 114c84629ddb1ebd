package tcp

import (
	"math"
	"unsafe"

	"github.com/rnicd/rnicd/internal/cc"
	"github.com/rnicd/rnicd/internal/flight"
)

// never is a timer that is not armed.
const never = math.MaxInt64

// Conn is one connection. Init gives it the Memory it shares; Connect or Accept start it, and after
// EvClosed it may be started again. One goroutine at a time.
//
// Positions are stream offsets of 64 bits: 0 is the first octet after the SYN, in both directions,
// and a FIN stands at the offset after the last octet. seqOf and the signed distances in Input are
// where they meet sequence numbers. Invariants while synchronized: sndUna <= sndNxt; sndUna
// is where the first record in flight begins; edge <= rcvAdv; every span of held lies beyond edge.
//
// What every segment touches stands first, so that of the many connections of a Poller it brings
// few cache lines into the cache; HotOctets says how far that goes.
type Conn struct {
	*inFlight
	mem *Memory

	// Send sequence variables (RFC 9293 section 3.3.1).
	sndUna    uint64 // oldest unacknowledged
	sndNxt    uint64 // next to be sent for the first time
	pushed    uint64 // offset of the next pushed octet
	unpushed  uint32 // octets since the last segment with PSH
	sndWnd    int32  // octets beyond sndUna
	sndWl1    Seq    // sequence of the last window update
	sndWndMax int32  // largest seen
	keepIdle  uint32 // milliseconds before the first keep-alive, 0: off
	iss       Seq

	// Receive sequence variables.
	irs      Seq
	tsRecent uint32
	paws     paws
	edge     uint64 // left edge: all before it is committed
	rcvAdv   uint64 // highest right edge advertised, rounding included
	lastAck  Seq    // RCV.NXT of the last segment sent: Last.ACK.sent of RFC 7323
	rcvWnd   int32  // what SetReceiveWindow asks for
	held     *ranges

	rcvMSS            uint16 // the peer's segment size: what "full-sized" means for delayed ACKs
	emss              uint16
	peerMSS, limitMSS uint16
	mss               uint16 // what we announce
	// how much of rcvAdv was added by rounding to the scale: less than a unit of it
	rcvRounded uint16
	lastSize   uint16 // of the peer's last segment with octets: rcvMSS

	finWait2 uint16 // seconds, of SetFinWait2

	due     due
	events  Events
	state   State
	passive bool // SYN-RECEIVED came from Accept (RFC 9293 section 3.5, MUST-11)

	finQueued bool // CloseSend was called
	probed    bool // a zero-window probe is out: the octet at sndNxt, which is of no record in flight
	noMemory  bool // there was no memory for a first run of records
	noDelay   bool // Nagle is off
	orphaned  bool // SetOrphaned was called
	answered  bool // octets of ours have answered the peer's
	hasFin    bool // the peer's FIN stands at finAt
	finTaken  bool // it is after the left edge: RCV.NXT is edge+1
	tlpActive bool // a loss probe was sent whose outcome is not known

	useTS, useSACK, useScale bool // what the SYNs agreed on
	sndShift, rcvShift       uint8

	ecn      ecnState
	ack      ackState
	tsOffset uint32
	id       ID
	flow     traffic
	timers   timers
	reo      reordering
	rtt      rtoEstimator
	control  *cc.Algorithm // the Config's, or one that SetCongestion was given
	cong     cc.State      // its first HotOctets are that

	// What follows is seldom needed.
	tlp      tlp
	undo     undo
	point    uint64 // RecoveryPoint: the episode ends when SND.UNA gets here; 0: there was none yet
	markedTo uint64 // SND.NXT when cwnd was last reduced, with ECN
	finAt    uint64
	limiter  challengeLimiter
	keep     keepAlive
	pace     pacer
	mtu      plpmtud
	runs     *ceRuns // nil: there are none
	stats    counts
	refusal  refusal
	nextMSS  uint16 // what SetMSS asks for
	log      flight.Log
}

// HotOctets are the first of a Conn that segments in order, and their ACKs, touch: for a caller
// that brings Conns into the cache.
const HotOctets = unsafe.Offsetof(Conn{}.cong) + cc.HotOctets

// due is what Next has to send apart from data.
type due uint16

const (
	dueSYN       due = 1 << iota
	dueAbort         // our own RST; EvClosed when it has been taken
	dueReset         // a RST that answers a bad ACK before we are synchronized
	dueProbe         // the persist timer fired
	dueRepair        // the next retransmission does not wait for cwnd
	dueTailProbe     // zero window with data in flight: send the oldest segment again
	dueFIN           // a FIN that found no memory for a record
	dueKeepAlive     // an empty segment that draws an ACK
	dueLossProbe     // the probe timer fired
	// octets with another CE mark than the present are to be acknowledged on their own
	dueMarkRun
)

// NewConn makes a Conn in CLOSED with a Memory of its own. It panics on a Config that cannot work.
func NewConn(cfg Config) *Conn {
	c := new(Conn)
	c.Init(NewMemory(cfg, 1))
	return c
}

// Init makes a zero Conn one in CLOSED that takes its memory from m.
func (c *Conn) Init(m *Memory) {
	c.mem, c.inFlight, c.held = m, &m.none, &m.noGap
	c.timers.stop()
}

// Connect starts an active open with initial sequence number iss (RFC 6528 says how to choose it).
// tsOffset is added to the timestamp clock (RFC 7323 section 7). Next gives the SYN. Panics unless
// CLOSED with all handles released.
func (c *Conn) Connect(now int64, id ID, iss Seq, tsOffset uint32) {
	c.start(id, iss, tsOffset)
	c.enter(SynSent)
	c.due = dueSYN
	c.timers.progressAt = now
}

// Accept starts a passive open from a SYN, which the caller has found to be one (SYN, no RST, no
// ACK). Next gives the SYN,ACK. Octets on the SYN are not taken: the peer sends them again. Panics
// as Connect does.
func (c *Conn) Accept(now int64, id ID, iss Seq, tsOffset uint32, syn *Segment) {
	c.start(id, iss, tsOffset)
	c.passive = true
	c.flow.segsIn++
	c.takeSYN(now, syn)
	c.enter(SynReceived)
	c.due = dueSYN
	c.timers.progressAt = now
}

func (c *Conn) start(id ID, iss Seq, tsOffset uint32) {
	if c.state != Closed || c.due&dueAbort != 0 {
		panic("tcp: Conn started while in use")
	}
	if _, left := c.Release(); left {
		panic("tcp: Conn started with handles that were not released")
	}
	mss := uint16(c.mem.cfg.MSS)
	if c.nextMSS != 0 {
		mss = c.nextMSS
	}
	c.Forget()
	// Release and finish gave the memory back.
	*c = Conn{mem: c.mem, inFlight: &c.mem.none, held: &c.mem.noGap, reo: reordering{mult: 1},
		mss: mss, id: id, iss: iss, tsOffset: tsOffset, log: c.log}
	c.control = &c.mem.cfg.Congestion
	c.startECN()
	c.rcvWnd = int32(c.mem.cfg.ReceiveWindow)
	c.rcvShift = shiftFor(c.mem.cfg.ReceiveWindow)
	c.noDelay = c.mem.cfg.NoDelay
	c.limitMSS = c.mss
	c.peerMSS = mssAbsent
	if !id.Remote.Is4() && !id.Remote.IsUnspecified() {
		c.peerMSS = mssAbsent6
	}
	c.rcvMSS = c.peerMSS
	c.setEMSS()
	c.timers.stop()
}

// shiftFor is the smallest window scale with which a window of n can be advertised.
func shiftFor(n int) uint8 {
	shift := uint8(0)
	for n>>shift > 65535 && shift < windowShiftMax {
		shift++
	}
	return shift
}

// takeSYN reads what the peer's SYN or SYN,ACK says (RFC 9293 section 3.10.7.2, RFC 7323 sections
// 2.2 and 3.2).
func (c *Conn) takeSYN(now int64, s *Segment) {
	o := &s.Options
	c.irs, c.lastAck = s.Seq, s.Seq+1
	c.ecn.agreeECN(s, c.mem.cfg.ECN)
	if o.MSS != 0 {
		c.peerMSS = max(o.MSS, mssFloor)
	}
	c.useSACK = o.SACKPermitted && !c.mem.cfg.NoSACK
	c.useTS = o.HasTimestamps && !c.mem.cfg.NoTimestamps
	if c.useTS {
		c.tsRecent = o.TSval
		c.paws.start(now, o.TSval)
	}
	c.useScale = o.WindowScale >= 0 && !c.mem.cfg.NoWindowScale
	if c.useScale {
		c.sndShift = min(uint8(o.WindowScale), windowShiftMax)
	} else {
		c.sndShift, c.rcvShift = 0, 0
	}
	c.rcvMSS -= uint16(c.optionsLen()) // until one is measured
	c.setEMSS()
	c.rcvWnd = min(c.rcvWnd, 65535<<c.rcvShift)
	c.sndWnd = int32(s.Window)
	c.sndWndMax = c.sndWnd
	c.sndWl1 = s.Seq
}

// SynLeft says that what Next has given of our SYN has left this host only now, because its next
// hop had to be found first. How long that took, and that the SYN was due again meanwhile, tells
// nothing of the path: the round trip begins now, and there was no loss (RFC 5681 section 3.1) and
// no backoff. After the SYN has been answered it does nothing.
func (c *Conn) SynLeft(now int64) {
	t := &c.timers
	if c.state != SynSent || t.synSends == 0 {
		return
	}
	t.synLate, t.sentAt, t.synSends, t.synTries = true, now, 1, 1
	c.rtt.backoff = 0
	if t.rtxAt != never {
		t.rtxAt = now + c.rto()
	}
}

// establish enters ESTABLISHED: our SYN has been acknowledged by s.
func (c *Conn) establish(now int64, s *Segment) {
	c.enter(Established)
	c.events |= EvEstablished
	c.due &^= dueSYN
	c.timers.rtxAt = never
	c.timers.progressAt = now
	c.timers.expiries, c.timers.heldBack = 0, 0
	elapsed, echoed := c.tsElapsed(now, s.Options.TSecr)
	switch {
	case c.timers.synSends == 0: // a cookie: it is not known when it was sent
	case c.timers.synSends == 1:
		c.rtt.sample(now-c.timers.sentAt, 1)
		c.rtt.lowest.add(now, now-c.timers.sentAt)
	case c.useTS && s.Options.HasTimestamps && echoed && !c.timers.synLate:
		c.rtt.sample(elapsed, 1) // once SYNs have waited, the echo may be of one of those
	case c.timers.synTries > 1:
		c.rtt.synLost = true
	}
	c.rtt.backoff = 0
	window := c.initialWindow()
	if c.timers.synTries > 1 {
		window = c.EMSS() // RFC 5681 section 3.1
	}
	(*c.control).Start(&c.cong, window)
	if c.finQueued {
		c.queueFIN(now)
	}
}

// initialWindow is Config's, or RFC 6928 section 2's.
func (c *Conn) initialWindow() int {
	if n := c.mem.cfg.InitialWindow; n != 0 {
		return n * c.EMSS()
	}
	return min(10*c.EMSS(), max(2*c.EMSS(), 14600))
}

// finish enters CLOSED. What is still in the ring goes to Release.
func (c *Conn) finish(ev Events) {
	c.enter(Closed)
	c.events |= ev | EvClosed
	c.due, c.noMemory = 0, false
	c.ack = ackState{}
	c.sent.abandon()
	c.giveBackSpans()
	c.giveBackMarks()
	c.timers.stop()
}

// setEMSS computes Eff.snd.MSS (RFC 9293 section 3.7.1). SACK blocks are not subtracted: they
// travel on data only where they fit, so that EMSS, and MPA's MULPDU with it, stays the same
// through a loss.
func (c *Conn) setEMSS() {
	c.emss = min(c.peerMSS, c.limitMSS) - uint16(c.optionsLen())
}

// optionsLen is what every segment with octets carries in options.
func (c *Conn) optionsLen() int {
	if c.useTS {
		return timestampsLen
	}
	return 0
}

// SetMSS sets, for the connection that is started next, what it announces as its MSS and sends at
// most: Config.MSS or less, as the fixed headers of IPv6 are longer (RFC 8200 section 8.3). It
// panics unless CLOSED, and holds for one Connect or Accept.
func (c *Conn) SetMSS(n int) {
	if c.state != Closed {
		panic("tcp: SetMSS on a Conn in use")
	}
	c.nextMSS = uint16(max(min(n, c.mem.cfg.MSS), mssFloor))
}

// SetEMSSLimit lowers (or raises again) what the path carries: n is the path MTU less the fixed IP
// and TCP headers, as an MSS; options are subtracted here. Records that have become too large are
// cut in two when they are next sent, and their handle is released with the last part.
func (c *Conn) SetEMSSLimit(n int) {
	before := c.emss
	c.limitMSS = uint16(max(min(n, int(c.mss)), mssFloor))
	c.restartSearch(int(c.limitMSS) + 1)
	c.setEMSS()
	if c.emss < before && c.state.synchronized() {
		c.loseOversize()
	}
}

// EMSS is how many payload octets a full segment carries: options subtracted.
func (c *Conn) EMSS() int { return int(c.emss) }

// SndNxt is SND.NXT: in TIME-WAIT, beyond all that this connection has ever sent.
func (c *Conn) SndNxt() Seq { return c.seqOf(c.sndNxt) }

// State is the connection's state.
func (c *Conn) State() State { return c.state }

// ID is the 4-tuple, also after EvClosed until the Conn is started again. It must not be changed.
func (c *Conn) ID() *ID { return &c.id }

// ISS is our initial sequence number.
func (c *Conn) ISS() Seq { return c.iss }

// TakeEvents returns what has happened since it was last called.
func (c *Conn) TakeEvents() Events {
	ev := c.events
	c.events = 0
	return ev
}

// Edge is the left edge: all octets before this offset have been committed.
func (c *Conn) Edge() uint64 { return c.edge }

// PeerClosed says whether the peer's FIN is in order.
func (c *Conn) PeerClosed() bool { return c.finTaken }

// AckedOffset: our octets before this offset are acknowledged.
func (c *Conn) AckedOffset() uint64 { return min(c.sndUna, c.pushed) } // a FIN is no octet

// PushedOffset is the offset the next pushed octet will have.
func (c *Conn) PushedOffset() uint64 { return c.pushed }

// Release returns, one by one, handles that are wholly acknowledged (or, after EvClosed, were
// abandoned), in the order of Push, each once. The ring's slots are free only after it: drain it on
// EvAcked and EvClosed.
func (c *Conn) Release() (Handle, bool) {
	h, ok := c.sent.release()
	if c.sent.rel == c.sent.end {
		c.giveBackRecords()
	}
	return h, ok
}

// Held is how many segments of ours are queued or were not released: their handles, and the records
// that remember them, are what the peer makes us keep.
func (c *Conn) Held() int { return int(c.sent.end - c.sent.rel) }

// WaitsForMemory says that Room was 0, or a FIN waits, only because there was no memory for a first
// run of records. Nothing that happens to this Conn may end that: the caller asks again when
// Memory.RunsFree says so.
func (c *Conn) WaitsForMemory() bool { return c.noMemory }

// seqOf is the sequence number of offset at of our stream.
func (c *Conn) seqOf(at uint64) Seq { return c.iss + 1 + Seq(at) }

// rcvNxtOff is RCV.NXT as an offset: the left edge, and the FIN once that is after it.
func (c *Conn) rcvNxtOff() uint64 {
	if c.finTaken {
		return c.edge + 1
	}
	return c.edge
}

// rcvNxt is RCV.NXT.
func (c *Conn) rcvNxt() Seq { return c.irs + 1 + Seq(c.rcvNxtOff()) }

// sndMax is the end of what the peer may acknowledge.
func (c *Conn) sndMax() uint64 {
	if c.probed {
		return c.sndNxt + 1
	}
	return c.sndNxt
}

// flight is FlightSize of RFC 5681: octets sent and not cumulatively acknowledged.
func (c *Conn) flight() int { return int(c.sndNxt - c.sndUna) }

// pipe estimates the octets in the network (RFC 6675 section 4).
func (c *Conn) pipe() int { return c.flight() - c.sent.sacked - c.sent.lost }

// tsNow is the timestamp clock: 1 ms a tick (RFC 7323 section 5.4), with the connection's own
// offset.
func (c *Conn) tsNow(now int64) uint32 { return uint32(now/timestampTickNs) + c.tsOffset }

// tsElapsed is the time since our timestamp echo was sent, to the tick; false if it cannot be one
// of ours.
func (c *Conn) tsElapsed(now int64, echo uint32) (ns int64, ok bool) {
	ns = int64(int32(c.tsNow(now)-echo)) * timestampTickNs
	return ns, ns >= 0 && ns < c.mem.cfg.UserTimeoutNs
}

// EchoAge is how long ago at most the segment left whose timestamp s, which was just given to
// Input, echoes. A round trip is no longer than that, and a receiver that sends no octets has no
// other measure of it (RFC 7323 section 4.1 is about senders). False: s has no timestamp, or echoes
// none of ours.
func (c *Conn) EchoAge(now int64, s *Segment) (ns int64, ok bool) {
	if !c.useTS || !s.Options.HasTimestamps {
		return 0, false
	}
	ns, ok = c.tsElapsed(now, s.Options.TSecr)
	return ns + timestampTickNs, ok // it left within the tick
}
