package stream

import (
	"net"

	"github.com/rnicd/rnicd/stack"
)

// Attach makes a stream of an established connection that another stack.Upper has had: Detach's
// inverse, for MPA that was rejected and leaves the connection as it is (RFC 5044 section 7.1.2
// rules 2 and 3). The first octet to be read is the one at stream offset read; those before it may
// come once more, in a segment that was refused, and are dropped. acked is what the Upper's Acked
// was last told, peerClosed whether it was told of the peer's FIN.
//
// On the Poller's goroutine, in no call of the old Upper's but Woken; nothing that it has been
// pulled for may be left. The Upper gets no further call.
func Attach(p *stack.Poller, s *stack.Conn, read, acked uint64, peerClosed bool, opts Options) (*Conn, error) {
	opts, err := opts.filled()
	if err != nil {
		return nil, err
	}
	c := newConn(pollerStateOf(p), &opts)
	c.remote = net.TCPAddrFromAddrPort(s.Remote())
	c.attach(s)
	u := &c.u
	u.edge, u.acked = read, acked
	u.rx.taken.Store(read)
	u.told.Store(read)
	u.written.Store(s.SentOffset())
	s.SetUpper(u)
	u.Established(s)
	u.window.told, u.window.readAt = read, read
	u.window.passEdge += read
	<-u.opened
	if peerClosed {
		u.PeerClosed(s)
	}
	return c, nil
}
