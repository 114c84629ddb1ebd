package stream

import (
	"time"

	"github.com/rnicd/rnicd/stack"
)

// holdOf bits say why a last segment that is not full waits for more octets.
const (
	holdCork uint32 = 1 << iota // SetCork(true)
	holdMore                    // the last call was WriteMore
)

// corkMax is how long it waits at the most: Linux's ceiling (tcp(7), TCP_CORK).
const corkMax = 200 * time.Millisecond

// cork is the Poller's side of it.
type cork struct {
	timing bool // the timer runs
	due    bool // and has fired: what waits goes
}

// SetCork keeps a last segment that is not full back (true) until SetCork(false), as TCP_CORK does:
// until there are octets that fill it, the connection's sending half is closed, or 200 ms have
// passed.
func (c *Conn) SetCork(on bool) error {
	if err := c.ended(c.u.state.Load()); err != nil {
		return c.opError("set", err)
	}
	if on {
		c.u.hold.Or(holdCork)
		return nil
	}
	c.u.hold.And(^holdCork)
	c.u.wake()
	return nil
}

// holdBack says whether what is to be sent waits for more. Poller's, in Pull.
func (u *upper) holdBack(c *stack.Conn) bool {
	left := int64(u.written.Load() - c.SentOffset())
	k := &u.cork
	switch {
	case left >= int64(c.EMSS()), k.due, u.writer.waiting.Load(), u.finAsked, u.detach.Load() != nil:
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

// over is the timer.
func (k *cork) over(c *stack.Conn) {
	if k.timing {
		k.timing, k.due = false, true
		c.Send()
	}
}
