package connect

import "github.com/rnicd/rnicd/mpa"

// Waking a peer up. A Responder's Reply says that it may be sent to. But Linux siw sends its Reply
// before it listens for data on the socket, and an FPDU that comes in between lies there until more
// octets arrive. An Initiator that may have sent something so early sends an RDMA Write of no
// octets a while later (Param.WakeUp). Its STag is not checked (RFC 5041 section 5.2), and no ULP
// sees it. To any other peer it is one header more to read.

// planWakeUp sets the timer when an Initiator enters full operation.
func (c *Connection) planWakeUp() {
	if c.wakeUpPlanned = c.endpoint.param.WakeUp > 0 && c.dialect != mpa.Culley02; c.wakeUpPlanned {
		c.Transport.SetTimer(c.Transport.Now() + int64(c.endpoint.param.WakeUp))
	}
}

// wakeUp is what that timer does. What is sent from now on needs no wake-up, except the message of a
// peer-to-peer start-up, which a busy machine may not have sent by now: it is waited for.
func (c *Connection) wakeUp() {
	if c.engine.Owes() {
		c.planWakeUp()
		return
	}
	c.wakeUpPlanned = false
	if c.engine.OweWakeUp() {
		c.Host.Startup.WakeUps.Add(1)
		c.Transport.Send()
	}
}
