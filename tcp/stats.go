package tcp

import "math"

// Stats of a connection. Octets, segments, nanoseconds.
type Stats struct {
	Counts

	SRTTNs, RTONs                  int64
	Cwnd, Ssthresh, Flight, SndWnd int
	// RACK's: the shortest round trip lately, and what it allows for reordering
	MinRTTNs, ReoWndNs int64

	State    State
	Recovery RecoveryState
	RTTVarNs int64
	Backoff  int // how often RTONs has been doubled since the last sample
	EMSS     int // octets a full segment of ours carries
	PeerMSS  int // what the peer's SYN said
	RcvMSS   int // what the peer's segments carry
	RcvWnd   int // octets beyond the left edge that the peer has been told it may send

	// of Flight, octets that the peer has beyond a gap, and octets taken for lost and not yet sent
	// again
	Sacked, Lost int
	// segments sent again and still unacknowledged; Retransmits counts all there were
	Resent         int
	Held           int    // octets received beyond a gap
	Delivered      uint64 // octets the peer is known to have, SACKed ones included
	PacingRate     uint64 // octets a second, 0: not paced
	ReorderingSeen bool   // on this path segments have overtaken each other
}

// RecoveryState is what the sender is doing about losses, in the words of Linux (tcpi_ca_state).
type RecoveryState uint8

const (
	RecoveryOpen RecoveryState = iota // all is in order
	// SACKs or duplicate ACKs have come: reordering, or the first sign of a loss
	RecoveryDisorder
	RecoveryCWR  // cwnd was reduced because a router marked segments (ECN)
	RecoveryFast // fast recovery
	RecoveryLoss // after a timeout
)

// String is Linux's name.
func (r RecoveryState) String() string {
	names := [...]string{"Open", "Disorder", "CWR", "Recovery", "Loss"}
	if int(r) < len(names) {
		return names[r]
	}
	return "?"
}

// Counts are what a connection counts.
type Counts struct {
	SegsIn, SegsOut, BytesIn, BytesOut                                                 uint64
	Retransmits, FastRetransmits, Timeouts, DupSegs, OOOSegs, DupAcksIn, ChallengeAcks uint64

	Refused     uint64 // pieces the caller did not keep
	Probes      uint64 // zero-window probes sent
	DSACKs      uint64 // duplicates of ours that the peer reported (RFC 2883)
	LostRetrans uint64 // retransmissions found lost without a timeout
	KeepAlives  uint64 // keep-alive probes sent
	Undone      uint64 // loss episodes found to have been reordering, their reduction taken back

	LossProbes       uint64 // tail loss probes sent
	ProbesRepaired   uint64 // of those, how many repaired a loss that nothing else revealed
	SpuriousTimeouts uint64 // of Undone, the timeouts
	BlackHoles       uint64 // times the path was found to swallow large segments
	CEIn, ECEIn      uint64 // segments received with CE; ACKs received with ECE
	// acceptable segments with URG: the octets stay in line (RFC 9293 section 3.8.5)
	UrgentIn uint64
}

// tally counts events. Hardly a connection sees 2^32 of a kind; should one, the tally stays at its
// maximum.
type tally uint32

func (t *tally) one() {
	if *t != math.MaxUint32 {
		*t++
	}
}

// traffic and counts are Counts as a Conn keeps them, and small: with 100,000 Conns each octet is
// there as often.
type traffic struct{ segsIn, segsOut, bytesIn, bytesOut uint64 }

type counts struct {
	retransmits, fastRetransmits, timeouts, dupSegs, oooSegs, dupAcksIn, challengeAcks tally

	refused, probes, dsacks, lostRetrans, keepAlives, undone tally
	lossProbes, probesRepaired, spuriousTimeouts             tally
	ceIn, eceIn, blackHoles, urgent                          tally
}

