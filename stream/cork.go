package stream

import (
	"time"

	"github.com/rnicd/rnicd/stack"
)

// These bits say why a last segment that is not full waits for more octets.
const (
	holdCork uint32 = 1 << iota // SetCork(true)
	holdMore                    // the last call was WriteMore
)

// corkMax is how long it waits at the most: Linux's ceiling (tcp(7), TCP_CORK).
const corkMax = 200 * time.Millisecond

// cork is the Poller's side of it.
type cork struct {
	timing bool // the timer runs
	due    bool // what waits goes: the timer has fired, or release was called
}

// SetCork keeps a last segment that is not full back (true) until SetCork(false), as TCP_CORK does:
// until there are octets that fill it, the connection's sending half is closed, or 200 ms have
// passed.
func (c *Conn) SetCork(on bool) error {
	if err := c.ended(c.u.state.Load()); err != nil {
		return c.opError("set", err)
	}
	if on {
		c.u.holdOn(holdCork)
		return nil
	}
	c.u.hold.And(^holdCork)
	c.u.wake()
	return nil
}

// holdOn holds back what is written from now on.
func (u *upper) holdOn(why uint32) {
	if u.hold.Load() == 0 {
		u.heldFrom.Store(u.written.Load())
	}
	u.hold.Or(why)
}

// holdBack says whether what is to be sent, from offset at on, waits for more. Poller's, in Pull.
func (u *upper) holdBack(c *stack.Conn, at uint64) bool {
	left := int64(u.written.Load() - at)
	k := &u.cork
	switch {
	case left >= int64(c.EMSS()), k.due, at < u.heldFrom.Load(), u.writer.waiting.Load(), u.finAsked,
		u.detach.Load() != nil:
		if k.timing && !u.closed {
			c.SetTimer(0)
		}
		*k = cork{}
		return false
	case left > 0 && !k.timing:
		k.timing = true
		c.SetTimer(u.shared.poller.Now() + int64(corkMax))
	}
	return true
}

// release lets what is held back go; what is written later waits again. Poller's.
func (u *upper) release(c *stack.Conn) {
	if u.hold.Load() != 0 && u.tx.pending() {
		u.cork.due = true
		c.Send()
	}
}

// over is the timer.
func (k *cork) over(c *stack.Conn) {
	if k.timing {
		k.timing, k.due = false, true
		c.Send()
	}
}
