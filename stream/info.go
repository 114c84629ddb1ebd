package stream

import (
	"context"

	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// Info is what is known of a connection's transport.
type Info struct {
	TCP     tcp.Stats
	EMSS    int    // octets a full segment carries
	Acked   uint64 // octets of ours that the peer has acknowledged
	Unacked uint64 // octets in segments that it has not
}

// Info asks the Poller; it blocks until that has answered or ctx ends. Of a connection that is over it tells how things
// stood at the end.
func (c *Conn) Info(ctx context.Context) (Info, error) {
	ready := make(chan Info, 1)
	err := submit(ctx, c.u.lane.poller, func() {
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

// measure is for the Poller's goroutine.
func (u *upper) measure(c *stack.Conn) Info {
	return Info{TCP: c.Stats(), EMSS: c.EMSS(), Acked: u.acked, Unacked: c.SentOffset() - u.acked}
}
