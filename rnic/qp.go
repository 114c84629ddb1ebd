package rnic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"time"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// QPOptions of CreateQP: what a queue pair is, as ibv_qp_init_attr says it. How it connects is
// ConnParam's.
type QPOptions struct {
	PD             *ProtectionDomain
	SendCQ, RecvCQ *CompletionQueue
	// SRQ, of the same PD: receive buffers come from there, and PostRecv is ErrShared.
	SRQ       *SharedReceiveQueue
	SendDepth int // work requests posted and not yet sent: at least this many (default 128)
	RecvDepth int // receive buffers posted (with SRQ: taken) and not completed (default 128)

	// SGEMax is how many ranges one work request may have, Local included: 1 to SGEMaxLimit, 0
	// is 4.
	SGEMax int
	// InlineMax is how many octets of inline data one may have: 1 to InlineMaxLimit, 0 is
	// InlineMaxDefault, NoInline none. The rings hold SendDepth and RecvDepth of the longest:
	// 72 octets, and as many for every 4 ranges more or 64 octets of data.
	InlineMax int

	// Source, if set, is asked for more work when there is none left of what was posted.
	Source WorkSource
}

// QueuePair is one end of a connection. It is in service once; make a new one for the next
// connection.
type QueuePair struct {
	opt     QPOptions
	adapter *Adapter
	engine  qp.Engine
	end     connect.Endpoint
	sq, rq  mem.MPSC[wq.WQE] // the engine's
}

// CreateQP makes an idle QueuePair. Receive buffers may be posted at once. Errors: invalid options,
// which the text names, and ErrClosed after Adapter.Close. Close a QueuePair that will not be
// connected if buffers were posted; that completes them. Any goroutine.
func (a *Adapter) CreateQP(opt QPOptions) (*QueuePair, error) {
	if opt.SendDepth == 0 {
		opt.SendDepth = queueDepthDefault
	}
	if opt.RecvDepth == 0 {
		opt.RecvDepth = queueDepthDefault
	}
	if err := cmp.Or(opt.checkObjects(a), opt.checkRequests()); err != nil {
		return nil, err
	}
	if a.host.IsClosed() {
		return nil, ErrClosed
	}
	n := a.nums.Add(1)
	if n > math.MaxUint32 { // stream 0 would be everybody's, and the next one perhaps another's
		return nil, errors.New("rnic: the adapter has numbered as many queue pairs as there are " +
			"numbers; open another")
	}
	q := &QueuePair{opt: opt, adapter: a}
	q.end.Init(&a.host, &q.engine)
	q.engine.Config = qp.Config{
		Table: a.table, Domain: opt.PD.id, Stream: mem.StreamID(n), Number: uint32(n),
		SendCQ: &opt.SendCQ.q, RecvCQ: &opt.RecvCQ.q,
		SendDepth: opt.SendDepth, RecvDepth: opt.RecvDepth, SGEMax: opt.SGEMax, InlineMax: opt.InlineMax,
		RecvRanges: int32(opt.receiveRanges()),
		Teller:     teller{q},
	}
	if opt.SRQ != nil {
		q.engine.SRQ = &opt.SRQ.q
	}
	if opt.Source != nil {
		q.engine.Source = feed{q}
	}
	q.engine.SQ, q.engine.RQ = &q.sq, &q.rq
	a.rings.takeRings(q, qp.EntriesFor(opt.SendDepth, opt.SGEMax, opt.InlineMax), opt.receiveRing())
	return q, nil
}

// checkObjects validates what the QueuePair is made of.
func (o *QPOptions) checkObjects(a *Adapter) error {
	switch {
	case o.PD == nil || o.SendCQ == nil || o.RecvCQ == nil:
		return errors.New("rnic: QPOptions.PD, SendCQ and RecvCQ are needed")
	case o.PD.adapter != a:
		return errors.New("rnic: QPOptions.PD belongs to another adapter")
	case o.SendCQ.adapter != a || o.RecvCQ.adapter != a:
		return errors.New("rnic: QPOptions.SendCQ or RecvCQ belongs to another adapter")
	case o.SRQ != nil && o.SRQ.pd != o.PD:
		return errors.New("rnic: QPOptions.SRQ belongs to another protection domain")
	case o.SendDepth < 1 || o.SendDepth > QueueDepthMax || o.RecvDepth < 1 ||
		o.RecvDepth > QueueDepthMax:
		return fmt.Errorf("rnic: QPOptions.SendDepth %d and RecvDepth %d, 1 to %d possible", o.SendDepth,
			o.RecvDepth, QueueDepthMax)
	}
	return nil
}

// Number identifies the QueuePair in Completions. Any goroutine.
func (q *QueuePair) Number() uint32 { return q.engine.Number }

// State is a snapshot. Any goroutine.
func (q *QueuePair) State() State { return q.engine.State() }

// LocalAddr is this end's address, once in service. Any goroutine.
func (q *QueuePair) LocalAddr() netip.AddrPort {
	self, _ := q.end.Addresses()
	return self
}

