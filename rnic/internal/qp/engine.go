package qp

import (
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// Engine carries out a queue pair's work: octets of FPDUs in and out, work requests in, completions
// out. It knows no connection, no transport and no clock. It never calls up: what a call means for
// the connection is in Effects.
//
//	posted --Start--> in service --Finish--> over; what is posted afterwards is flushed by the caller that posts it
//
// Posting is for any goroutine. Everything else is for the goroutine (or the holder of the mutex)
// that drives the connection, until Finish has returned.
type Engine struct {
	Config
	SQ, RQ      *mem.MPSC[WQE]
	posted      atomic.Int32      // receive buffers posted, or taken from the SRQ, and not completed
	ctrl        *mem.MemoryRegion // receives the peer's Terminate and Requests; from Prepare on
	depths      readDepths        // of Prepare
	state       atomic.Uint32     // a State
	unextended  atomic.Bool       // in service, and RDMAP's version has no extensions
	flushMu     sync.Mutex        // held while what was posted is flushed: in Finish, and later
	watch       watch
	effects     Effects // of the calls since TakeEffects
	effectError error   // of EffectFail or EffectLeave

	reader    *mem.Reader
	send      sendHalf
	recv      recvHalf
	respond   responder
	requester requester
}

// Config is what an engine has from the beginning.
type Config struct {
	Table          *mem.Table
	Domain         mem.ProtectionDomain
	Stream         mem.StreamID
	Number         uint32 // QueuePair.Number
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ

	SendDepth, RecvDepth          int
	SGEMax, InlineMax, RecvRanges int // ranges and inline octets of a work request; ranges of a receive buffer

	Tell func(k Event, n uint64, err error) // posts an event; never blocks
}

// StartOptions are what an engine needs of its connection.
type StartOptions struct {
	Terms     *mpa.Terms
	Responder bool
	Opened    bool // it may send at once: an Initiator, or either end of culley-02
	EMSS      int

	Reader  *mem.Reader
	Pool    *mem.Pool
	BufsMax int // Bufs it may keep for reassembly
	Reserve *mpa.Reserve

	DropBadCRC bool
	PackFull   bool
}

// Start puts the engine into service with what start-up agreed.
func (q *Engine) Start(o *StartOptions) {
	q.reader = o.Reader
	q.send.start(q, o)
	q.recv.start(q, o)
	q.startRTR(o.Terms, o.Responder)
	q.unextended.Store(o.Terms.Version != rdmap.Extensions)
	q.state.Store(uint32(RTS))
}

// Finish is the last call of the connection's driver. Nothing waits in the batches: each pull and
// each arrival ends with publishing.
func (q *Engine) Finish() {
	q.flushMu.Lock() // before Closed is seen: what is posted from then on is flushed after this
	q.state.Store(uint32(Closed))
	q.requester.abandon(q)
	q.send.abandon(q)
	q.recv.abandon(q)
	q.flushMu.Unlock()
	q.Flush()
	if q.ctrl != nil {
		q.ctrl.Deregister()
	}
}

// Flush completes everything in the rings as Flushed. After Closed only: a posting call that loses
// the race with finish flushes its own work.
func (q *Engine) Flush() {
	q.flushMu.Lock()
	defer q.flushMu.Unlock()
	for {
		wr, ok := q.SQ.Pop()
		if !ok {
			break
		}
		dropFollowing(q.SQ, &wr)
		q.complete(q.SendCQ, &wr, 0, Flushed)
	}
	for {
		wr, ok := q.RQ.Pop()
		if !ok {
			return
		}
		dropFollowing(q.RQ, &wr)
		q.complete(q.RecvCQ, &wr, 0, Flushed)
	}
}

// Reported says whether an error ended the stream of which the peer was told, or told us.
func (q *Engine) Reported() bool { return q.recv.reported }

// Idle: everything that was posted or asked for has been pulled, and our Reads were answered.
func (q *Engine) Idle() bool { return q.send.idle(q) }

// More says whether the next pull would have octets.
func (q *Engine) More() bool { return q.send.enabled && q.send.pending(q) }

// Pushed says whether a message has ended in what was pulled since it was last asked.
func (q *Engine) Pushed() bool { return q.send.pushed() }

// MULPDU is the largest ULPDU of a segment of emss octets.
func (q *Engine) MULPDU(emss int) int { return q.send.tx.MULPDU(emss) }

// Passed is where the last frame ends that the left edge has passed.
func (q *Engine) Passed() uint64 { return q.recv.passed }

// HeldBufs is how many packet buffers it holds for frames that are not whole.
func (q *Engine) HeldBufs() int { return int(q.recv.rx.Stats().HeldBufs) }
