package connect

import "github.com/rnicd/rnicd/mpa"

// Waking a peer up. A Responder's Reply says that it may be sent to; but Linux siw sends it before
// it has its ear at the socket, and an FPDU that comes in between lies there until more octets
// arrive. An Initiator that has sent something so early, and wants to be sure, sends an RDMA Write
// of no octets a while later: of that the STag is not looked at (RFC 5041 section 7.2), and no ULP
// sees it. Any other peer has one header more to read.

// planWakeUp sets the timer at the Initiator's entry into full operation.
func (l *Connection) planWakeUp() {
	if l.wakeUpPlanned = l.endpoint.param.WakeUp > 0 && l.dialect != mpa.Culley02; l.wakeUpPlanned {
		l.Transport.SetTimer(l.Transport.Now() + int64(l.endpoint.param.WakeUp))
	}
}

// wakeUp: the time has come. What is sent from now on needs none.
func (l *Connection) wakeUp() {
	l.wakeUpPlanned = false
	if l.engine.OweWakeUp() {
		l.Host.Startup.WakeUps.Add(1)
		l.Transport.Send()
	}
}