// RemoteAddr is the peer's address, once in service. Any goroutine.
func (q *QueuePair) RemoteAddr() netip.AddrPort {
	_, peer := q.end.Addresses()
	return peer
}

// PeerPrivateData is what came with the MPA Reply, once in service. It is a copy, the application's
// to keep. Any goroutine.
func (q *QueuePair) PeerPrivateData() []byte { return q.end.Private }

// StartupOver waits for the end of start-up after Accept, which does not: until the Initiator's
// first FPDU or RTR message has arrived, so that this end may send. With peer-to-peer start-up the
// Initiator owes one at once; other Initiators begin when they like. nil: it has arrived. Otherwise
// the error says why the connection has ended before, or is ctx.Err(), which ends nothing. After
// Connect it returns at once, with what Connect has returned. Any application goroutine.
func (q *QueuePair) StartupOver(ctx context.Context) error {
	return publicError(q.end.StartupOver(ctx))
}

// Permit says what the peer may do to memory of this end, at most: everything, before the first
// call. What it may not is an access violation, as through an STag that does not grant it, and ends
// the connection. It is in force for all that is placed, or begun to be read, after it has
// returned, except for what is under way on another goroutine. Any goroutine, in any state.
func (q *QueuePair) Permit(a PeerAccess) { q.engine.Permit(uint32(a)) }

// Retry is what a connection in acknowledged mode (ConnParam.Acknowledged) does where a receiver
// has no buffer for a message, or nothing comes back.
type Retry struct {
	// Wait is for the peer, whose message finds no receive buffer here: it sends the message again
	// after this time. It is rounded up to one of the 31 times of InfiniBand's RNR NAK timers, 10 us
	// to 491.52 ms, or down to 655.36 ms. (ibv_qp_attr: min_rnr_timer.)
	Wait time.Duration
	// Tries is how often a message of ours is sent again for which the peer has no buffer, without
	// one being accepted meanwhile. Then it completes with RNRRetryExceeded, which ends the
	// connection. Below 0: as often as it takes. (rnr_retry, 7 of which is for ever.)
	Tries int
	// PeerTries is how often the peer may send a message again for which there is no buffer here,
	// and 1: 8 is as often as it takes, 0 leaves it to the peer's Tries. (rnr_retry_count of
	// librdmacm, and 1.)
	PeerTries uint8
	// Unanswered is how long the peer may answer no request: accept no message, say not that it is
	// not ready, send no octets of a Response. Then the oldest completes with RetryExceeded, which
	// ends the connection. That the peer's TCP takes octets counts only until it has all of the
	// oldest request; so noticing may take twice as long. 0: for ever, or ConnParam.UserTimeout.
	// (timeout and retry_cnt.)
	Unanswered time.Duration
}

// SetRetry sets what applies from now on; at first Wait is 0.64 ms, Tries is below 0 and Unanswered
// is 0. It has no effect outside of acknowledged mode. Any goroutine, in any state.
func (q *QueuePair) SetRetry(r Retry) {
	q.engine.SetRetry(qp.Retry{Wait: r.Wait, Tries: r.Tries,
		PeerTries: r.PeerTries, Unanswered: r.Unanswered})
	q.end.Wake()
}

// Done is closed when the QueuePair has left service and all its work has been completed or
// flushed. Any goroutine.
func (q *QueuePair) Done() <-chan struct{} { return q.end.Done.C() }

// Err says, after Done, why the connection ended; nil after an orderly close. Any goroutine.
func (q *QueuePair) Err() error {
	if !q.end.Done.Given() {
		return nil
	}
	return q.end.Err
}

// Close ends the connection in order: what was posted is sent, then our half is closed, and Close
// returns when the peer has closed its half too. If ctx ends first the connection is aborted; Done
// is closed when that is done. Start-up that is still in progress is cancelled. The error is ctx's,
// or that of the connection (Err); nil after an orderly end. Any application goroutine.
func (q *QueuePair) Close(ctx context.Context) error {
	q.end.Unwanted.Store(true)
	if q.engine.Move(wq.Idle, wq.Closed) {
		q.end.Finish(nil)
		return nil
	}
	q.Disconnect()
	if err := q.adapter.host.Wait(ctx, q.end.Done.C()); err != nil {
		q.Abort()
		return err
	}
	return q.end.Err
}

// Disconnect begins an orderly close, as Close, and returns; Done is closed when it is complete.
// Any application goroutine: it waits only while its Poller has no room for the call.
func (q *QueuePair) Disconnect() { q.end.Disconnect() }

// Abort resets the connection, and returns as Disconnect does. Done is closed soon after. In
// acknowledged mode the peer is first told which of its messages were accepted, which takes up to
// 200 ms if octets are still on their way to it. Any application goroutine.
func (q *QueuePair) Abort() { q.end.Abort() }