func (n *counts) public(t *traffic) Counts {
	return Counts{
		SegsIn: t.segsIn, SegsOut: t.segsOut, BytesIn: t.bytesIn, BytesOut: t.bytesOut,
		Retransmits:      uint64(n.retransmits),
		FastRetransmits:  uint64(n.fastRetransmits),
		Timeouts:         uint64(n.timeouts),
		DupSegs:          uint64(n.dupSegs),
		OOOSegs:          uint64(n.oooSegs),
		DupAcksIn:        uint64(n.dupAcksIn),
		ChallengeAcks:    uint64(n.challengeAcks),
		Refused:          uint64(n.refused),
		Probes:           uint64(n.probes),
		DSACKs:           uint64(n.dsacks),
		LostRetrans:      uint64(n.lostRetrans),
		KeepAlives:       uint64(n.keepAlives),
		Undone:           uint64(n.undone),
		LossProbes:       uint64(n.lossProbes),
		ProbesRepaired:   uint64(n.probesRepaired),
		SpuriousTimeouts: uint64(n.spuriousTimeouts),
		BlackHoles:       uint64(n.blackHoles),
		CEIn:             uint64(n.ceIn),
		ECEIn:            uint64(n.eceIn),
		UrgentIn:         uint64(n.urgent),
	}
}

// Counts is a copy of the counters.
func (c *Conn) Counts() Counts { return c.stats.public(&c.flow) }

// Stats is a copy of the counters and of what the sender knows of the path.
func (c *Conn) Stats() Stats {
	s := Stats{Counts: c.Counts()}
	s.SRTTNs, s.RTONs = c.rtt.srtt, c.rto()
	s.Cwnd, s.Ssthresh = c.cong.Cwnd, c.cong.Ssthresh
	s.Flight, s.SndWnd = c.flight(), int(c.sndWnd)
	s.MinRTTNs, s.ReoWndNs = c.rtt.minRTT(), c.reoWnd()
	s.State, s.Recovery, s.RTTVarNs, s.Backoff = c.state, c.recoveryState(), c.rtt.rttvar,
		int(c.rtt.backoff)
	s.EMSS, s.PeerMSS, s.RcvMSS, s.RcvWnd = c.EMSS(), int(c.peerMSS), int(c.rcvMSS), c.promised()
	s.Sacked, s.Lost, s.Resent, s.Held = c.sent.sacked, c.sent.lost, c.sent.resent, c.held.octets()
	s.Delivered, s.ReorderingSeen = c.AckedOffset()+uint64(c.sent.sacked), c.reo.seen
	if c.mem.cfg.Pacing {
		s.PacingRate = pacingRate(c.cong.Cwnd, c.cong.Ssthresh, c.rtt.srtt)
	}
	return s
}

func (c *Conn) recoveryState() RecoveryState {
	switch rv := &c.recovery; {
	case rv.phase == phaseLoss:
		return RecoveryLoss
	case rv.phase == phaseRecovery:
		return RecoveryFast
	case c.ecn.on && c.flight() > 0 && c.sndUna < c.markedTo:
		return RecoveryCWR
	case c.sent.sackedRecs > 0 || rv.dupAcks > 0:
		return RecoveryDisorder
	}
	return RecoveryOpen
}

// patience is for how many retransmission timeouts a repair may show nothing: what is sent again at
// the first may be lost, and the next takes twice as long.
const patience = 4

// Repairing says that octets are outstanding because they were lost, and not because the peer takes
// its time: its window is open, and it has acknowledged a whole segment of what is sent again
// within atLeast nanoseconds, or within four retransmission timeouts as they were then.
func (c *Conn) Repairing(now, atLeast int64) bool {
	rv := &c.recovery
	if rv.phase == phaseOpen || rv.repairedAt == 0 || c.sndWnd == 0 {
		return false
	}
	rto := c.rtt.scaled(&c.mem.cfg, c.rtt.backoff-min(c.timers.expiries, c.rtt.backoff))
	return now-rv.repairedAt <= max(atLeast, patience*rto)
}

// Timeouts is Stats().Timeouts alone.
func (c *Conn) Timeouts() uint32 { return uint32(c.stats.timeouts) }
