package connect

import (
	"net"
)

// A rejected start-up leaves MPA with the TCP connection open, and the ULP may use it otherwise
// (RFC 5044 section 7.1.2 rules 2 and 3, DECISIONS 10). Reject with keep and Param.KeepRejected
// give it back as a stream, at the octet after the Reply in either direction.
//
//	Reject or rejected --toStream--> the Reply goes out --GiveBack, HandBack--> a net.Conn; the connection is over

// toStream has the transport give the connection back as soon as the Reply is out.
func (c *Connection) toStream() {
	c.phase = phaseToStream
	c.setTimer(timerHandBack, LingerTimeout)
	if len(c.out) == 0 {
		c.Transport.GiveBack()
		return
	}
	c.Transport.Send()
}

// HandBack implements transport.Upper. The connection is over; nc is what it has become.
func (c *Connection) HandBack(nc net.Conn) {
	c.Returned = nc
	if re, ok := c.Err.(*Rejection); ok {
		re.Conn = nc
	}
	c.over(nil)
}

// Discard ends a connection that is no longer wanted. It may be a stream by now.
func (c *Connection) Discard() {
	if c.Returned == nil {
		c.Fail(ErrClosed)
		return
	}
	go func() { _ = c.Returned.Close() }() // the goroutine that turns the Poller must not block
}