// Stats of one QueuePair.
type Stats struct {
	Receive       ReceiveStats
	Placed        Placed
	FPDUsSent     uint64
	PayloadSent   uint64 // octets of DDP payload
	MessagesSent  uint64
	MessagesRecvd uint64
	WritesRecvd   uint64
	SharedTaken   uint64 // buffers taken from the SRQ: what this peer consumes of it
	SharedHeld    int    // of these, not yet completed
	// SlowPath counts frames that were reassembled, segments that were left to be sent again
	// and octets that were moved together: what costs more than frames that come whole in one
	// segment. Arm(EventSlowPath).
	SlowPath    uint64
	ReadsServed uint64 // Reads and atomics of the peer's that were answered
	// RefusedPending counts segments that were left to be sent again because enough messages
	// had been placed ahead of a gap.
	RefusedPending uint64
	// in acknowledged mode: messages without a receive buffer here, and there, that were sent again
	NotReadySent, NotReadyRecvd uint64
	TCP                         TransportStats
}

// Placed counts payload octets by the way they took.
type Placed struct {
	Direct      uint64 // from the one segment that held their whole frame
	Reassembled uint64 // of frames that had to wait for another segment
	OutOfOrder  uint64 // of either kind, placed before an earlier gap was filled
}

// ReceiveStats count what MPA has found in the peer's octets.
type ReceiveStats struct {
	// FPDUs: all; in one segment; in several; beyond a gap
	FPDUs, Direct, Reassembled, OutOfOrder         uint64
	BytesDirect, BytesReassembled, BytesOutOfOrder uint64 // octets of their ULPDUs
	// packet buffers with octets of FPDUs that are not whole
	HeldBufs, HeldBufsPeak uint64
	// segments that were left to be sent again: for what one connection may hold
	RefusedBudget uint64
	RefusedCRC    uint64 // DropBadCRC: for a bad CRC
	// DropBadCRC: for octets that could not be verified
	RefusedUnverified     uint64
	RefusedOutOfOrderRuns uint64 // for too many out-of-order runs
	RefusedSpare          uint64 // because packet buffers were short
	// markers looked at to find where an FPDU beyond a gap begins
	MarkersSought             uint64
	Coalesced, BytesCoalesced uint64 // out-of-order runs that were moved together
}

func receiveStats(s mpa.ReceiverStats) ReceiveStats {
	return ReceiveStats{
		FPDUs: s.FPDUs, Direct: s.Direct, Reassembled: s.Reassembled, OutOfOrder: s.OutOfOrder,
		BytesDirect: s.BytesDirect, BytesReassembled: s.BytesReassembled,
		BytesOutOfOrder: s.BytesOutOfOrder,
		HeldBufs:        s.HeldBufs, HeldBufsPeak: s.HeldBufsPeak,
		RefusedBudget: s.RefusedBudget, RefusedCRC: s.RefusedCRC, RefusedUnverified: s.RefusedUnverified,
		RefusedOutOfOrderRuns: s.RefusedRuns, RefusedSpare: s.RefusedSpare,
		MarkersSought: s.MarkersSought, Coalesced: s.Coalesced, BytesCoalesced: s.BytesCoalesced,
	}
}

// statsOf is c as the application has it.
func statsOf(c connect.Counters) Stats {
	s := c.Engine
	return Stats{
		Receive: receiveStats(s.Receive), Placed: Placed(s.Placed), FPDUsSent: s.FPDUsSent,
		PayloadSent:  s.PayloadSent,
		MessagesSent: s.MessagesSent, MessagesRecvd: s.MessagesRecvd, WritesRecvd: s.WritesRecvd,
		SharedTaken: s.SharedTaken, SharedHeld: s.SharedHeld, SlowPath: s.SlowPath,
		ReadsServed:    s.ReadsServed,
		RefusedPending: s.RefusedPending,
		NotReadySent:   s.NotReadySent, NotReadyRecvd: s.NotReadyRecvd, TCP: TransportStats(c.Transport),
	}
}

// TransportStats come from our TCP or from the kernel's TCP_INFO.
type TransportStats struct {
	SegmentsIn, SegmentsOut, Retransmits, OutOfOrder uint64
	// times our TCP found the path to swallow large segments, and cut what was in flight
	BlackHoles uint64
	EMSS       int
	Kernel     bool
}

// Stats returns counters; after Done those at the end. It asks the goroutine that drives the
// connection and may block until ctx ends. Any application goroutine.
func (q *QueuePair) Stats(ctx context.Context) (Stats, error) {
	c, err := q.end.Stats(ctx)
	return statsOf(c), err
}

// PayloadMax is how many octets of a Write one full FPDU carries now, at least: with markers some
// carry four more. Writes of a multiple of it keep segments full. ErrState unless the QueuePair is
// in service: start-up settles whether there are markers. It waits as Stats does. Any application
// goroutine.
func (q *QueuePair) PayloadMax(ctx context.Context) (int, error) {
	n, err := q.end.MULPDU(ctx)
	if err != nil {
		return 0, err
	}
	return n - ddp.TaggedLen, nil
}
