package qp

import "github.com/rnicd/rnicd/mpa"

// Stats count what an engine has done; Reads are atomics too.
type Stats struct {
	Receive       mpa.ReceiverStats
	Placed        Placed
	FPDUsSent     uint64
	PayloadSent   uint64
	MessagesSent  uint64
	MessagesRecvd uint64
	WritesRecvd   uint64
	ReadsServed   uint64
	SharedTaken   uint64
	SharedHeld    int
	SlowPath      uint64

	RefusedPending uint64
}

// Stats of an engine in service. Driver's goroutine.
func (q *Engine) Stats() Stats {
	return Stats{
		Receive:       q.recv.rx.Stats(),
		Placed:        q.recv.placed,
		FPDUsSent:     q.send.fpdus,
		PayloadSent:   q.send.payload,
		MessagesSent:  q.send.messages,
		MessagesRecvd: q.recv.messages,
		WritesRecvd:   q.recv.writes,
		ReadsServed:   q.respond.served,
		SharedTaken:   q.recv.taken,
		SharedHeld:    q.sharedHeld(),
		SlowPath:      q.recv.slowPath(),

		RefusedPending: q.recv.refused,
	}
}

// Placed counts payload octets by the way they took.
type Placed struct {
	Direct      uint64 // from the one segment that held their whole frame
	Reassembled uint64 // of frames that had to wait for another segment
	OutOfOrder  uint64 // of either kind, placed before an earlier gap was filled
}

// sharedHeld is how many buffers of the SRQ this end holds.
func (q *Engine) sharedHeld() int {
	if q.SRQ == nil {
		return 0
	}
	return int(q.posted.Load())
}

// slowPath is how often octets took a way that costs more than a frame that comes whole in one
// segment, and that ends no stream.
func (r *recvHalf) slowPath() uint64 {
	s := r.rx.Stats()
	return s.Reassembled + s.Coalesced + s.RefusedBudget + s.RefusedCRC + s.RefusedRuns + s.RefusedUnverified + s.RefusedSpare + r.refused
}
