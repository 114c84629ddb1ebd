package rsocket

import (
	"cmp"
	"errors"
	"syscall"

	"github.com/rnicd/rnicd/rnic"
)

// run takes what arrives while no call does, until the connection is over.
func (c *Conn) run() {
	for over := false; !over; {
		c.mu.Lock()
		c.progress()
		c.cq.Arm(rnic.NextCompletion)
		c.mu.Unlock()
		select {
		case <-c.cq.Ready():
		case <-c.qp.Done():
			over = true
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.progress()
	c.over(c.qp.Err())
	c.m.release()
	for _, m := range c.maps.ours {
		if m != nil && m.region != nil {
			m.region.Deregister()
			m.region = nil
		}
	}
	close(c.finished)
}

// progress takes all completions that there are.
func (c *Conn) progress() {
	some := false
	for n := c.cq.Poll(c.polled[:]); n > 0; n = c.cq.Poll(c.polled[:]) {
		some = true
		for i := range c.polled[:n] {
			if wc := &c.polled[i]; wc.Op == rnic.OpRecv {
				c.arrived(wc)
			} else {
				c.completeSend(wc)
			}
		}
	}
	if some {
		c.grant()
		c.changed.Broadcast()
	}
}

// post posts requests for which there are slots. False: the connection is at its end, which tells
// why.
func (c *Conn) post(wrs []rnic.WorkRequest) bool {
	n, err := c.qp.PostSend(wrs...)
	c.out.slots -= n
	if err != nil && !errors.Is(err, rnic.ErrClosed) {
		c.fail(err)
	}
	return err == nil
}

// postRecv posts the receive buffer of a message.
func (c *Conn) postRecv(i int) error {
	_, err := c.qp.PostRecv(
		rnic.WorkRequest{ID: uint64(i), Local: c.m.inbox.Slice(i*messageLen, messageLen)})
	return err
}

// goodbye says that nothing follows.
func (c *Conn) goodbye(value uint32) {
	if c.weGone || c.writeEnd != nil {
		return
	}
	c.weGone = value == disconnect
	b := c.inline[:messageLen]
	c.order.PutUint32(b, message(kindControl, value))
	c.post([]rnic.WorkRequest{{ID: 1, Op: rnic.OpSend, Inline: b, Signaled: true}})
}

// fail ends a connection for what the peer did, or for what cannot go on.
func (c *Conn) fail(err error) {
	c.endRead(err)
	c.endWrite(err)
	c.qp.Abort()
}

// over is the end of the connection, however it came.
func (c *Conn) over(err error) {
	c.endRead(cmp.Or(err, ErrVanished))
	c.endWrite(cmp.Or(err, error(syscall.EPIPE)))
}

// endRead and endWrite keep the first reason.
func (c *Conn) endRead(err error) {
	if c.readEnd == nil {
		c.readEnd = err
		c.changed.Broadcast()
	}
}

func (c *Conn) endWrite(err error) {
	if c.writeEnd == nil {
		c.writeEnd = err
		c.changed.Broadcast()
	}
}
