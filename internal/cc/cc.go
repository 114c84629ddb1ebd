// Package cc is congestion control: how many octets one connection may have in the network. It is
// arithmetic on a State that the tcp package keeps in its Conn: no clock, no memory of its own,
// nothing allocated. It is integers throughout: a compiler may fuse a floating-point product and
// sum on one platform and not on another, and a seed must replay alike.
//
// tcp detects losses, decides what is retransmitted and how fast a reduction is made (PRR); an
// Algorithm says how far cwnd is reduced and how it grows. It is called at most once per segment
// received, and once per loss episode. Units are octets and nanoseconds.
package cc

import "unsafe"

// State of one connection. Cwnd and Ssthresh are read by tcp, which also lowers Cwnd while it
// recovers; the rest belongs to the Algorithm. It holds no pointers, and is the union of what all
// algorithms need: 128 octets at most. Every connection has one, so what no window exceeds has 32
// bits.
type State struct {
	Cwnd, Ssthresh int

	cubic cubic
	prior prior
	// The round trip that HyStart++ or DCTCP counts in ends when this is acknowledged; DCTCP: 0
	// before the first.
	roundEnd uint64
	hystart  hystart
	dctcp    dctcp
	// Towards the next growth of Cwnd in congestion avoidance, less than Cwnd was. Reno: octets
	// acknowledged, an SMSS for Cwnd of them. CUBIC: octets times octets, one octet for Cwnd of
	// them.
	credit int32
}

// HotOctets are the first of a State that an acknowledgment touches whose connection cwnd does
// not hold back.
const HotOctets = unsafe.Offsetof(State{}.cubic) + unsafe.Offsetof(cubic{}.curve) +
	unsafe.Sizeof(curve{}.epoch)

// prior is what Undo restores.
type prior struct {
	cwnd, ssthresh int32
	curve          curve // CUBIC
}

// Sample is what one acknowledgment said.
type Sample struct {
	Now int64
	// octets newly acknowledged: cumulatively, or on a path that reorders in whatever order
	Acked        int
	Delivered    int    // octets newly known to have arrived, by ACK or SACK
	Marked       int    // of Acked, how many an ECE covers
	Flight       int    // outstanding before
	SMSS         int    // EMSS: what a full segment carries
	RTT          int64  // measured by it; -1: nothing was
	SRTT, MinRTT int64  // 0: nothing was measured yet
	Una, Nxt     uint64 // SND.UNA and SND.NXT after it: for counting rounds
	Limited      bool   // cwnd was what held the sender back
	Recovering   bool   // in fast recovery: Cwnd must not grow
	AfterTimeout bool   // what a timeout found lost is being repaired
	Paced        bool   // what cwnd admits does not go at once
}

// Cause of a reduction.
type Cause uint8

const (
	Loss Cause = iota // segments were lost
	Mark              // the network marked instead of dropping: RFC 3168 section 6.1.2
)

// ExactECN is what an Algorithm implements that is of use only over ECN with a feedback that says
// which octets were marked (RFC 8257 section 3.2), instead of RFC 3168's ECE until CWR. tcp asks
// once per connection: it negotiates ECN, answers a change of the CE mark with an immediate ACK,
// sets ECE from the last CE mark alone, and fills Sample.Marked octet by octet.
type ExactECN interface{ ExactECN() bool }

// Algorithm decides how Cwnd moves. Implementations have no state of their own: one value serves
// all connections.
type Algorithm interface {
	// Name is what a configuration calls it: "reno", "cubic", "dctcp".
	Name() string
	// Start begins a connection with an initial window of iw octets.
	Start(w *State, iw int)
	// Acked takes every acknowledgment of new octets; it grows Cwnd when Limited and not Recovering.
	Acked(w *State, a Sample)
	// Reduce is the begin of a congestion episode with flight octets outstanding, those included
	// that the same burst of ACKs acknowledged: it sets Ssthresh from that, or from Cwnd. Cwnd is
	// tcp's to lower to it, afterwards. A Mark comes at most once per window (RFC 3168 section
	// 6.1.2).
	Reduce(w *State, why Cause, now int64, flight, smss int)
	// Timeout is an RTO: it sets Ssthresh, and Cwnd to the loss window. first is false when the same
	// segment timed out before.
	Timeout(w *State, now int64, flight, smss int, first bool)
	// Undo takes the latest Reduce or first Timeout back: it answered no congestion.
	Undo(w *State)
}

// CwndMax keeps sums far from overflow; no window is larger.
const CwndMax = 1 << 30

// save remembers what Undo restores.
func (w *State) save() { w.prior = prior{int32(w.Cwnd), int32(w.Ssthresh), w.cubic.curve} }

// restore is the part of Undo that all algorithms share.
func (w *State) restore() {
	w.Cwnd = max(w.Cwnd, int(w.prior.cwnd))
	w.Ssthresh = max(w.Ssthresh, int(w.prior.ssthresh))
}

// floor of a reduction. A loss leaves two segments (RFC 5681 equation 4). Marks go on to one (RFC
// 3168 section 6.1.2, RFC 9438 section 4.6): where that wants cwnd at one segment and ssthresh at
// two, both are one here, and congestion avoidance takes the same round trip to two segments that
// slow start would.
func floor(why Cause, smss int) int {
	if why == Mark {
		return smss
	}
	return 2 * smss
}
