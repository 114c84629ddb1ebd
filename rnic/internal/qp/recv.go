package qp

import (
	"errors"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// recvHalf takes stream octets to registered memory, and finished messages to the CompletionQueue.
//
//	octets --mpa.Receiver--> ULPDU --rdmap check, ddp.Stream.Place--> memory
//	left edge --mpa.Receiver.Edge--> ddp.Stream.Deliver --> Completion
type recvHalf struct {
	rx      mpa.Receiver
	ddp     ddp.Stream
	queues  [rdmap.QNAtomic + 1]*ddp.Queue
	sendQ   ddp.Queue
	termQ   ddp.Queue
	version uint8
	shared  bool // receive buffers come from QPOptions.SRQ

	rtr rtrState // rtr.go

	dead      bool // an error was found: octets are swallowed (drafts' section 7, DDP 9.1)
	edge      uint64
	passed    uint64 // all frames that end at or before it were passed
	delivered uint64 // Delivery has been told of this edge
	partial   bool   // the left edge stands inside a frame
	deliv     ddp.Delivered

	fault    error // DDP's or RDMAP's error, once
	reported bool  // the peer was told
	payload  int   // octets of the segment in hand, once it was judged
	placed   Placed

	terminated bool // the peer's Terminate was delivered
	terminate  int  // its length in the control region

	list   []SGE       // of the buffer that postBuffer is at
	ranges []ddp.Range // and all of its ranges

	entry WQE   // of rq, in hand
	batch batch // of completions

	messages, writes uint64
	taken            uint64 // from the SRQ
	refused          uint64
}

const (
	fpduLenMin = mpa.HeaderLen + ddp.TaggedLen + mpa.CRCLen
	roomSpare  = 64 // frames that were held, partly, and that a segment makes whole
)

func (r *recvHalf) start(q *Engine, o *StartOptions) {
	t, responder := o.Terms, o.Responder
	ag := &t.Agreement
	r.version, r.shared = ag.Version, q.SRQ != nil
	r.rx.Init(mpa.ReceiverConfig{
		Mode: ag.Receive, Pool: o.Pool, BufsMax: o.BufsMax, Reserve: o.Reserve,
		DropBadCRC: o.DropBadCRC, ULPDUMin: ddp.TaggedLen,
		InOrder: responder && rtrMayBeSend(t),
	})
	r.sendQ.InitLists(ceilPow2(q.RecvDepth), q.RecvRanges)
	r.list = make([]SGE, q.SGEMax-1)
	r.ranges = make([]ddp.Range, q.SGEMax)
	r.termQ.Init(1)
	r.termQ.Post(ddp.RecvBuffer{STag: q.ctrl.STag(), Len: terminateLenMax})
	r.queues = [...]*ddp.Queue{rdmap.QNSend: &r.sendQ, rdmap.QNTerminate: &r.termQ, rdmap.QNAtomic: nil}
	// A QueuePair that serves no Reads has no queue for them. One that offers a Read as RTR message
	// has said that it serves one.
	ird := min(readDepth(int(t.IRD)), q.depths.requestsMax())
	if responder && t.RTR&mpa.RTRRead != 0 {
		ird = max(1, ird)
	}
	if ird > 0 {
		q.respond.start(q.ctrl.STag(), ird)
		r.queues[rdmap.QNRead] = &q.respond.requestQ
	}
	q.requester.start(q, min(readDepth(int(t.ORD)), q.depths.ord), rtrIsRead(t, responder))
	known := r.queues[:rdmap.QNAtomic]
	if ag.Version == rdmap.Extensions {
		known = r.queues[:]
	}
	if q.requester.ord > 0 {
		r.queues[rdmap.QNAtomic] = &q.requester.atomicQ
	}
	r.ddp.Init(ddp.StreamConfig{
		Table: q.Table, Domain: q.Domain, Stream: q.Stream, Version: ag.Version,
		Queues: known, PendingMax: max(pendingMin, 2*(o.EMSS/fpduLenMin+roomSpare)),
	})
}

// Sent tells the timestamp of the segment that arrive is given next (mpa.Receiver.Sent).
func (q *Engine) Sent(stamp uint32) { q.recv.rx.Sent(stamp) }

// Arrive offers octets at an offset of the MPA stream.
func (q *Engine) Arrive(off uint64, b mem.Buf, data []byte) mpa.Verdict {
	r := &q.recv
	if r.dead {
		return mpa.Done
	}
	if off != r.edge && r.ddp.Room() < len(data)/fpduLenMin+roomSpare {
		r.refused++ // enough messages ahead of the gap wait for Delivery already; TCP sends it again
		return mpa.Refused
	}
	q.postBuffers()
	q.reader.Enter()
	r.rx.Input(off, b, data)
	for u := r.rx.Next(); u != nil; u = r.rx.Next() {
		q.place(u)
	}
	v := r.rx.Verdict()
	q.reader.Exit()
	q.arrived()
	if v == mpa.Refused {
		q.effects |= EffectShort
	}
	return v
}

// ArriveLate offers octets that TCP acknowledged before MPA took the connection over, in order; it
// cannot refuse them.
func (q *Engine) ArriveLate(off uint64, b mem.Buf, data []byte) (kept bool) {
	r := &q.recv
	if r.dead {
		return false
	}
	q.postBuffers()
	q.reader.Enter()
	r.rx.InputCommitted(off, b, data)
	for u := r.rx.Next(); u != nil; u = r.rx.Next() {
		q.place(u)
	}
	v := r.rx.Verdict()
	q.reader.Exit()
	q.arrived()
	return v == mpa.Kept
}

// arrived acts on what octets brought.
func (q *Engine) arrived() {
	q.publishRecvs()
	if q.watch.armed.Load() {
		q.checkThresholds()
	}
	if !q.send.enabled && q.recv.rx.Stats().FPDUs > 0 {
		q.Open() // the Responder has seen a valid FPDU: it may send, and be it a Terminate about that one
	}
	q.lookForErrors()
}

// Open lets the Responder send.
func (q *Engine) Open() {
	q.send.enabled = true
	q.recv.rx.PassAhead()
	q.effects |= EffectOpened
}

// LeftEdge delivers what is complete below edge.
func (q *Engine) LeftEdge(edge uint64) {
	r := &q.recv
	if r.dead {
		return
	}
	passed := r.rx.Edge(edge)
	if passed != r.delivered { // else it was in order, and Place has delivered it
		q.reader.Enter()
		q.deliverTo(passed)
		q.reader.Exit()
		q.publishRecvs()
		q.lookForErrors()
	}
	r.edge = edge
	r.passed = max(r.passed, passed)
	if q.watch.armed.Load() {
		q.checkThresholds()
	}
	r.partial = passed != edge
}

// place takes a ULPDU to memory.
//
// It never stops the Receiver: after an error of DDP's or RDMAP's, octets still move the left edge,
// and messages that were whole before it are still delivered (DDP section 7.4); the Stream drops
// the rest.
func (q *Engine) place(u *mpa.ULPDU) {
	r := &q.recv
	r.payload = 0
	h, err := r.ddp.Begin(u.Start, u.End, u.Len, u.Pieces)
	if h != nil {
		if need, ok := q.judge(h, u.Len-h.Len()); ok {
			err = r.ddp.Place(u.Start, u.End, u.Len, u.Pieces, need)
		} else {
			r.ddp.Disable()
		}
	}
	if err != nil {
		r.fault = err
		q.requester.sinkFailed(err)
	} else if r.fault == nil {
		r.count(u)
	}
	if u.InOrder { // what it completes is delivered before the next is placed, so that nothing piles up
		q.deliverTo(u.End)
	}
}

// count tells placed payload by the way it came.
func (r *recvHalf) count(u *mpa.ULPDU) {
	n := uint64(r.payload)
	if u.Direct {
		r.placed.Direct += n
	} else {
		r.placed.Reassembled += n
	}
	if !u.InOrder {
		r.placed.OutOfOrder += n
	}
}

// judge is RDMAP's part before Placement (RFC 5040 section 7.2). A false ok: the segment is not to
// be placed, and the stream is over.
func (q *Engine) judge(h *ddp.Header, payload int) (need mem.Access, ok bool) {
	r := &q.recv
	if r.rtr.awaited {
		q.firstFPDU(h, h.Len()+payload)
		q.postBuffers()
	}
	op, cause, ok := rdmap.Check(h, r.version)
	if need = mem.RemoteWrite; ok {
		switch op {
		case rdmap.OpReadResponse:
			need = mem.LocalWrite
			cause, ok = q.requester.expects(h, payload)
		case rdmap.OpReadRequest, rdmap.OpAtomicRequest:
			cause, ok = rdmap.CauseOpcode, r.queues[rdmap.QNRead] != nil
		case rdmap.OpAtomicResponse:
			cause, ok = rdmap.CauseOpcode, q.requester.outstanding.count > 0
		}
	}
	if !ok {
		r.fault = &opcodeError{cause: cause, header: *h, segmentLen: h.Len() + payload}
		if op == rdmap.OpReadResponse || op == rdmap.OpAtomicResponse {
			q.requester.setFlushStatus(0, BadResponse)
		}
		return 0, false
	}
	r.payload = payload
	if r.shared && !h.Tagged && h.QN == rdmap.QNSend {
		return 0, q.takeShared(h.MSN)
	}
	return need, true
}

// Cut says whether the stream, ended here, ends inside a frame.
func (q *Engine) Cut() bool { return q.recv.partial && !q.recv.reported }

// abandon flushes the buffers that wait for messages, and what the Receiver holds.
func (r *recvHalf) abandon(q *Engine) {
	if r.queues[0] == nil { // never in service
		return
	}
	r.rx.Close()
	msn := uint32(r.messages) + r.rtr.sends // of the last message that was delivered
	if r.rtr.hidden {
		_, _ = r.sendQ.Flush() // start-up's own, of a stream that failed at once
		msn++
	}
	for {
		b, ok := r.sendQ.Flush()
		if !ok {
			return
		}
		msn++
		q.complete(q.RecvCQ, &WQE{ID: b.ID, Op: OpRecv}, 0, r.flushStatus(msn))
	}
}

// flushStatus of the receive buffer of message msn that was not filled.
func (r *recvHalf) flushStatus(msn uint32) Status {
	var e *ddp.Error
	if !errors.As(r.fault, &e) || e.Header.Tagged || e.Truncated || e.Header.QN != rdmap.QNSend || e.Header.MSN != msn {
		return Flushed
	}
	switch {
	case e.Type == ddp.TypeLocalCatastrophic:
		return LocalProtection
	case e.Type == ddp.TypeUntagged && (e.Code == ddp.CodeTooLong || e.Code == ddp.CodeInvalidMO):
		return LocalLength
	}
	return Flushed
}
