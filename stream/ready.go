package stream

import (
	"sync/atomic"
	"syscall"
)

// Readiness says which calls would not block.
type Readiness uint32

const (
	Readable Readiness = 1 << iota // Read has octets to give, io.EOF, or an error
	Writable                       // Write has room, or gives an error
)

// notice is the hook of SetNotify. It is armed by a look that found nothing, so each such look
// leads to one call at most.
type notice struct {
	armed atomic.Uint32
	f     atomic.Pointer[func(Readiness)]
}

// tell costs one load when nobody waits. Poller's.
func (n *notice) tell(what Readiness) {
	if n.armed.Load()&uint32(what) == 0 {
		return
	}
	if now := n.armed.And(^uint32(what)) & uint32(what); now != 0 {
		if f := n.f.Load(); f != nil {
			(*f)(Readiness(now))
		}
	}
}

func (n *notice) arm(what Readiness) { n.armed.Or(uint32(what)) }

// SetNotify has f called when what was not ready becomes so: for programs that serve many
// connections with few goroutines, as with epoll. A call of Ready, TryRead or TryWrite that finds
// nothing arms it for that direction, and then it is called once; so at most one call for each
// direction is outstanding, and a channel with room for two values of each connection is never
// full. A call may come although, when one looks, there is nothing. nil takes the hook away.
//
// f runs on the Poller's goroutine: it must not block, and calls no method of a Conn. What this end
// does itself, such as Close, is not told.
func (c *Conn) SetNotify(f func(Readiness)) {
	if f == nil {
		c.u.notice.f.Store(nil)
		return
	}
	c.u.notice.f.Store(&f)
}

// Ready says what of want would not block now, and arms SetNotify's hook for the rest.
func (c *Conn) Ready(want Readiness) Readiness {
	ready := c.ready(want)
	if rest := want &^ ready; rest != 0 {
		c.u.notice.arm(rest)
		if late := c.ready(rest); late != 0 { // since the first look
			c.u.notice.armed.And(^uint32(late))
			ready |= late
		}
	}
	return ready
}

func (c *Conn) ready(want Readiness) (is Readiness) {
	if want&Readable != 0 && c.readable() {
		is |= Readable
	}
	if want&Writable != 0 && (c.writable(c.writeDeadline.wait()) != nil || c.roomy()) {
		is |= Writable
	}
	return is
}

func (c *Conn) readable() bool {
	u := &c.u
	state := u.state.Load() // before the ring: nothing is pushed behind these bits
	return u.rx.head.Load() != u.rx.tail.Load() || state&(stateEOF|stateDead) != 0 || c.ended(state) != nil ||
		c.readEnded.Load() || isDone(c.readDeadline.wait())
}

// roomy says whether Write could put something into the send buffer. While another goroutine writes
// it could not.
func (c *Conn) roomy() bool {
	if !c.writeMu.TryLock() {
		return false
	}
	defer c.writeMu.Unlock()
	return c.u.tx.room()
}

// TryRead is Read that does not block: EAGAIN (errors.Is) when there is nothing, or another
// goroutine reads.
func (c *Conn) TryRead(p []byte) (int, error) {
	if !c.readMu.TryLock() {
		return 0, c.opError("read", syscall.EAGAIN)
	}
	defer c.readMu.Unlock()
	for {
		n, state, err := c.readNow(p, c.readDeadline.wait())
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		c.u.notice.arm(Readable)
		if c.quiet(state) {
			return 0, c.opError("read", syscall.EAGAIN)
		}
		c.u.notice.armed.And(^uint32(Readable))
	}
}

// TryWrite is Write that does not block: it returns how many octets of p found room, which may be
// less than all, and EAGAIN (errors.Is) when none did, or another goroutine writes.
func (c *Conn) TryWrite(p []byte) (int, error) {
	if !c.writeMu.TryLock() {
		return 0, c.opError("write", syscall.EAGAIN)
	}
	defer c.writeMu.Unlock()
	for armed := false; ; armed = true {
		if err := c.writable(c.writeDeadline.wait()); err != nil {
			return 0, c.opError("write", err)
		}
		if n := c.put(p); n > 0 || len(p) == 0 {
			if armed {
				c.u.notice.armed.And(^uint32(Writable))
			}
			c.u.tx.end()
			c.unhold()
			c.u.wake()
			return n, nil
		}
		if armed {
			return 0, c.opError("write", syscall.EAGAIN)
		}
		c.u.notice.arm(Writable)
	}
}

// Unread is how many octets Read would give without blocking (FIONREAD).
func (c *Conn) Unread() int {
	u := &c.u
	for !u.gate.CompareAndSwap(gateIdle, gateBusy) {
		if u.gate.Load() == gateGone { // no Read blocks any more
			c.readMu.Lock()
			defer c.readMu.Unlock()
			return len(u.rest)
		}
		yield()
	}
	defer u.gate.Store(gateIdle)
	return u.rx.left()
}
