package qp

import "github.com/rnicd/rnicd/mpa"

// Stats count what an engine has done.
type Stats struct {
	Receive       mpa.ReceiverStats
	Placed        Placed
	FPDUsSent     uint64
	PayloadSent   uint64
	MessagesSent  uint64
	MessagesRecvd uint64
	WritesRecvd   uint64
	ReadsServed   uint64 // Reads and atomics
	SharedTaken   uint64
	SharedHeld    int
	SlowPath      uint64

	RefusedPending uint64

	NotReadySent, NotReadyRecvd uint64
}

// Stats are those of an engine that is in service; before that, and after Finish, zero.
func (q *Engine) Stats() (s Stats) {
	q.ReadStats(&s)
	return s
}

// ReadStats is Stats into s, which is zero.
func (q *Engine) ReadStats(s *Stats) {
	if q.service == nil {
		return
	}
	s.Receive, s.Placed = q.recv.rx.Stats(), q.recv.placed
	s.FPDUsSent, s.PayloadSent, s.MessagesSent = q.send.fpdus, q.send.payload, q.send.messages
	s.MessagesRecvd, s.WritesRecvd, s.ReadsServed = q.recv.messages, q.recv.writes, q.respond.served
	s.NotReadySent, s.NotReadyRecvd = q.ack.notReadyOut, q.ack.notReadyIn
	s.SharedTaken, s.SharedHeld = q.recv.taken, q.sharedHeld()
	s.SlowPath, s.RefusedPending = q.recv.slowPath(), q.recv.refused
}

// Totals are what all engines of one Poller have done.
type Totals struct {
	FPDUsIn, FPDUsOut  uint64
	PayloadOut         uint64 // octets of DDP payload
	Placed             Placed
	Reassembled, Ahead uint64 // FPDUs: that came in several segments; that were placed ahead of a gap
	CRCErrors          uint64 // connections ended for one
	RefusedPending     uint64
	// Terminates received; connections ended here for an error of the peer's
	TerminatesIn, Ended uint64
	ServicesMade        uint64 // for engines that went into service when none was kept (servicesKept)
}

// Placed counts payload octets by the way they were placed.
type Placed struct {
	Direct      uint64 // from one segment, which held the whole frame
	Reassembled uint64 // from frames that came in several segments
	OutOfOrder  uint64 // either, ahead of a gap
}

// sharedHeld is how many buffers of the SRQ the engine holds.
func (q *Engine) sharedHeld() int {
	if q.SRQ == nil {
		return 0
	}
	return int(q.posted.Load())
}

// slowPath is how often octets cost more than a frame that comes whole in one segment, without
// ending the stream: they were reassembled, copied together, or refused.
func (r *recvHalf) slowPath() uint64 {
	s := r.rx.Stats()
	return s.Reassembled + s.Coalesced + s.RefusedBudget + s.RefusedCRC + s.RefusedRuns +
		s.RefusedUnverified + s.RefusedSpare + r.refused
}
