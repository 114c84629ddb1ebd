package qp

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// recvHalf takes stream octets to registered memory, and finished messages to completions.
//
//	Arrive    octets --mpa.Receiver--> ULPDUs, each --ddp.Begin, judge, ddp.Place--> memory
//	          a ULPDU in order: ddp.Deliver --> deliver --> completion batch
//	          at the end: publishRecvs --> RecvCQ
//	LeftEdge  where frames were placed ahead of a gap:
//	          ddp.Deliver --> deliver --> publishRecvs --> RecvCQ
//
// So a message that comes in order is delivered in the call of Arrive that places its last octet,
// and published when that call ends. Messages that were placed ahead of a gap are delivered when
// the left edge has passed them.
type recvHalf struct {
	totals  *Totals
	rx      mpa.Receiver
	ddp     ddp.Stream
	queues  [rdmap.QNAtomic + 1]*ddp.Queue
	sendQ   ddp.Queue
	termQ   ddp.Queue
	version uint8
	shared  bool // receive buffers come from Config.SRQ

	rtr rtrState // rtr.go

	dead      bool   // octets are swallowed, because framing is lost or the stream was rejected
	edge      uint64 // left edge
	passed    uint64 // end of the last frame before it
	delivered uint64 // edge to which messages were delivered
	partial   bool   // the left edge is inside a frame
	deliv     ddp.Delivered

	fault    error      // first error of DDP or RDMAP
	lost     error      // errUnreachable, once memory was
	reported bool       // an error was reported, by this end or by the peer
	toReport bool       // one waits for the answers before it
	ulpdu    *mpa.ULPDU // in hand
	payload  int        // payload octets of the ULPDU in hand, once judge has accepted it
	op       rdmap.Opcode
	placed   Placed
	written  written

	terminated bool // the peer's Terminate was delivered
	terminate  int  // its length in the control region

	buffer wq.Request // the receive buffer in hand
	ranges []wq.SGE   // its ranges, Local first
	batch  *batch     // completions of this call: empty between two calls

	messages, writes uint64
	filledWrites     uint64 // those with octets
	writesTold       uint64 // of these, those of which the Source knows
	taken            uint64 // buffers from the SRQ
	refused          uint64 // segments, because too many messages wait for Delivery
}

func (r *recvHalf) start(q *Engine, o *StartOptions) {
	t, responder := o.Terms, o.Responder
	ag := &t.Agreement
	r.totals = o.Shared.count()
	r.version, r.shared = ag.Version, q.SRQ != nil
	mc := mpa.ReceiverConfig{
		Mode: ag.Receive, Pool: o.Pool, BufsMax: o.BufsMax,
		DropBadCRC: o.DropBadCRC, ULPDUMin: ddp.TaggedLen,
		InOrder: responder && rtrMayBeSend(t) || o.Acknowledged,
	}
	dc := ddp.StreamConfig{
		Table: q.Table, Domain: q.Domain, Stream: q.Stream, Version: ag.Version,
		PendingMax: pendingMax(o.EMSS),
	}
	if o.InOrder && !o.Acknowledged {
		dc.PendingMax = pendingInOrder
	}
	if s := o.Shared; s == nil {
		r.batch, r.ranges = new(batch), make([]wq.SGE, q.SGEMax)
	} else {
		r.batch, r.ranges = &s.recvs, s.ranges[:]
		mc.Reserve, mc.Scratch, mc.Room = &s.reserve, s.pieces, q.room
		dc.Targets = s.targets[:]
		if dc.PendingMax <= s.pending.PendingMax() {
			dc.Pending, dc.Peer = s.pending, o.Peer
		}
	}
	r.buffer.List = r.ranges[1:]
	r.rx.Init(mc)
	r.sendQ.InitLists(ceilPow2(q.RecvDepth), int(q.RecvRanges))
	r.termQ.Init(1)
	r.termQ.Post(ddp.RecvBuffer{STag: q.control.region.STag(), Len: TerminateLenMax})
	r.queues = [...]*ddp.Queue{rdmap.QNSend: &r.sendQ, rdmap.QNTerminate: &r.termQ,
		rdmap.QNAtomic: nil}
	// Without IRD there is no queue for Requests. A Responder that has agreed to a Read as RTR
	// message serves at least that one.
	ird := min(readDepth(int(t.IRD)), q.control.depths.requestsMax())
	if responder && t.RTR&mpa.RTRRead != 0 {
		ird = max(1, ird)
	}
	if ird > 0 {
		q.respond.start(q.control.region.STag(), ird)
		r.queues[rdmap.QNRead] = &q.respond.requestQ
	}
	q.requester.start(q, min(readDepth(int(t.ORD)), q.control.depths.ord), rtrIsRead(t, responder))
	known := r.queues[:rdmap.QNAtomic]
	if ag.Version == rdmap.Extensions {
		known = r.queues[:]
	}
	if q.requester.ord > 0 {
		r.queues[rdmap.QNAtomic] = &q.requester.atomicQ
	}
	if o.Acknowledged {
		known = append(known, nil) // queue 4, of which nothing is placed
		q.startAcknowledging(rtrMessages(t, responder))
	}
	dc.Queues = known
	r.ddp.Init(dc)
}

