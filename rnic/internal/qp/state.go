package qp

// State of an engine. rnic.State has the same ones, and says what each means.
type State uint32

const (
	Idle State = iota
	Connecting
	RTS
	Closing
	Terminating
	Error
	Closed
)

// Event is something that happened without a work request to complete for it, as rnic.Event says.
type Event uint8

const (
	EventTerminated Event = iota + 1
	EventFailed
	EventPeerClosed
	EventSRQLimit
	EventCQOverflow
	EventReceiveLow
	EventReceiveHigh
	EventSlowPath
)
