// Package rping speaks the protocol of rdma-core's rping, in both roles. A ping is
//
//	client                                          server
//	  | -- Send {where the data is} -------------------> |
//	  | <========================== RDMA Read of it ---- |
//	  | <- Send, "it was read" ------------------------- |
//	  | -- Send {where it may be written} -------------> |
//	  | <========================= RDMA Write of it ---- |
//	  | <- Send, "it was written" ---------------------- |  the client compares the two
//
// Each Send has 16 octets, in network order: a tagged offset of 64 bits, an STag and a length of 32
// each; the content of the server's is not looked at. There is no private data. The client leaves
// in order when it has had enough. Its Reads need read depths, 1 at least, which MPA settles in its
// revision 2 only (RFC 6581).
package rping

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

// DefaultPort is rping's, too.
const DefaultPort = 7174

// Sizes of a ping's data, as rping has them.
const (
	SizeMin     = 26
	SizeMax     = 64<<10 - 1
	SizeDefault = 100
)

const (
	messageLen = 16
	readDepth  = 1
)

// ErrVanished: the peer closed the connection in order, in the middle of a ping.
var ErrVanished = errors.New("rping: the peer closed the connection in the middle of a ping")

var errClosed = errors.New("rping: the peer closed the connection")

// Ping is one that is over.
type Ping struct {
	Number int           // from 0
	Data   []byte        // as the peer had it; valid during the call that it is handed to
	Took   time.Duration // all of it at the client, from the announcement to the write at the server
}

// Data is what rping's n-th ping has in its buffer: its number, letters, and an octet 0 at the end.
func Data(b []byte, n int) {
	text := fmt.Appendf(b[:0], "rdma-ping-%d: ", n)
	c := byte('A' + n%('z'-'A'+1))
	for i := len(text); i < len(b)-1; i++ {
		b[i] = c
		if c++; c > 'z' {
			c = 'A'
		}
	}
	b[len(b)-1] = 0
}

// place is where octets are.
type place struct {
	to   uint64
	stag rnic.STag
	size uint32
}

func (p place) put(b []byte) {
	binary.BigEndian.PutUint64(b, p.to)
	binary.BigEndian.PutUint32(b[8:], uint32(p.stag))
	binary.BigEndian.PutUint32(b[12:], p.size)
}

func parsePlace(b []byte) (place, error) {
	if len(b) != messageLen {
		return place{}, fmt.Errorf("rping: a message of %d octets, where one of %d was due",
			len(b), messageLen)
	}
	return place{binary.BigEndian.Uint64(b), rnic.STag(binary.BigEndian.Uint32(b[8:])),
		binary.BigEndian.Uint32(b[12:])}, nil
}

// end is one end of a connection.
type end struct {
	qp      *rnic.QueuePair
	cq      *rnic.CompletionQueue
	pd      *rnic.ProtectionDomain
	control *rnic.MemoryRegion // a message out, then those that come in, in turn
	regions []*rnic.MemoryRegion
	arrived int // messages that came and were not asked for yet
	got     [inboxes]uint32
	first   int // of the inboxes: the next to be looked at
}

// inboxes are two as rping's: a message may come before the one ahead of it was taken.
const inboxes = 2

const idSend = inboxes // and larger than those of the inboxes

func newEnd(dev *rnic.Adapter) (e *end, err error) {
	e = &end{pd: dev.AllocPD()}
	if e.cq, err = dev.CreateCQ(16); err != nil {
		return nil, err
	}
	if e.qp, err = dev.CreateQP(rnic.QPOptions{PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, SendDepth: 4,
		RecvDepth: inboxes}); err != nil {
		return nil, err
	}
	if e.control, err = e.register((1+inboxes)*messageLen, rnic.LocalWrite); err == nil {
		for i := range inboxes {
			err = errors.Join(err, e.postRecv(i))
		}
	}
	if err != nil {
		e.release()
		return nil, err
	}
	return e, nil
}

// connParam is how it connects; conn says the rest.
func connParam(conn rnic.ConnParam) rnic.ConnParam {
	conn.IRD, conn.ORD = readDepth, readDepth
	return conn
}

// register makes memory that this connection alone has.
func (e *end) register(n int, access rnic.Access) (*rnic.MemoryRegion, error) {
	m, err := e.pd.RegisterWith(make([]byte, n), rnic.RegisterOptions{Access: access, For: e.qp})
	if err == nil {
		e.regions = append(e.regions, m)
	}
	return m, err
}

func (e *end) postRecv(i int) error {
	_, err := e.qp.PostRecv(
		rnic.WorkRequest{ID: uint64(i), Local: e.control.Slice((1+i)*messageLen, messageLen)})
	return err
}

// release ends the connection if it has not ended, and gives the memory back.
func (e *end) release() { peer.Release(e.qp, e.regions...) }

// do posts a request and waits until it has completed. Messages that come meanwhile are kept.
func (e *end) do(ctx context.Context, wr rnic.WorkRequest) error {
	wr.ID, wr.Signaled = idSend, true
	if _, err := e.qp.PostSend(wr); err != nil {
		return e.over(ctx, err)
	}
	for {
		c, err := e.next(ctx)
		if err != nil || c.ID == idSend {
			return err
		}
	}
}

// send sends one message.
func (e *end) send(ctx context.Context, p place) error {
	p.put(e.control.Bytes())
	return e.do(ctx, rnic.WorkRequest{Op: rnic.OpSend, Local: e.control.Slice(0, messageLen)})
}

// receive waits for the peer's next message.
func (e *end) receive(ctx context.Context) (place, error) {
	for e.arrived == 0 {
		if _, err := e.next(ctx); err != nil {
			return place{}, err
		}
	}
	i := e.first
	p, err := parsePlace(e.control.Bytes()[(1+i)*messageLen:][:e.got[i]])
	e.first = (i + 1) % inboxes
	e.arrived--
	if err == nil {
		err = e.postRecv(i)
	}
	return p, err
}

// next takes the next completion.
func (e *end) next(ctx context.Context) (rnic.Completion, error) {
	c, err := peer.Next(ctx, e.cq)
	switch {
	case err != nil:
		return c, err
	case c.Status != rnic.Success:
		return c, e.over(ctx, fmt.Errorf("rping: %v: %v", c.Op, c.Status))
	case c.Op == rnic.OpRecv:
		e.got[c.ID] = c.Len
		e.arrived++
	}
	return c, nil
}

// over says how the connection ended, which is about to, if err came of that.
func (e *end) over(ctx context.Context, err error) error {
	if errors.Is(err, rnic.ErrReadDepth) {
		return errors.New("rping: start-up settled no read depth: the peer speaks no MPA revision 2, " +
			"without which the server cannot read")
	}
	return peer.Over(ctx, e.qp, errClosed)
}
