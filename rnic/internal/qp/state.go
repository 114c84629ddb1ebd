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

// State is a snapshot. Any goroutine.
func (q *Engine) State() State { return State(q.state.Load()) }

// Move goes from one state to another; false: the engine is not in from.
func (q *Engine) Move(from, to State) bool { return q.state.CompareAndSwap(uint32(from), uint32(to)) }

// Leave goes from RTS to a state that is nearer to the end, or from Closing to any but Closing. In
// every other state it does nothing.
func (q *Engine) Leave(to State) {
	if s := q.State(); s == RTS || s == Closing && to != Closing {
		q.state.Store(uint32(to))
	}
}

// Event is something that happened and has no completion. rnic has the same ones, and says what
// each means.
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
