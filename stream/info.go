package stream

import (
	"context"

	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
	"github.com/rnicd/rnicd/tcp/cc"
)

// Info is what is known of a connection's transport.
type Info struct {
	TCP        tcp.Stats
	Congestion string // the algorithm's name
	EMSS       int    // octets a full segment carries
	Acked      uint64 // octets of ours that the peer has acknowledged
	Unacked    uint64 // octets written that it has not
}

// SetCongestion chooses the congestion control by its name: cc.Names.
func (c *Conn) SetCongestion(name string) error {
	a, err := cc.ByName(name)
	if err == nil {
		err = c.ended(c.u.state.Load())
	}
	if err != nil {
		return c.opError("set", err)
	}
	c.u.congestion.Store(&a)
	c.u.ask(askOptions)
	return nil
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
	return Info{
		TCP: c.Stats(), Congestion: c.Congestion(), EMSS: c.EMSS(), Acked: u.acked, Unacked: u.written.Load() - u.acked,
	}
}
