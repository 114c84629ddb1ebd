package stream

import (
	"cmp"
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
	readable, writable interest
	f                  atomic.Pointer[func(Readiness)]
}

// interest is one direction's: in the lowest bit, whether it is armed; above that, how often it
// was.
type interest struct{ word atomic.Uint64 }

// arm returns what disarm takes: 0 where it was armed already, for a look before this one.
func (i *interest) arm() (ticket uint64) {
	for {
		was := i.word.Load()
		if now := was + 2 | 1; i.word.CompareAndSwap(was, now) {
			if was&1 != 0 {
				return 0
			}
			return now
		}
	}
}

// disarm takes an arm back, unless it has led to a call or another look relies on it.
func (i *interest) disarm(ticket uint64) {
	if ticket != 0 {
		i.word.CompareAndSwap(ticket, ticket&^1)
	}
}

// take says whether it was armed, once. It costs one load when no goroutine waits.
func (i *interest) take() bool {
	for {
		was := i.word.Load()
		if was&1 == 0 {
			return false
		}
		if i.word.CompareAndSwap(was, was&^1) {
			return true
		}
	}
}

// tell calls the hook, if it is armed. Poller's.
func (n *notice) tell(what Readiness) {
	var now Readiness
	if what&Readable != 0 && n.readable.take() {
		now |= Readable
	}
	if what&Writable != 0 && n.writable.take() {
		now |= Writable
	}
	if now == 0 {
		return
	}
	if f := n.f.Load(); f != nil {
		(*f)(now)
	}
}

// readinessOf is what requests say of the hook.
func readinessOf(requests uint32) (what Readiness) {
	if requests&requestReadable != 0 {
		what |= Readable
	}
	if requests&requestWritable != 0 {
		what |= Writable
	}
	return what
}

// SetNotify has f called when what was not ready becomes so: for programs that serve many
// connections with few goroutines, as with epoll. A call of Ready, TryRead or TryWrite that finds
// nothing arms it for that direction, and then it is called once; so at most one call for each
// direction is outstanding, and a channel with room for two values of each connection is never
// full. Calls may be spurious. nil removes the hook.
//
// f runs on the Poller's goroutine: it must not block or call methods of a Conn. It is not called
// for what this end does, such as Close.
func (c *Conn) SetNotify(f func(Readiness)) {
	if f == nil {
		c.u.notice.f.Store(nil)
		return
	}
	c.u.notice.f.Store(&f)
}

// Ready returns which calls of want would not block now, and arms SetNotify's hook for the others.
func (c *Conn) Ready(want Readiness) (ready Readiness) {
	n := &c.u.notice
	if want&Readable != 0 {
		ready |= look(&n.readable, Readable, c.readable)
	}
	if want&Writable != 0 {
		ready |= look(&n.writable, Writable, c.roomy)
	}
	return ready
}

// look says what, or arms i: it looks once more then, as the Poller may not have told it.
func look(i *interest, what Readiness, is func() bool) Readiness {
	if is() {
		return what
	}
	ticket := i.arm()
	if !is() {
		return 0
	}
	i.disarm(ticket)
	return what
}

func (c *Conn) readable() bool {
	u := &c.u
	state := u.state.Load() // before the ring: nothing is pushed after these bits
	return u.rx.head.Load() != u.rx.tail.Load() || state&(stateEOF|stateDead) != 0 ||
		c.ended(state) != nil ||
		c.readEnded.Load() || isDone(c.readDeadline.wait())
}

// roomy says whether Write could put something into the send buffer, or gives an error. While
// another goroutine writes it could not.
func (c *Conn) roomy() bool {
	return c.writable(c.writeDeadline.wait()) != nil || !c.writing.taken() && c.u.tx.room()
}

// TryRead is Read that does not block: EAGAIN (errors.Is) when there is nothing, or another
// goroutine reads.
func (c *Conn) TryRead(p []byte) (int, error) {
	i, ticket := &c.u.notice.readable, uint64(0)
	if !c.reading.tryEnter() {
		if ticket = i.arm(); !c.reading.tryAgain() {
			if c.u.state.Load()&stateDead == 0 {
				return 0, c.opError("read", syscall.EAGAIN)
			}
			c.reading.enter() // no Read blocks any more
		}
		i.disarm(ticket)
	}
	defer c.leaveRead()
	for {
		n, state, err := c.readNow(p, c.readDeadline.wait())
		if n > 0 || err != nil || len(p) == 0 {
			return n, err
		}
		ticket = i.arm()
		if c.quiet(state) {
			return 0, c.opError("read", syscall.EAGAIN)
		}
		i.disarm(ticket)
	}
}

// TryWrite is Write that does not block: it returns how many octets of p found room, which may be
// less than all, and EAGAIN (errors.Is) when none did, or another goroutine writes.
func (c *Conn) TryWrite(p []byte) (int, error) {
	i, ticket := &c.u.notice.writable, uint64(0)
	if !c.writing.tryEnter() {
		if ticket = i.arm(); !c.writing.tryAgain() {
			return 0, c.opError("write", cmp.Or[error](c.writable(c.writeDeadline.wait()), syscall.EAGAIN))
		}
		i.disarm(ticket)
	}
	defer c.leaveWrite()
	for armed := false; ; armed = true {
		if err := c.writable(c.writeDeadline.wait()); err != nil {
			return 0, c.opError("write", err)
		}
		if n := c.put(p); n > 0 || len(p) == 0 {
			if armed {
				i.disarm(ticket)
			}
			c.u.tx.end()
			c.unhold()
			c.u.wake()
			return n, nil
		}
		if armed {
			return 0, c.opError("write", syscall.EAGAIN)
		}
		ticket = i.arm()
	}
}

// Unread is how many octets Read would give without blocking (FIONREAD).
func (c *Conn) Unread() int {
	u := &c.u
	for !u.gate.CompareAndSwap(gateIdle, gateBusy) {
		if u.gate.Load() == gateGone { // no Read blocks any more
			c.reading.enter()
			defer c.leaveRead()
			return len(u.rest)
		}
		yield()
	}
	defer u.gate.Store(gateIdle)
	return u.rx.left()
}
