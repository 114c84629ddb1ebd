package rnic

import (
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// WorkSource is work that waits outside of a QueuePair's own queues (QPOptions.Source): in rings
// that another language or process fills. The QueuePair asks when its own queues are empty, on the
// goroutine that drives the connection, or once the connection is over on one that calls Doorbell
// or posts; never on two at a time. The methods must not block, and call nothing of this package
// but the Feed's methods.
//
//	producer --its ring--> WorkSource --Feed.Send, Feed.Recv--> QueuePair
//	producer --"look"----> QueuePair.Doorbell, for requests of the send queue; receive buffers are looked for when octets arrive
type WorkSource interface {
	// SendsWait says whether Sends would post. It is asked often.
	SendsWait() bool
	// Sends posts requests, if there are any, until the Feed refuses one, which then is the first of
	// the next time.
	Sends(Feed)
	// Recvs is Sends for receive buffers. With an SRQ it is never called.
	Recvs(Feed)
	// Written tells that Writes of the peer were delivered: their octets are in memory, and no
	// completion tells of them. It is called once for those that come together, after the
	// completions of what came with them; not for empty Writes, as start-up's is.
	Written()
}

// Feed posts to a QueuePair on behalf of its WorkSource. It is valid during the call only.
type Feed struct {
	q *QueuePair
	r *wq.Request // room for an entry
}

// Send is PostSend of one request, without the doorbell, and without ErrClosed: what still can be
// sent after Disconnect is.
func (f Feed) Send(wr *WorkRequest) error {
	q := f.q
	if err := q.couldPost(wr); err != nil {
		return err
	}
	var w wq.WQE
	putWQE(&w, wr.Op, wr)
	var masks [1]SGE
	return q.engine.PostSend(&w, after(wr, &masks), wr.Inline)
}

// Room is where an entry of a ring is copied to, with what follows it, for SendEntry or RecvEntry.
// It is carried out from there, and so checked where the ring's owner cannot change it. There is
// room for one in each call of Sends or Recvs.
func (f Feed) Room() *wq.Request { return f.r }

// SendEntry is Send of the entry in Room, and is for the only request of a call.
func (f Feed) SendEntry() error {
	q, r := f.q, f.r
	switch {
	case !possible(&r.WQE):
		return ErrShape
	case int(r.More) >= q.opt.SGEMax:
		return ErrListTooLong
	case r.Inline() && int(r.Local.Length) > q.opt.InlineMax:
		return ErrInlineTooLong
	}
	if err := q.mayAsk(r.Op); err != nil {
		return err
	}
	return q.engine.SendHere(r)
}

// RecvEntry is Recv of it.
func (f Feed) RecvEntry() error {
	switch r := f.r; {
	case r.Op != OpRecv || r.Inline():
		return ErrShape
	case int(r.More) >= f.q.opt.SGEMax:
		return ErrListTooLong
	default:
		return f.q.engine.RecvHere(r)
	}
}

// Refuse completes a request that cannot be carried out with st, after those before it, and ends
// the connection: of these, Reads and atomics that are not answered by then are flushed. Errors are
// those of Send for want of room and for the state.
func (f Feed) Refuse(wr *WorkRequest, st Status) error {
	if s := f.q.State(); s == Idle || s == Connecting {
		return ErrState
	}
	return f.q.engine.PostSend(&wq.WQE{ID: wr.ID, Op: wr.Op, Flags: wq.FlagRefused,
		Operands: [3]uint64{uint64(st)}}, nil, nil)
}

// Recv is PostRecv of one buffer.
func (f Feed) Recv(wr *WorkRequest) error { return f.q.enqueueRecv(wr) }

// Doorbell makes the QueuePair take requests of the send queue from its WorkSource. Any goroutine;
// it does not block. Once the connection is over it also takes receive buffers from there, and what
// it takes completes as Flushed before it returns.
func (q *QueuePair) Doorbell() { q.doorbell() }

// feed is a QueuePair's WorkSource as the engine sees it.
type feed struct{ q *QueuePair }

var _ qp.Source = feed{}

func (f feed) SendsWait() bool         { return f.q.opt.Source.SendsWait() }
func (f feed) FillSends(r *wq.Request) { f.q.opt.Source.Sends(Feed{f.q, r}) }
func (f feed) Written()                { f.q.opt.Source.Written() }

func (f feed) FillRecvs(r *wq.Request) {
	if f.q.opt.SRQ == nil {
		f.q.opt.Source.Recvs(Feed{f.q, r})
	}
}