// Stamp tells the timestamp of the segment that Arrive is given next: when the peer sent it
// (mpa.Receiver.Sent).
func (q *Engine) Stamp(ts uint32) { q.recv.rx.Sent(ts) }

// Arrive offers segments that continue each other from an offset of the MPA stream on. bufs hold
// them. n is how many it has looked at; the Verdict says what becomes of the last of those, while
// the others are taken. It stops after the first segment that has a visible effect beyond
// placement.
func (q *Engine) Arrive(off uint64, bufs []mem.Buf, data [][]byte) (n int, v mpa.Verdict) {
	r := &q.recv
	if r.dead {
		return len(data), mpa.Done
	}
	inOrder := off == r.edge
	if !inOrder && !r.roomFor(off, len(data[0])) {
		r.totals.RefusedPending++
		// enough messages ahead of the gap wait for Delivery; the peer's TCP sends these octets again
		r.refused++
		return 1, mpa.Refused
	}
	if !inOrder || q.watch.armed.Load() {
		data = data[:1]
	}
	q.postBuffers()
	q.reader.Enter()
	n = q.placeSegments(off, bufs, data)
	v = r.rx.Verdict()
	q.reader.Exit()
	q.arrived()
	if v == mpa.Refused && r.rx.Short() {
		q.effects |= shortage(inOrder)
	}
	return n, v
}

// roomFor says whether all messages that n octets at off, beyond a gap, may complete can wait for
// Delivery. What has been held for long without a known FPDU counts too: all of it may be passed at
// once (mpa.ReceiverConfig.InOrder).
func (r *recvHalf) roomFor(off uint64, n int) bool {
	room := r.ddp.Room() - n/fpduLenMin
	return room >= roomSpare && room >= r.rx.Joins(off, n)/fpduLenMin+roomEnds
}

// shortage is the effect of Bufs that are short for octets of the peer's.
func shortage(inOrder bool) Effects {
	if inOrder {
		return EffectNeedBufs
	}
	return EffectWantBufs
}

// ArriveLate is Arrive for octets in order that TCP acknowledged before MPA took the connection
// over. They cannot be refused. kept: b is MPA's now.
func (q *Engine) ArriveLate(off uint64, b mem.Buf, data []byte) (kept bool) {
	r := &q.recv
	if r.dead {
		return false
	}
	q.postBuffers()
	q.reader.Enter()
	r.rx.InputCommitted(off, b, data)
	q.placeLate()
	v := r.rx.Verdict()
	q.reader.Exit()
	q.arrived()
	return v == mpa.Kept
}

// placeSegments places the ULPDUs of segments, and returns of how many. Between Enter and Exit of
// the Reader.
func (q *Engine) placeSegments(off uint64, bufs []mem.Buf, data [][]byte) (n int) {
	r := &q.recv
	defer q.recoverPlacement(debug.SetPanicOnFault(true))
	for more := true; more; {
		r.rx.Input(off, bufs[n], data[n])
		off += uint64(len(data[n]))
		n++
		q.placeNext()
		more = n < len(data) && r.rx.Verdict() == mpa.Done && !q.toldSomething()
	}
	return n
}

