package rnic

import (
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// engine carries out a queue pair's work: octets of FPDUs in and out, work requests in, completions out. It knows no
// connection, no transport and no clock. It never calls up: what a call means for the connection is in effects.
//
//	posted --start--> in service --finish--> over; what is posted afterwards is flushed by who posts it
//
// Posting is for any goroutine. Everything else is for the goroutine (or the holder of the mutex) that drives the connection,
// until finish has returned.
type engine struct {
	engineConfig
	sq, rq      *mem.MPSC[wqe]
	posted      atomic.Int32      // receive buffers posted, or taken from the SRQ, and not completed
	ctrl        *mem.MemoryRegion // receives the peer's Terminate and Requests; from prepare on
	depths      readDepths        // of prepare
	state       atomic.Uint32     // a State
	unextended  atomic.Bool       // in service, and RDMAP's version has no extensions
	flushMu     sync.Mutex        // who flushes what was posted: in finish, and later
	watch       watch
	effects     effects // of the calls since it was looked at
	effectError error   // of effectFail or effectLeave

	reader    *mem.Reader
	send      sendHalf
	recv      recvHalf
	respond   responder
	requester requester
}

// engineConfig is what an engine has from the beginning.
type engineConfig struct {
	table          *mem.Table
	domain         mem.ProtectionDomain
	stream         mem.StreamID
	num            uint32 // QueuePair.Number
	sendCQ, recvCQ *cq
	srq            *srq

	sendDepth, recvDepth         int
	sgeMax, inlineMax, recvRange int // ranges and inline octets of a work request; ranges of a receive buffer

	tell func(k EventKind, n uint64, err error) // posts an event; never blocks
}

// effects of a call on the connection. After each call into the engine the connection looks whether there are any.
type effects uint8

const (
	effectSend      effects = 1 << iota // there is something to pull
	effectOpened                        // a Responder may send from now on
	effectCloseHalf                     // nothing more will be sent: close our half, if it is not being closed
	effectShort                         // octets were refused, for want of packet buffers perhaps
	effectLeave                         // the stream is at its end for effectError: close our half behind its Terminate
	effectFail                          // reset the connection for effectError
)

// takeEffects returns what the calls since the last time mean for the connection. err is effectLeave's or effectFail's.
func (q *engine) takeEffects() (fx effects, err error) {
	fx, err = q.effects, q.effectError
	q.effects, q.effectError = 0, nil
	return fx, err
}

// affect notes an end of the stream. The first reason stays.
func (q *engine) affect(fx effects, err error) {
	q.effects |= fx
	if q.effectError == nil {
		q.effectError = err
	}
}

// readDepths are the depths to make room for: of the peer's Requests, and of our own.
type readDepths struct{ ird, ord int }

// State is a snapshot.
func (q *engine) State() State { return State(q.state.Load()) }

// leave goes from service towards the end. A state nearer to it stays.
func (q *engine) leave(to State) {
	if s := q.State(); s == RTS || s == Closing && to != Closing {
		q.state.Store(uint32(to))
	}
}

// prepare makes the control region, for depths as they are wanted.
func (q *engine) prepare(want readDepths) error {
	want = readDepths{readDepth(want.ird), readDepth(want.ord)}
	ctrl, err := q.table.Register(q.domain, make([]byte, want.controlLen()), mem.RegionOptions{Access: mem.LocalWrite, Stream: q.stream})
	if err != nil {
		return err
	}
	q.ctrl, q.depths = ctrl, want
	return nil
}

// startOptions are what an engine needs of its connection.
type startOptions struct {
	terms     *mpa.Terms
	responder bool
	opened    bool // it may send at once: an Initiator, or either end of culley-02
	emss      int

	reader  *mem.Reader
	pool    *mem.Pool
	bufsMax int // Bufs it may keep for reassembly
	reserve *mpa.Reserve

	dropBadCRC bool
	packFull   bool
}

// start puts the engine into service with what start-up agreed.
func (q *engine) start(o *startOptions) {
	q.reader = o.reader
	q.send.start(q, o)
	q.recv.start(q, o)
	q.startGreeting(o.terms, o.responder)
	q.unextended.Store(o.terms.Version != rdmap.Extensions)
	q.state.Store(uint32(RTS))
}

// complete publishes a completion whose place was reserved by the posting call.
func (q *engine) complete(to *cq, wr *wqe, n uint32, st Status) {
	if st == Success && !wr.signaled() && wr.op != OpRecv {
		to.unreserve(1)
		return
	}
	c := Completion{ID: wr.id, QP: q.num, Len: n, Op: wr.op, Status: st}
	if wr.op == OpRecv {
		q.posted.Add(-1) // first: who polled this may post the next
	}
	to.push(c)
}

// finish is the last call of the connection's driver. Nothing waits in the batches: each pull and each arrival ends with publishing.
func (q *engine) finish() {
	q.flushMu.Lock() // before Closed is seen: what is posted from then on is flushed behind this
	q.state.Store(uint32(Closed))
	q.requester.abandon(q)
	q.send.abandon(q)
	q.recv.abandon(q)
	q.flushMu.Unlock()
	q.flush()
	if q.ctrl != nil {
		q.ctrl.Deregister()
	}
}

// flush completes everything in the rings as Flushed. After Closed only: a posting call that loses the race with
// finish flushes its own work.
func (q *engine) flush() {
	q.flushMu.Lock()
	defer q.flushMu.Unlock()
	for {
		wr, ok := q.sq.Pop()
		if !ok {
			break
		}
		dropBehind(q.sq, &wr)
		q.complete(q.sendCQ, &wr, 0, Flushed)
	}
	for {
		wr, ok := q.rq.Pop()
		if !ok {
			return
		}
		dropBehind(q.rq, &wr)
		q.complete(q.recvCQ, &wr, 0, Flushed)
	}
}

// reported says whether an error ended the stream of which the peer was told, or told us.
func (q *engine) reported() bool { return q.recv.reported }

// idle: everything that was posted or asked for has been pulled, and our Reads were answered.
func (q *engine) idle() bool { return q.send.idle(q) }

// more says whether the next pull would have octets.
func (q *engine) more() bool { return q.send.enabled && q.send.pending(q) }

// pushed says whether a message has ended in what was pulled since it was last asked.
func (q *engine) pushed() bool { return q.send.pushed() }

// mulpdu is the largest ULPDU of a segment of emss octets.
func (q *engine) mulpdu(emss int) int { return q.send.tx.MULPDU(emss) }

// passed is where the last frame ends that the left edge has passed.
func (q *engine) passed() uint64 { return q.recv.passed }

// heldBufs is how many packet buffers it holds for frames that are not whole.
func (q *engine) heldBufs() int { return int(q.recv.rx.Stats().HeldBufs) }

// engineStats count what an engine has done; Reads are atomics too.
type engineStats struct {
	Receive       mpa.ReceiverStats
	Placed        Placed
	FPDUsSent     uint64
	PayloadSent   uint64
	MessagesSent  uint64
	MessagesRecvd uint64
	WritesRecvd   uint64
	ReadsServed   uint64
	SharedTaken   uint64
	SharedHeld    int
	SlowPath      uint64

	RefusedPending uint64

	ReadsWaiting int // Requests of the peer's that are not answered yet
	RecvBegun    int // receive buffers that hold octets and are not delivered
	Staged       int // octets that wait for more to share their segment with
}

// stats of an engine in service. Driver's goroutine.
func (q *engine) stats() engineStats {
	return engineStats{
		Receive:       q.recv.rx.Stats(),
		Placed:        q.recv.placed,
		FPDUsSent:     q.send.fpdus,
		PayloadSent:   q.send.payload,
		MessagesSent:  q.send.messages,
		MessagesRecvd: q.recv.messages,
		WritesRecvd:   q.recv.writes,
		ReadsServed:   q.respond.served,
		SharedTaken:   q.recv.taken,
		SharedHeld:    q.sharedHeld(),
		SlowPath:      q.recv.slowPath(),

		RefusedPending: q.recv.refused,

		ReadsWaiting: int(q.respond.answers.count),
		RecvBegun:    q.recv.sendQ.Begun(),
		Staged:       len(q.send.staged),
	}
}
