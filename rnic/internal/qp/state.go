package qp

import "github.com/rnicd/rnicd/internal/wq"

// State is a snapshot. Any goroutine.
func (q *Engine) State() wq.State { return wq.State(q.state.Load()) }

// Move goes from one state to another; false: the engine is not in from.
func (q *Engine) Move(from, to wq.State) bool {
	return q.state.CompareAndSwap(uint32(from), uint32(to))
}

// Leave goes from RTS to a state that is nearer to the end, or from Closing to any but Closing. In
// every other state it does nothing.
func (q *Engine) Leave(to wq.State) {
	if s := q.State(); s == wq.RTS || s == wq.Closing && to != wq.Closing {
		q.state.Store(uint32(to))
	}
}