// placeNext places the ULPDUs that are whole now.
func (q *Engine) placeNext() {
	for u := q.recv.rx.Next(); u != nil; u = q.recv.rx.Next() {
		q.place(u)
	}
}

// toldSomething says whether the segment that has just arrived has a visible effect beyond
// placement.
func (q *Engine) toldSomething() bool {
	r := &q.recv
	return r.batch.n > 0 || q.HasEffects() || !q.send.enabled || q.Source != nil &&
		r.filledWrites != r.writesTold ||
		r.fault != nil || r.terminated || r.ddp.Err() != nil || r.rx.Err() != nil
}

// placeLate is placeSegments of octets that are there already.
func (q *Engine) placeLate() {
	defer q.recoverPlacement(debug.SetPanicOnFault(true))
	q.placeNext()
}

// recoverPlacement ends the stream if the ULPDU in hand could not be placed. Those after it move
// the left edge, and are not placed. faults is debug.SetPanicOnFault as it was.
func (q *Engine) recoverPlacement(faults bool) {
	debug.SetPanicOnFault(faults)
	if !q.unreachable(recover()) {
		return
	}
	r := &q.recv
	err := r.ddp.Unreachable(r.ulpdu.Start, r.ulpdu.Len)
	r.fault = fmt.Errorf("%w: %w", errUnreachable, err)
	q.requester.sinkFailed(err)
	if r.ulpdu.InOrder {
		q.deliverTo(r.ulpdu.End)
	}
	q.placeNext()
}

// arrived ends Arrive and ArriveLate: it publishes completions, and acts on thresholds and errors.
func (q *Engine) arrived() {
	q.publishRecvs()
	q.tellWrites()
	if q.watch.armed.Load() {
		q.checkThresholds()
	}
	if !q.send.enabled && q.recv.rx.Stats().FPDUs > 0 {
		// a valid FPDU has come: the Responder may send, even if only a Terminate about that FPDU
		q.Open()
	}
	q.lookForErrors()
}

// tellWrites tells the Source of Writes that were delivered, except empty ones.
func (q *Engine) tellWrites() {
	if r := &q.recv; r.filledWrites != r.writesTold && q.Source != nil {
		r.writesTold = r.filledWrites
		q.Source.Written()
	}
}

// Open lets a Responder send.
func (q *Engine) Open() {
	q.send.enabled = true
	if !q.ack.on {
		q.recv.rx.PassAhead()
	}
	q.effects |= EffectOpened
}

// LeftEdge tells how far TCP has committed the stream, and delivers messages that were placed ahead
// of a gap and end before that.
func (q *Engine) LeftEdge(edge uint64) {
	r := &q.recv
	if r.dead {
		return
	}
	passed := r.rx.Edge(edge)
	if passed != r.delivered { // otherwise everything came in order, and place has delivered it
		q.reader.Enter()
		q.deliverTo(passed)
		q.reader.Exit()
		q.publishRecvs()
		q.tellWrites()
		q.lookForErrors()
	}
	r.edge = edge
	r.passed = max(r.passed, passed)
	if q.watch.armed.Load() {
		q.checkThresholds()
	}
	r.partial = passed != edge
}

