package rnic

import (
	"errors"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/stack"
)

// recvHalf takes stream octets to registered memory, and finished messages to the CompletionQueue.
//
//	octets --mpa.Receiver--> ULPDU --rdmap check, ddp.Stream.Place--> memory
//	left edge --mpa.Receiver.Edge--> ddp.Stream.Deliver --> Completion
type recvHalf struct {
	rx      mpa.Receiver
	ddp     ddp.Stream
	queues  [3]*ddp.Queue
	sendQ   ddp.Queue
	termQ   ddp.Queue
	version uint8

	dead    bool // an error was found: octets are swallowed (drafts' section 7, DDP 9.1)
	edge    uint64
	partial bool // the left edge stands inside a frame
	deliv   ddp.Delivered

	terminated int // length of the peer's Terminate in the control region

	head [ddp.UntaggedLen]byte // a header that a marker or a segment's end cuts

	messages, writes uint64
}

const (
	fpduLenMin = mpa.HeaderLen + ddp.TaggedLen + mpa.CRCLen
	roomSpare  = 64 // frames that were held, partly, and that a segment makes whole
)

func (r *recvHalf) start(q *QueuePair, l *link, ag mpa.Agreement) {
	r.version = ag.Version
	r.rx.Init(mpa.ReceiverConfig{
		Mode: ag.Receive, Pool: l.pool, BufsMax: l.holdMax, DropBadCRC: q.opt.DropBadCRC && !l.inOrder,
	})
	r.sendQ.Init(ceilPow2(q.opt.RecvDepth))
	r.termQ.Init(1)
	r.termQ.Post(ddp.RecvBuffer{STag: q.ctrl.STag(), Len: terminateLenMax})
	// Queue 1 carries Read Requests; a QueuePair that serves none has no buffers there.
	r.queues = [3]*ddp.Queue{rdmap.QNSend: &r.sendQ, rdmap.QNTerminate: &r.termQ}
	r.ddp.Init(ddp.StreamConfig{
		Table: q.adapter.table, Domain: q.opt.PD.id, Stream: q.stream, Version: ag.Version,
		Queues: r.queues[:], PendingMax: pendingMax,
	})
}

// arrive offers octets at an offset of the MPA stream. Driver's goroutine.
func (q *QueuePair) arrive(l *link, off uint64, b mem.Buf, data []byte) stack.Verdict {
	r := &q.recv
	if r.dead {
		return stack.Taken
	}
	if off != r.edge && r.ddp.Room() < len(data)/fpduLenMin+roomSpare {
		return stack.Refused // messages ahead of the gap wait for Delivery already; TCP sends it again
	}
	q.postBuffers()
	q.reader.Enter()
	v := r.rx.Input(off, b, data, q)
	q.reader.Exit()
	if err := r.rx.Err(); err != nil {
		q.receiveError(l, err)
	}
	q.peerTerminated(l)
	switch v {
	case mpa.Kept:
		return stack.Kept
	case mpa.Refused:
		return stack.Refused
	}
	return stack.Taken
}

// leftEdge delivers what is complete below edge.
func (q *QueuePair) leftEdge(l *link, edge uint64) {
	r := &q.recv
	if r.dead {
		return
	}
	q.postBuffers()
	q.reader.Enter()
	passed := r.rx.Edge(edge, q)
	q.reader.Exit()
	r.edge = edge
	q.deliverTo(passed)
	if err := r.ddp.Err(); err != nil && !r.dead {
		q.receiveError(l, err)
	}
	q.peerTerminated(l)
	if passed > 0 && !q.send.enabled {
		q.send.enabled = true // the Responder has seen a valid FPDU
		l.car.send()
	}
	r.partial = passed != edge
}

// postBuffers moves newly posted receive buffers to where Placement looks for them.
func (q *QueuePair) postBuffers() {
	for q.rq.Len() > 0 && q.recv.sendQ.Posted() < ceilPow2(q.opt.RecvDepth) {
		wr, ok := q.rq.Pop()
		if !ok {
			return
		}
		q.recv.sendQ.Post(ddp.RecvBuffer{ID: wr.ID, STag: wr.Local.STag, TO: wr.Local.Offset, Len: wr.Local.Length})
	}
}

