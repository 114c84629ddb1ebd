package stream

import (
	"net"

	"github.com/rnicd/rnicd/stack"
)

// Attach makes a stream of an established connection that another stack.Upper has had. It is the
// inverse of Detach, for a connection on which MPA was rejected (RFC 5044 section 7.1.2 rules 2 and
// 3). The first octet to be read is at stream offset read; earlier octets may arrive again, in a
// segment that was refused, and are dropped.
//
// On the Poller's goroutine, and within calls of the old Upper only in Woken. The old Upper must
// have nothing left to send. It gets no further call.
func Attach(p *stack.Poller, s *stack.Conn, read uint64, opts Options) (*Conn, error) {
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	c := newConn(pollerStateOf(p), &opts)
	c.remote = net.TCPAddrFromAddrPort(s.Remote())
	c.attach(s)
	u := &c.u
	u.edge, u.acked = read, s.AckedOffset()
	u.rx.taken.Store(read)
	u.told.Store(read)
	u.written.Store(s.SentOffset())
	s.SetUpper(u)
	u.Established()
	u.window.told, u.window.readAt = read, read
	u.window.passEdge += read
	<-u.opened
	if s.PeerClosed() {
		u.PeerClosed()
	}
	return c, nil
}
