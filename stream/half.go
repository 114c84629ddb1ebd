package stream

import (
	"sync"
	"sync/atomic"
)

// half is one direction of a Conn: one call at a time is within. Who finds it taken and does not
// wait arms the notice first, so that leave can see to it that the hook is called: what the call
// within does need not make the Poller say anything.
type half struct {
	mu     sync.Mutex
	within atomic.Bool
	missed atomic.Bool // somebody found it taken
}

// enter waits.
func (h *half) enter() {
	h.mu.Lock()
	h.within.Store(true)
}

// tryEnter does not wait.
func (h *half) tryEnter() bool {
	if !h.mu.TryLock() {
		return false
	}
	h.within.Store(true)
	return true
}

// tryAgain is tryEnter after arm: when it fails, a leave that is still to come says missed.
func (h *half) tryAgain() bool {
	h.missed.Store(true)
	return h.tryEnter()
}

// taken says whether a call is within. When it is, a leave that is still to come says missed.
func (h *half) taken() bool {
	if !h.within.Load() {
		return false
	}
	h.missed.Store(true)
	return h.within.Load()
}

// leave says whether somebody has found it taken.
func (h *half) leave() (missed bool) {
	h.within.Store(false)
	h.mu.Unlock()
	return h.missed.Load() && h.missed.Swap(false)
}

func (c *Conn) leaveRead() {
	if c.reading.leave() {
		c.u.request(requestReadable)
	}
}

func (c *Conn) leaveWrite() {
	if c.writing.leave() {
		c.u.request(requestWritable)
	}
}