// Place implements mpa.Sink. Not for applications.
func (q *QueuePair) Place(u *mpa.ULPDU) error {
	r := &q.recv
	if err := r.check(u); err != nil {
		return err
	}
	if err := r.ddp.Place(u.Start, u.End, u.Len, u.Pieces); err != nil {
		return err
	}
	if u.InOrder { // what it completes is delivered before the next is placed, so that nothing piles up
		q.deliverTo(u.End)
	}
	return nil
}

// check is RDMAP's part before Placement (RFC 5040 section 7.2). A wrong DDP version is left to DDP to report.
func (r *recvHalf) check(u *mpa.ULPDU) error {
	if len(u.Pieces) == 0 {
		return nil
	}
	head := u.Pieces[0]
	if len(head) < ddp.UntaggedLen && len(u.Pieces) > 1 {
		n := 0
		for _, p := range u.Pieces {
			n += copy(r.head[n:], p)
		}
		head = r.head[:n]
	}
	h, _, ok := ddp.Parse(head)
	if !ok || h.Version != r.version {
		return nil
	}
	op, cause, ok := rdmap.Check(&h, r.version)
	if ok && !served[op] {
		cause, ok = rdmap.CauseOpcode, false
	}
	if ok {
		return nil
	}
	return &opcodeError{cause: cause, header: h, segmentLen: u.Len}
}

// served are the opcodes this RNIC carries out.
var served = [...]bool{rdmap.OpWrite: true, rdmap.OpSend: true, rdmap.OpSendSE: true, rdmap.OpTerminate: true, 15: false}

// deliverTo completes the messages that end at or before edge.
func (q *QueuePair) deliverTo(edge uint64) {
	r := &q.recv
	for r.ddp.Deliver(edge, &r.deliv) {
		q.deliver(&r.deliv)
	}
}

func (q *QueuePair) deliver(d *ddp.Delivered) {
	r := &q.recv
	_, op := rdmap.ParseControl(d.Header.ULP)
	switch {
	case d.Header.Tagged:
		r.writes++
	case d.Header.QN == rdmap.QNSend:
		r.messages++
		q.opt.RecvCQ.push(Completion{ID: d.Buffer.ID, QP: q.num, Len: d.Len, Op: OpRecv})
	case op == rdmap.OpTerminate:
		r.terminated = int(d.Len)
	}
}

// opcodeError is RDMAP's refusal of a segment.
type opcodeError struct {
	cause      rdmap.Cause
	header     ddp.Header
	segmentLen int
}

func (e *opcodeError) Error() string { return e.cause.String() }

// receiveError answers the peer's fault: nothing more is placed or delivered, one Terminate goes out.
func (q *QueuePair) receiveError(l *link, err error) {
	q.recv.dead = true
	q.state.Store(uint32(Error))
	l.note(&TerminateError{Cause: err})
	q.send.terminate(terminateBody(err))
	l.closing()
}

// peerTerminated acts on a Terminate that was delivered.
func (q *QueuePair) peerTerminated(l *link) {
	if q.recv.terminated == 0 || q.recv.dead {
		return
	}
	body := q.ctrl.Bytes()[:q.recv.terminated]
	q.recv.dead = true
	q.send.stopped = true
	q.state.Store(uint32(Error))
	l.note(&TerminateError{Remote: true, Cause: terminateCause(body)})
	l.closing()
}

// cut says whether the stream, ended here, ends inside a frame.
func (q *QueuePair) cut() bool { return q.recv.partial && !q.recv.dead }

// abandon flushes the buffers that wait for messages, and what the Receiver holds.
func (r *recvHalf) abandon(q *QueuePair) {
	if q.link.Load() == nil || r.queues[0] == nil {
		return
	}
	r.rx.Close()
	for {
		b, ok := r.sendQ.Flush()
		if !ok {
			return
		}
		q.opt.RecvCQ.push(Completion{ID: b.ID, QP: q.num, Op: OpRecv, Status: Flushed})
	}
}

var errLocalRange = errors.New("rnic: a posted local range is not registered for this, or was revoked")
