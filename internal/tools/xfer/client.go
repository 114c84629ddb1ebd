package xfer

import (
	"context"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// closeTimeout bounds the orderly end.
const closeTimeout = 5 * time.Second

const (
	idAnswerIn = 1 << 32
	idClosing  = 1 << 33
)

// client is the connection of a Put or a Get, with a buffer: chunks of the file, the closing
// message, and the server's answer.
type client struct {
	qp      *rnic.QueuePair
	cq      *rnic.CompletionQueue
	pd      *rnic.ProtectionDomain
	buf     *rnic.MemoryRegion
	octets  []byte             // to be sent from where they lie; empty: chunks in buf are
	memory  *rnic.MemoryRegion // and their registration
	control int                // where in buf the closing message is
}

// dial connects, and returns the private data of the server's grant.
func (c *client) dial(ctx context.Context, dev *rnic.Adapter, addr string, sends int,
	conn rnic.ConnParam, r request) (grant []byte, err error) {
	if c.cq, err = dev.CreateCQ(2 * sends); err != nil {
		return nil, err
	}
	c.pd = dev.AllocPD()
	if c.qp, err = dev.CreateQP(rnic.QPOptions{PD: c.pd, SendCQ: c.cq, RecvCQ: c.cq, SendDepth: sends,
		RecvDepth: 1}); err != nil {
		return nil, err
	}
	memory := make([]byte, c.control+finishLen+answerLen)
	if c.buf, err = c.pd.RegisterWith(memory,
		rnic.RegisterOptions{Access: rnic.LocalWrite, For: c.qp}); err != nil {
		return nil, err
	}
	if len(c.octets) > 0 { // before anybody's clock runs
		if c.memory, err = c.pd.RegisterWith(c.octets, rnic.RegisterOptions{For: c.qp}); err != nil {
			return nil, err
		}
	}
	answer := c.buf.Slice(c.control+finishLen, answerLen)
	if _, err = c.qp.PostRecv(rnic.WorkRequest{ID: idAnswerIn, Local: answer}); err != nil {
		return nil, err
	}
	conn.PrivateData = r.marshal()
	if err = c.qp.Connect(ctx, addr, conn); err != nil {
		return nil, peer.Refusal("xfer", err)
	}
	return c.qp.PeerPrivateData(), nil
}

// release ends the connection if it has not ended, and takes the buffers back.
func (c *client) release() { peer.Release(c.qp, c.buf, c.memory) }

// finish tells the server what was sent, or has come.
func (c *client) finish(f finish) error {
	f.marshal(c.buf.Bytes()[c.control:])
	_, err := c.qp.PostSend(
		rnic.WorkRequest{ID: idClosing, Op: rnic.OpSend, Local: c.buf.Slice(c.control, finishLen),
			Signaled: true})
	return err
}

// answer reads the server's, of n octets.
func (c *client) answer(n uint32) (answer, error) {
	off := c.control + finishLen
	return parseAnswer(c.buf.Bytes()[off : off+int(n)])
}

// next waits for the next completion, which is to be a successful one.
func (c *client) next(ctx context.Context) (rnic.Completion, error) {
	got, err := peer.Next(ctx, c.cq)
	if err == nil {
		err = ctx.Err() // a transfer that is called off ends, although its completions have come
	}
	switch {
	case err != nil:
		return got, fmt.Errorf("xfer: waiting for the server: %w", err)
	case got.Status != rnic.Success:
		return got,
			peer.Over(ctx, c.qp, fmt.Errorf("xfer: %v %v: the server closed the connection", got.Op,
				got.Status))
	}
	return got, nil
}

// fail ends the connection, and prefers its own reason for that.
func (c *client) fail(err error) error {
	peer.Release(c.qp)
	return peer.Reason(c.qp, err)
}

// close ends the connection in order.
func (c *client) close(ctx context.Context) error {
	ctx, cancel := awake.Timeout(ctx, closeTimeout, nil)
	defer cancel()
	return c.qp.Close(ctx)
}