// place takes a ULPDU to memory and, if it came in order, delivers the message that it ends.
//
// An error of DDP or RDMAP does not stop the Receiver. Octets still move the left edge, so that
// messages before the error are delivered (RFC 5041 section 5.4); the Stream drops the rest.
func (q *Engine) place(u *mpa.ULPDU) {
	r := &q.recv
	r.ulpdu, r.payload = u, 0
	h, err := r.ddp.Begin(u.Start, u.End, u.Len, u.Pieces)
	if h != nil && !(q.ack.on && q.aside(u, h)) {
		switch need, ok := q.judge(h, u.Len-h.Len()); {
		case !ok:
			r.ddp.Disable()
		case r.op.Immediate():
			err = r.ddp.PlaceAside(u.Start, u.End, u.Len, u.Pieces)
		default:
			err = r.ddp.Place(u.Start, u.End, u.Len, u.Pieces, need)
		}
	}
	if err != nil {
		r.fault = err
		q.requester.sinkFailed(err)
	} else if r.fault == nil {
		r.count(u)
		switch {
		case h == nil:
		case r.op == rdmap.OpWrite:
			r.written.place(u, r.payload)
		case r.op == rdmap.OpReadResponse:
			q.ack.responded += uint64(r.payload)
		}
	}
	if u.InOrder { // before the next is placed, so that few messages wait for Delivery
		q.deliverTo(u.End)
	}
}

// count adds the payload of u to the counters.
func (r *recvHalf) count(u *mpa.ULPDU) {
	n, all := uint64(r.payload), r.totals
	all.FPDUsIn++
	if u.Direct {
		r.placed.Direct += n
		all.Placed.Direct += n
	} else {
		r.placed.Reassembled += n
		all.Placed.Reassembled += n
		all.Reassembled++
	}
	if !u.InOrder {
		r.placed.OutOfOrder += n
		all.Placed.OutOfOrder += n
		all.Ahead++
	}
}

// judge makes RDMAP's checks before Placement (RFC 5040 section 7.2). need is the right that a
// Tagged range must have. Without ok the ULPDU must not be placed, and the stream has failed.
func (q *Engine) judge(h *ddp.Header, payload int) (need mem.Access, ok bool) {
	r := &q.recv
	if r.rtr.awaited {
		q.firstFPDU(h, h.Len()+payload)
		q.postBuffers()
	}
	op, cause, ok := q.check(h)
	r.op = op
	if ok {
		switch op {
		case rdmap.OpWrite:
			need = q.needs(mem.RemoteWrite, PeerWrites)
		case rdmap.OpImmediate, rdmap.OpImmediateSE: // 8 octets, DECISIONS 39
			cause, ok = rdmap.CauseOperation, payload == rdmap.ImmediateLen && h.MO == 0 && h.Last
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
			q.requester.setFlushStatus(0, wq.BadResponse)
		}
		return 0, false
	}
	r.payload = payload
	if r.shared && !h.Tagged && h.QN == rdmap.QNSend {
		return 0, q.takeShared(h.MSN)
	}
	return need, true
}

// Cut says whether a stream that ends at the left edge ends inside a frame.
func (q *Engine) Cut() bool { return q.recv.partial && !q.recv.reported }

// abandon flushes the receive buffers that Placement has, and frees the packet buffers that the
// Receiver holds.
func (r *recvHalf) abandon(q *Engine) {
	r.rx.Close()
	r.ddp.Close()
	msn := uint32(r.messages) + r.rtr.sends // of the last message that was delivered
	if r.rtr.hidden {
		_, _ = r.sendQ.Flush() // the RTR message's buffer, which has no completion
		msn++
	}
	for {
		b, ok := r.sendQ.Flush()
		if !ok {
			return
		}
		msn++
		q.complete(q.RecvCQ, &wq.WQE{ID: b.ID, Op: wq.OpRecv}, 0, r.flushStatus(msn))
	}
}

// flushStatus is the status of the receive buffer of message msn, which was not delivered: what was
// wrong with the buffer, if that ended the stream.
func (r *recvHalf) flushStatus(msn uint32) wq.Status {
	var e *ddp.Error
	if !errors.As(r.fault, &e) || e.Header.Tagged || e.Truncated || e.Header.QN != rdmap.QNSend ||
		e.Header.MSN != msn {
		return wq.Flushed
	}
	switch {
	case e.Type == ddp.TypeLocalCatastrophic:
		return wq.LocalProtection
	case e.Type == ddp.TypeUntagged && (e.Code == ddp.CodeTooLong || e.Code == ddp.CodeInvalidMO):
		return wq.LocalLength
	}
	return wq.Flushed
}
