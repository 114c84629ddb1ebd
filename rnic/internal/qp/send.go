package qp

import (
	"encoding/binary"
	"runtime/debug"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// sendHalf turns work requests into FPDUs when the transport pulls.
//
//	work request --ddp.Segmenter--> DDP header, place in the message
//	             --mem.Table.Check--> octets --mpa.Sender.Put--> segment
type sendHalf struct {
	totals  *Totals
	tx      mpa.Sender
	seg     ddp.Segmenter
	version uint8
	wr      wq.Request // in hand; Op 0: none

	// a Responder sends nothing before the first valid FPDU (RFC 5044 section 7.1.2 rule 4)
	enabled bool
	stopped bool   // nothing more is sent, except the Terminate
	size    uint32 // octets of its message
	cutAt   uint32 // where the segment in hand begins in the message
	held    bool   // it waits for Responses to requests before it
	noMore  bool   // it needs a Response, and the peer has closed its half: nothing from it on is sent
	batch   *batch // completions of this Pull: empty between two calls

	gatherRoom
	from      source // of the octets of the message that is being cut
	answering bool   // that message is the Response at the front of responder.answers
	queueTurn bool   // the last message was a Response: it is the send queue's turn

	owed     *ddp.Message // RTR message or wake-up, sent before what was posted (rtr.go); nil: none
	owedBody []byte

	push bool // a message has ended in what was pulled since the last call of pushed

	term    []byte // ULPDU of a Terminate to send, with its header; nil: none
	termOut bool   // the Terminate was sent

	// carry[carryOff:carryEnd] is what is left to send of an FPDU that is larger than a segment.
	// There is one when EMSS is below 140, because MULPDU is 128 at least (RFC 5044 section 4.5).
	carry    [2 * mpa.MULPDUMin]byte
	carryOff int
	carryEnd int

	// staged has the FPDUs of a segment that waits for more (StartOptions.PackFull).
	staged   []byte
	packFull bool
	fill     bool // StartOptions.Fill, or PackFull

	hdr [ddp.UntaggedLen]byte

	fpdus, payload, messages uint64
}

func (s *sendHalf) start(q *Engine, o *StartOptions) {
	s.totals = o.Shared.count()
	ag := &o.Terms.Agreement
	s.wr.Data = sized(s.wr.Data, q.InlineMax)
	s.wr.List = sized(s.wr.List, max(1, q.SGEMax-1)) // an atomic has one
	s.tx.Init(ag.Send)
	s.seg.Init(ag.Version)
	s.version = ag.Version
	s.enabled = o.Opened
	if o.Shared != nil {
		s.batch, s.parts = &o.Shared.sends, o.Shared.parts[:1]
	} else {
		s.batch, s.parts = new(batch), make([][]byte, 1, 1+q.SGEMax)
	}
	s.fill = o.Fill || o.PackFull
	if o.PackFull {
		s.packFull = true
		s.staged = make([]byte, 0, o.EMSS)
	}
}

// Unopened says whether sending waits for the Initiator's first FPDU.
func (q *Engine) Unopened() bool { return !q.send.enabled && !q.send.stopped }

// StopUnopened stops sending if it waits for the Initiator's first FPDU. False: it does not.
func (q *Engine) StopUnopened() bool {
	if !q.send.enabled {
		q.send.stopped = true
	}
	return !q.send.enabled
}

// idle is Engine.Idle.
func (s *sendHalf) idle(q *Engine) bool {
	return !s.pending(q) && (s.stopped || !s.held && q.requester.sent.count == 0 && !q.ack.acksWait())
}

// pending says whether there is something to pull, or a work request to look at.
func (s *sendHalf) pending(q *Engine) bool {
	return s.carryOff != s.carryEnd || len(s.staged) > 0 || s.term != nil || q.ack.due != 0 ||
		!s.stopped && (s.owed != nil || s.seg.Active() || q.respond.answers.count > 0 || !s.held &&
			!s.noMore && q.sendsWait())
}

// pushed says whether a message has ended in what was pulled since the last call. A message whose
// end waits for the next segment has not.
func (s *sendHalf) pushed() bool {
	if !s.push || s.carryOff < s.carryEnd || len(s.staged) > 0 {
		return false
	}
	s.push = false
	return true
}

// Pull fills dst, the payloads of segments, with whole FPDUs, as many as fit, and cuts each that it
// fills to them. n is how many it has filled; ends has bit i set where a message ends in segment i.
// With mayWait it may keep a segment that is not full: octets are unacknowledged, and the caller
// calls Pull again when they have been acknowledged (StartOptions.PackFull).
func (q *Engine) Pull(dst [][]byte, mayWait bool) (n int, ends uint32) {
	s := &q.send
	if !s.held && !s.pending(q) {
		return 0, 0
	}
	if q.ack.acksWait() && s.enabled && !s.stopped && s.pending(q) {
		q.ack.due |= dueAcknowledge // with what else there is
	}
	q.reader.Enter()
	n, used, ends := q.putSegments(dst, mayWait)
	s.found = nil
	q.reader.Exit()
	if used > 0 { // the rest of it could not be reached
		dst[n] = dst[n][:used]
		if s.pushed() {
			ends |= 1 << n
		}
		n++
	}
	q.SQ.Release()
	q.publishSends()
	if q.recv.fault != nil || q.recv.toReport {
		q.lookForErrors() // the source of a Response was revoked, or is gone, or all are on their way
	}
	return n, ends
}

// putSegments writes FPDUs to the segments of dst, for Pull, and keeps one that may wait. Of one
// whose octets cannot all be reached it has written used octets.
func (q *Engine) putSegments(dst [][]byte, mayWait bool) (n, used int, ends uint32) {
	defer q.recoverGather(debug.SetPanicOnFault(true))
	s := &q.send
	for n < len(dst) {
		room := dst[n]
		s.ahead = (len(dst) - n) * len(room)
		if s.carryOff < s.carryEnd {
			used = copy(room, s.carry[s.carryOff:s.carryEnd])
			s.carryOff += used
		} else {
			used = s.unstage(room)
			for (used == 0 || len(room)-used >= fpduLenMin) && len(s.staged) == 0 {
				k := q.putNext(room[used:], len(room))
				if k == 0 {
					break
				}
				used += k
			}
			if used > 0 && mayWait && !s.noMore && q.recv.fault == nil && s.roomFor(room[used:]) {
				s.stage(room[:used])
				break
			}
		}
		if used == 0 {
			break
		}
		dst[n] = room[:used]
		if s.pushed() {
			ends |= 1 << n
		}
		n++
		used = 0
	}
	return n, 0, ends
}

// putNext writes the next FPDU to dst, what is free of a segment of emss octets. It returns 0 when
// there is none, or when it does not fit.
func (q *Engine) putNext(dst []byte, emss int) int {
	s := &q.send
	if q.ack.due != 0 {
		return q.putReliability(dst, emss)
	}
	if s.term != nil {
		return s.putTerminate(dst, emss)
	}
	if s.stopped || !s.enabled {
		return 0
	}
	if s.owed != nil && !s.seg.Active() {
		n := s.putOwed(dst, emss)
		if n > 0 {
			q.ack.cut++
		}
		return n
	}
	if !s.seg.Active() && !q.nextMessage() {
		return 0
	}
	mulpdu := s.tx.MULPDUHere(emss)
	if s.fill {
		mulpdu = s.fillMULPDU(len(dst), emss)
	}
	size := s.tx.Size(s.seg.NextLen(mulpdu))
	out := dst
	if size > len(dst) {
		if len(dst) != emss || size > len(s.carry) {
			return 0 // it begins the next segment
		}
		out = s.carry[:]
	}
	h, off, n := s.seg.Next(mulpdu)
	s.cutAt = off
	if res := q.findOctets(off, n); res != mem.CheckOK {
		s.forget()
		if s.answering {
			q.sourceGone(off, rdmap.ReadCause(res))
		} else {
			q.localError(wq.LocalProtection)
		}
		return 0
	}
	k := s.putFPDU(out, h)
	s.payload += uint64(n)
	s.totals.PayloadOut += uint64(n)
	if h.Last {
		q.messageCut(h.MSN)
	}
	if size > len(dst) {
		return s.putCarried(dst, k)
	}
	return k
}

// messageCut completes the message in hand, whose last segment was just written. msn is its MSN.
func (q *Engine) messageCut(msn uint32) {
	s := &q.send
	s.messages++
	s.push = true
	if s.answering {
		q.responseCut()
		return
	}
	switch {
	case s.wr.Op.IsRequest():
		q.requestCut(msn)
	case !q.ack.on:
		q.completeSend(&s.wr.WQE, s.size)
	}
	if q.ack.on {
		q.ack.cursor++
		q.ack.cut++
	}
	s.wr.WQE = wq.WQE{}
}

// nextMessage starts the next message; false: there is none to start. Responses and work requests
// take turns, so that neither waits for more than one message of the other.
func (q *Engine) nextMessage() bool {
	s := &q.send
	s.found = nil
	if s.queueTurn {
		s.queueTurn = false
		if q.nextRequest() {
			return true
		}
	}
	if s.stopped {
		return false
	}
	if q.respond.answers.count > 0 {
		q.beginAnswer()
		s.queueTurn = true
		return true
	}
	return q.nextRequest()
}

// uncutMax is the longest message that fits into one segment with any MULPDU. Its ranges are
// checked when that segment is made.
const uncutMax = mpa.MULPDUMin - ddp.UntaggedLen

// nextRequest starts the message of the next work request, after the Local Invalidates before it.
// False: there is none, or it has to wait.
func (q *Engine) nextRequest() bool {
	for q.takeRequest() {
		switch wr := &q.send.wr; {
		case wr.Refused():
			q.localError(wq.Status(wr.Operands[0]))
			return false
		case wr.Op != wq.OpLocalInvalidate:
			return q.begin()
		case !q.invalidateHere():
			return false
		}
	}
	return false
}

// begin starts the message of the request in hand. If the message may need several segments all of
// its ranges are checked first, before any of it is on the wire.
func (q *Engine) begin() bool {
	s := &q.send
	wr := &s.wr
	s.findSource()
	if wr.Op == wq.OpRead { // the Response is placed by the rights of this stream
		s.from.stream, s.from.need = q.Stream, mem.LocalWrite
	}
	if !wr.Op.IsAtomic() && (s.size > uncutMax || wr.Op == wq.OpRead || q.ack.on) && s.size > 0 &&
		q.checkSource() != mem.CheckOK ||
		wr.Op.IsAtomic() && wr.Local.Length > 0 && q.checkOriginal() != mem.CheckOK {
		if s.held = q.ack.on && q.ack.cursor != q.requester.sent.head; !s.held {
			q.localError(wq.LocalProtection)
		} // else when all before it have been acknowledged: the error resets the connection
		return false
	}
	switch wr.Op {
	case wq.OpWrite:
		s.seg.StartTagged(rdmap.Control(s.version, rdmap.OpWrite), wr.RemoteSTag, wr.RemoteOffset, s.size)
	case wq.OpSend:
		s.seg.StartUntagged(rdmap.QNSend,
			rdmap.Control(s.version, solicit(rdmap.OpSend, rdmap.OpSendSE, wr.Solicited())), 0, s.size)
	case wq.OpSendInvalidate:
		op := solicit(rdmap.OpSendInv, rdmap.OpSendSEInv, wr.Solicited())
		s.seg.StartUntagged(rdmap.QNSend, rdmap.Control(s.version, op), uint32(wr.RemoteSTag), s.size)
	case wq.OpSendImmediate:
		op := solicit(rdmap.OpSendImm, rdmap.OpSendImmSE, wr.Solicited())
		s.seg.StartUntagged(rdmap.QNSend, rdmap.Control(s.version, op), uint32(wr.Operands[0]), s.size)
	case wq.OpImmediate:
		op := solicit(rdmap.OpImmediate, rdmap.OpImmediateSE, wr.Solicited())
		s.from = source{own: s.body[:]}
		binary.BigEndian.PutUint64(s.body[:], wr.Operands[0])
		s.size = rdmap.ImmediateLen
		s.seg.StartUntagged(rdmap.QNSend, rdmap.Control(s.version, op), 0, s.size)
	default:
		s.seg.Start(q.request())
	}
	return true
}

// checkOriginal checks where the request in hand wants the word before, which keepOriginal does
// again.
func (q *Engine) checkOriginal() mem.CheckResult {
	to := &q.send.wr.Local
	_, res := q.Table.Check(q.Domain, q.Stream, to.STag, to.Offset, AtomicLen, mem.LocalWrite)
	return res
}

// invalidateHere carries out the Local Invalidate in hand. When it returns no octet is placed
// through the STag any more: this goroutine is the only one that places for the stream.
func (q *Engine) invalidateHere() bool {
	s := &q.send
	if q.Table.Invalidate(q.Domain, q.Stream, s.wr.RemoteSTag) != mem.CheckOK {
		q.localError(wq.LocalOperation)
		return false
	}
	q.completeSend(&s.wr.WQE, 0)
	s.wr.WQE = wq.WQE{}
	return true
}

// takeRequest makes the next work request the one in hand, and says whether it may begin. After the
// peer has closed its half a Read or atomic gets no Response. Then our half ends with what
// was sent before it: nothing after it may complete with success, so none of that is sent.
// Responses to the peer are.
func (q *Engine) takeRequest() bool {
	s := &q.send
	if s.noMore || !s.held && !q.popRequest() {
		return false
	}
	if q.ack.on {
		s.held = q.mustWaitAcknowledged(&s.wr.WQE)
		return !s.held
	}
	if s.held = q.requester.mustWait(&s.wr.WQE); s.held {
		return false
	}
	if q.requester.over && s.wr.Op.IsRequest() {
		s.noMore = true
		q.effects |= EffectCloseHalf
		return false
	}
	return true
}

// popRequest takes the next work request; false: there is none.
func (q *Engine) popRequest() bool {
	if q.ack.on {
		return q.popAcknowledged()
	}
	s := &q.send
	if !q.next(q.SQ, &s.wr) {
		return false
	}
	s.size = messageLen(&s.wr)
	return true
}

// solicit is the opcode of a Send or Immediate, with or without solicited event.
func solicit(plain, se rdmap.Opcode, solicited bool) rdmap.Opcode {
	if solicited {
		return se
	}
	return plain
}

// localError completes the request in hand with an error of this end's own and resets the
// connection: a message that was begun cannot be finished without its octets.
func (q *Engine) localError(st wq.Status) {
	s := &q.send
	err := ErrLocalRange
	switch {
	case q.recv.lost != nil:
		err = q.recv.lost
	case s.wr.Op == wq.OpLocalInvalidate:
		err = ErrLocalInvalidate
	case st != wq.LocalProtection:
		err = errRefused
	}
	q.failed(&s.wr.WQE, st)
	s.wr.WQE = wq.WQE{}
	q.StopSending()
	q.Leave(wq.Error)
	q.affect(EffectFail, err)
}

// recoverGather ends the request or Response in hand if its octets could not be read.
func (q *Engine) recoverGather(faults bool) {
	debug.SetPanicOnFault(faults)
	if !q.unreachable(recover()) {
		return
	}
	q.send.forget()
	if q.send.answering {
		q.sourceGone(q.send.cutAt, rdmap.CauseStream)
	} else {
		q.localError(wq.LocalProtection)
	}
}

// abandon flushes the request in hand.
func (s *sendHalf) abandon(q *Engine) {
	if s.wr.Op != 0 && !q.ack.on { // else it is in sent
		q.complete(q.SendCQ, &s.wr.WQE, 0, wq.Flushed)
		s.wr.WQE = wq.WQE{}
	}
}
