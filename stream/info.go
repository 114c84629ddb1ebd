package stream

import (
	"context"

	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// Info is the state of a connection's transport.
type Info struct {
	TCP        tcp.Stats
	Congestion string // the algorithm's name
	EMSS       int    // octets a full segment carries
	Acked      uint64 // octets of ours that the peer has acknowledged
	Unacked    uint64 // octets written that it has not (SIOCOUTQ)
	Unsent     uint64 // of these, octets that are in no segment yet (SIOCOUTQNSD)
	Unread     uint64 // octets in order that were not read
	// trouble that may pass, since the peer acknowledged something: stack.ErrStalled, ErrNoRoute,
	// ErrNetUnreachable
	SoftError error
}

// Info blocks until the Poller has answered or ctx ends. For a connection that has ended it returns
// the state at the end.
func (c *Conn) Info(ctx context.Context) (Info, error) {
	ready := make(chan Info, 1)
	err := submit(ctx, c.u.shared.poller, func() {
		if c.u.conn != nil {
			ready <- c.u.measure(c.u.conn)
			return
		}
		ready <- c.u.info
	})
	if err == nil {
		select {
		case i := <-ready:
			return i, nil
		case <-ctx.Done():
			return Info{}, c.opError("info", giveUp(ctx))
		}
	}
	if c.u.state.Load()&stateDead != 0 {
		return c.u.info, nil
	}
	return Info{}, c.opError("info", err)
}

// InfoOf is Info of the stream above c; false: there is none. Poller goroutine.
func InfoOf(c *stack.Conn) (i Info, ok bool) {
	u, ok := c.Upper().(*upper)
	if !ok {
		return i, false
	}
	return u.measure(c), true
}

// measure is for the Poller's goroutine.
func (u *upper) measure(c *stack.Conn) Info {
	written := u.written.Load()
	i := Info{
		TCP: c.Stats(), Congestion: c.Congestion(), EMSS: c.EMSS(), Acked: u.acked,
		Unacked: written - u.acked,
		Unsent:  written - min(written, c.SentOffset()), SoftError: c.SoftError(),
	}
	if !u.readShut {
		i.Unread = u.edge - u.rx.taken.Load()
	}
	return i
}
