package connect

import (
	"time"

	"github.com/rnicd/rnicd/mpa"
)

// Waking a peer up. A Responder's Reply says that it may be sent to. But Linux siw sends its Reply
// before it listens for data on the socket, and an FPDU that comes in between lies there until more
// octets arrive. An Initiator that may have sent something so early sends an RDMA Write of no
// octets a while later (Param.WakeUp). Its STag is not checked (RFC 5041 section 5.2), and no ULP
// sees it. To any other peer it is one header more to read.

// planWakeUp sets the timer when an Initiator enters full operation.
func (c *Connection) planWakeUp() {
	if wait := c.endpoint.param.WakeUp; wait > 0 && c.dialect != mpa.Culley02 {
		c.setTimer(timerWakeUp, wait)
	}
}

// wakeUpAgainMin is how soon an owed message is looked for again, whatever Param.WakeUp says.
const wakeUpAgainMin = time.Millisecond

// wakeUp is what that timer does. What is sent from now on needs no wake-up, except the message
// of a peer-to-peer start-up, which a busy machine may not have sent by now, nor a busy peer
// listen: that is waited for, and then the whole time once more, for it may have left just now.
func (c *Connection) wakeUp(late bool) {
	if owes := c.engine.Owes(); owes || late {
		next := timerWakeUp
		if owes {
			next = timerWakeUpLate
		}
		c.setTimer(next, max(c.endpoint.param.WakeUp, wakeUpAgainMin))
		return
	}
	if c.engine.OweWakeUp() {
		c.Host.Startup.WakeUps.Add(1)
		c.Transport.Send()
	}
}
