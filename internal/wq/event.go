package wq

import "fmt"

// EventKind says what an asynchronous event is about.
type EventKind uint8

const (
	// QP left service for an error in what one end had sent: Err is a *TerminateError
	EventTerminated EventKind = iota + 1
	// QP's connection was lost, or ended here for want of resources or a bad local range: Err
	EventFailed
	// QP's peer has closed its half in order, before we closed ours
	EventPeerClosed
	// Count buffers are left in SRQ, fewer than SharedReceiveQueue.Arm asked for
	EventSRQLimit
	// a buffer of an SRQ had no place in CQ for its Completion: QP leaves service, too
	EventCQOverflow
	// Count receive buffers of QP are posted and not completed, fewer than Arm asked for
	EventReceiveLow
	// Count receive buffers of QP are begun and not delivered, more than Arm asked for
	EventReceiveHigh
	EventSlowPath // QP's Stats.SlowPath is Count, more than Arm asked for
	EventKinds    // how many there are, and none
)

func (k EventKind) String() string {
	names := [...]string{
		"no event", "terminated", "failed", "peer closed", "SRQ limit", "CQ overflow",
		"receive low-water", "receive high-water", "slow path",
	}
	if k < EventKinds {
		return names[k]
	}
	return fmt.Sprintf("event %d", uint8(k))
}
