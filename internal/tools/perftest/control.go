package perftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// ErrClosed: the peer closed its connection in order, before the handshake was over.
var ErrClosed = errors.New("perftest: the peer closed the connection before the test was over")

// controlDepth is how many messages of the peer's may wait: it says one, and waits for ours.
const controlDepth = 4

// control is the connection of the handshake.
type control struct {
	qp     *rnic.QueuePair
	cq     *rnic.CompletionQueue
	memory *rnic.MemoryRegion // receive buffers, and one to send from
	server bool
	said   int       // messages exchanged so far
	spoke  time.Time // when ours began to be sent, the last of them
	ready  []rnic.Completion
	sent   bool // the last one was taken
	failed *rnic.Completion

	// before, if set, is called by the server when the client's next message is there, and before
	// it is answered.
	before func(context.Context) error
}

const controlMemory = (controlDepth + 1) * messageMax

// controlParam is how the connection of the handshake is made; conn says the rest.
func controlParam(conn rnic.ConnParam) rnic.ConnParam {
	conn.IRD, conn.ORD = 1, 1
	return conn
}

// newControl makes an idle QueuePair with its buffers posted.
func newControl(dev *rnic.Adapter, server bool) (*control, error) {
	c := &control{server: server, sent: true}
	var err error
	if c.cq, err = dev.CreateCQ(4 * controlDepth); err != nil {
		return nil, err
	}
	pd := dev.AllocPD()
	if c.memory, err = pd.Register(make([]byte, controlMemory), rnic.LocalWrite); err != nil {
		return nil, err
	}
	opt := rnic.QPOptions{PD: pd, SendCQ: c.cq, RecvCQ: c.cq, SendDepth: controlDepth,
		RecvDepth: controlDepth}
	if c.qp, err = dev.CreateQP(opt); err != nil {
		c.release()
		return nil, err
	}
	for i := range controlDepth {
		if err := c.post(i); err != nil {
			c.release()
			return nil, err
		}
	}
	return c, nil
}

func (c *control) post(i int) error {
	_, err := c.qp.PostRecv(
		rnic.WorkRequest{ID: uint64(i), Local: c.memory.Slice(i*messageMax, messageMax)})
	return err
}

// release ends the connection if it has not ended, and gives the memory back.
func (c *control) release() { peer.Release(c.qp, c.memory) }

// swap says one message and hears one of the same length; the client speaks first. what is for
// errors.
func (c *control) swap(ctx context.Context, what string, b []byte) (theirs []byte, err error) {
	c.said++
	if !c.server {
		err = c.say(ctx, b)
	}
	if err == nil {
		theirs, err = c.hear(ctx, len(b))
	}
	if before := c.before; err == nil && before != nil {
		c.before = nil
		err = before(ctx)
	}
	if err == nil && c.server {
		err = c.say(ctx, b)
	}
	if err != nil {
		return nil, fmt.Errorf("message %d of the handshake (%s): %w", c.said, what, err)
	}
	return theirs, nil
}

// say returns when the message has been taken.
func (c *control) say(ctx context.Context, b []byte) error {
	at := controlDepth * messageMax
	copy(c.memory.Bytes()[at:], b)
	c.sent, c.spoke = false, time.Now()
	if _, err := c.qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: c.memory.Slice(at, len(b)),
		Signaled: true}); err != nil {
		return c.over(ctx, err)
	}
	return c.until(ctx, func() bool { return c.sent })
}

// hear returns a message of the peer's, of n octets.
func (c *control) hear(ctx context.Context, n int) ([]byte, error) {
	if err := c.until(ctx, func() bool { return len(c.ready) > 0 }); err != nil {
		return nil, err
	}
	got := c.ready[0]
	c.ready = c.ready[1:]
	at := int(got.ID) * messageMax
	b := append([]byte(nil), c.memory.Bytes()[at:at+int(got.Len)]...)
	if err := c.post(int(got.ID)); err != nil {
		return nil, c.over(ctx, err)
	}
	if len(b) != n {
		return nil, fmt.Errorf("%w: %d octets, want %d; do both ends run the same program?",
			errMalformed, len(b), n)
	}
	return b, nil
}

// until takes completions until done says so.
func (c *control) until(ctx context.Context, done func() bool) error {
	for !done() {
		if f := c.failed; f != nil {
			return c.over(ctx, fmt.Errorf("perftest: %v: %v", f.Op, f.Status))
		}
		if c.look() {
			continue
		}
		if err := c.cq.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// look takes a completion, if there is one.
func (c *control) look() bool {
	var got [1]rnic.Completion
	if c.cq.Poll(got[:]) == 0 {
		return false
	}
	switch {
	case got[0].Status != rnic.Success:
		c.failed = &got[0]
	case got[0].Op == rnic.OpRecv:
		c.ready = append(c.ready, got[0])
	default:
		c.sent = true
	}
	return true
}

// heard says, without waiting, whether the peer has said something that was not looked at yet, or
// has gone.
func (c *control) heard() bool {
	for c.failed == nil && c.look() {
	}
	return c.failed != nil || len(c.ready) > 0
}

// over prefers the connection's own reason, which is about to be known, over what it did to a
// request.
func (c *control) over(ctx context.Context, err error) error { return over(ctx, c.qp, err) }

func over(ctx context.Context, qp *rnic.QueuePair, err error) error {
	if qp.State() == rnic.RTS {
		return err
	}
	return peer.Over(ctx, qp, ErrClosed)
}
