package connect

import (
	"net"
)

// A rejected start-up leaves MPA with the TCP connection open, and the ULP may use it otherwise
// (RFC 5044 section 7.1.2 rules 2 and 3, DECISIONS 10): ConnRequest.RejectStream and
// ConnParam.KeepRejected give it back as a stream, at the octet after the Reply in either
// direction.
//
//	reject or rejected --leave--> what is left of start-up goes out --giveBack--> a net.Conn; the connection is over

// leave gives the connection back.
func (l *Connection) leave() {
	l.phase = phaseLeaving
	l.Transport.SetTimer(l.Transport.Now() + int64(lingerTimeout))
	if len(l.out) == 0 {
		l.Transport.GiveBack()
		return
	}
	l.Transport.Send()
}

// HandBack ends the connection for nc.
func (l *Connection) HandBack(nc net.Conn) {
	l.Returned = nc
	if re, ok := l.Err.(*Rejection); ok {
		re.Conn = nc
	}
	l.Over(nil)
}

// Discard ends the connection that is not wanted any more, and may be a stream by now.
func (l *Connection) Discard() {
	if l.Returned == nil {
		l.Fail(ErrClosed)
		return
	}
	go func() { _ = l.Returned.Close() }() // not for the goroutine that turns the Poller
}
