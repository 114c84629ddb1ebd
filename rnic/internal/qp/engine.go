package qp

import (
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// Engine carries out a queue pair's work: octets of FPDUs in and out, work requests in,
// completions out. It knows no connection, no transport and no clock. What calls mean for the
// connection is told by TakeEffects; the one call up is Config.Teller, which posts an event and
// must not block.
//
//	not in service --Start--> in service --Finish--> over
//
// Work is posted in each of the three. Once the engine is over, the caller that posts flushes it
// (Flush).
//
// Posting, MayAsk, Arm, State, Move and Flush are for any goroutine. Prepare is for the one that
// has moved the engine to Connecting. Everything else is for the driver: the goroutine that
// drives the connection, or the holder of its mutex, until Finish has returned.
type Engine struct {
	Config
	SQ, RQ      *mem.MPSC[wq.WQE]
	posted      atomic.Int32  // receive buffers posted, or taken from the SRQ, and not completed
	refused     atomic.Uint32 // PeerAccess that the peer has not
	control     control       // from Prepare on
	state       atomic.Uint32 // a State
	unextended  atomic.Bool   // in service, with a version of RDMAP that has no extensions
	plain       atomic.Bool   // in service, without acknowledged mode
	terminated  uint16        // the lower half of wq.CQE's Terminate; the upper one is terminator
	flushMu     sync.Mutex    // held while completions are flushed, in Finish and in Flush
	watch       watch
	retry       retry
	lost        bool    // the next request to be flushed gets RetryExceeded (PeerLost)
	terminator  uint8   // 0: there was no Terminate
	effects     Effects // since TakeEffects
	ord         int32   // in service: how many Reads and atomics may be outstanding
	effectError error   // EffectFail's or EffectLeave's

	reader *mem.Reader
	shared *Shared // StartOptions.Shared
	*service
}

// Config is what an engine has before it is used.
type Config struct {
	Table          *mem.Table
	Domain         mem.ProtectionDomain
	Stream         mem.StreamID
	Number         uint32 // of the queue pair, in completions
	RecvRanges     int32  // of a receive buffer
	SendCQ, RecvCQ *CQ
	SRQ            *SRQ

	SendDepth, RecvDepth int
	SGEMax, InlineMax    int // ranges and inline octets of a work request

	Source Source // more work, which was not posted; nil: none

	Teller
}

// Teller posts an event, and does not block. Any goroutine may call it.
type Teller interface {
	Tell(k wq.EventKind, n uint64, err error)
}

// StartOptions are what an engine needs of its connection.
type StartOptions struct {
	Terms     *mpa.Terms
	Responder bool
	Opened    bool // may send at once: an Initiator, or either end in the dialect culley-02
	EMSS      int
	Peer      uint64 // tells one peer from another: they share what Shared has

	Reader  *mem.Reader
	Pool    *mem.Pool
	BufsMax int     // Bufs that it may keep for reassembly
	Shared  *Shared // nil: what it needs is its own

	InOrder    bool // octets come in order, all of them
	DropBadCRC bool
	PackFull   bool
	Fill       bool // cuts messages so that segments are full, as PackFull does, and waits for none

	Acknowledged bool // both ends have agreed on acknowledged mode (reliability.go)
}

// Start puts the engine into service with what start-up agreed.
func (q *Engine) Start(o *StartOptions) {
	q.reader, q.shared = o.Reader, o.Shared
	if q.shared != nil {
		q.service = q.shared.service()
	} else {
		q.service = new(service)
	}
	q.send.start(q, o)
	q.recv.start(q, o)
	q.startRTR(o.Terms, o.Responder)
	q.ord = int32(q.requester.ord)
	q.unextended.Store(o.Terms.Version != rdmap.Extensions)
	q.plain.Store(!o.Acknowledged)
	q.state.Store(uint32(wq.RTS))
}

// Finish ends service, if there was any: what was posted completes as Flushed, or with what went
// wrong with it. It is the driver's last call; only Config.Teller may tell of the end after it. The
// batches are empty then: each Pull, Arrive and LeftEdge publishes its own.
func (q *Engine) Finish() {
	q.flushMu.Lock() // before others see Closed: what they post then is flushed after what is here
	q.state.Store(uint32(wq.Closed))
	if q.service != nil {
		q.requester.abandon(q)
		q.send.abandon(q)
		q.recv.abandon(q)
	}
	q.flushMu.Unlock()
	q.Flush()
	if q.control.prepared {
		q.control.region.DeregisterHere() // no octet of the peer's is placed any more
	}
	if q.service != nil && q.shared != nil {
		q.shared.giveService(q.service)
	}
	q.service = nil
}

// Flush completes everything in the rings and the Source as Flushed. Any goroutine, once the engine
// is Closed: a posting call may come too late for Finish, and then flushes its own work.
func (q *Engine) Flush() {
	q.flushMu.Lock()
	defer q.flushMu.Unlock()
	var r wq.Request
	for takeWork(q.SQ, &r) {
		q.SQ.Release()
		q.complete(q.SendCQ, &r.WQE, 0, q.flushStatus())
	}
	for takeWork(q.RQ, &r) {
		q.RQ.Release()
		q.complete(q.RecvCQ, &r.WQE, 0, wq.Flushed)
	}
	if q.Source != nil {
		q.flushSource()
	}
}

// flushSource is Flush of what waits in the Source.
func (q *Engine) flushSource() {
	r := &wq.Request{List: make([]wq.SGE, q.SGEMax), Data: make([]byte, q.InlineMax)}
	for q.next(q.SQ, r) {
		q.complete(q.SendCQ, &r.WQE, 0, q.flushStatus())
	}
	for q.next(q.RQ, r) {
		q.complete(q.RecvCQ, &r.WQE, 0, wq.Flushed)
	}
}

// Idle says whether everything that was posted or requested has been pulled, and every Read and
// atomic of this end has its Response. In acknowledged mode, also whether each end has acknowledged
// all requests of the other.
func (q *Engine) Idle() bool { return q.send.idle(q) }

// More says whether the next Pull would have octets.
func (q *Engine) More() bool { return q.send.enabled && q.send.pending(q) }

// MULPDU is the largest ULPDU of a segment of emss octets.
func (q *Engine) MULPDU(emss int) int { return q.send.tx.MULPDU(emss) }

// Passed is where the last frame ends that lies wholly before the left edge.
func (q *Engine) Passed() uint64 { return q.recv.passed }

// HeldBufs is how many packet buffers are held for frames that are not whole.
func (q *Engine) HeldBufs() int { return int(q.recv.rx.Stats().HeldBufs) }
