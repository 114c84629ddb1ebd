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

// State is a snapshot.
func (q *Engine) State() State { return State(q.state.Load()) }

// Move goes from one state to another; false: it is in a third.
func (q *Engine) Move(from, to State) bool { return q.state.CompareAndSwap(uint32(from), uint32(to)) }

// Leave goes from service towards the end. A state nearer to it stays.
func (q *Engine) Leave(to State) {
	if s := q.State(); s == RTS || s == Closing && to != Closing {
		q.state.Store(uint32(to))
	}
}

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
