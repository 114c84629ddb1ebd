package rnic

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// sendHalf turns work requests into FPDUs, when the transport pulls.
//
//	work request --Segmenter--> DDP header + payload range --Check--> local octets --Sender.Put--> segment
type sendHalf struct {
	tx      mpa.Sender
	seg     ddp.Segmenter
	version uint8

	enabled bool // a Responder sends nothing before the first valid FPDU (RFC 5044 section 7.1.2 rule 4)
	stopped bool // nothing but the Terminate any more
	wr      WorkRequest

	owed     *ddp.Message // of start-up's own, to go before what was posted (rtr.go)
	owedBody []byte

	term    []byte // ULPDU of a Terminate to send, header included; nil: none
	termOut bool

	// carry holds an FPDU that is larger than a segment: EMSS under 140, where MULPDU stays 128 (RFC 5044 section 4.5).
	carry    [2 * mpa.MULPDUMin]byte
	carryOff int
	carryEnd int

	// staged FPDUs wait for more to share their segment with (PackFull).
	staged   []byte
	packFull bool

	hdr   [ddp.UntaggedLen]byte
	parts [2][]byte

	fpdus, payload, messages uint64
}

func (s *sendHalf) start(ag mpa.Agreement, responder bool) {
	s.tx.Init(ag.Send)
	s.seg.Init(ag.Version)
	s.version = ag.Version
	s.enabled = !responder
}

// idle: everything that was posted has been pulled.
func (s *sendHalf) idle(q *QueuePair) bool {
	return s.carryOff == s.carryEnd && len(s.staged) == 0 && s.term == nil && (s.stopped || (s.owed == nil && !s.seg.Active() && q.sq.Len() == 0))
}

// pull fills dst, one segment's payload, with whole FPDUs: as many as fit of what was posted. Driver's goroutine.
func (q *QueuePair) pull(l *link, dst []byte) int {
	s := &q.send
	if s.carryOff < s.carryEnd {
		n := copy(dst, s.carry[s.carryOff:s.carryEnd])
		s.carryOff += n
		return n
	}
	n := s.unstage(dst)
	q.reader.Enter()
	for n < len(dst) && len(s.staged) == 0 {
		k := q.putNext(l, dst[n:], len(dst))
		if k == 0 {
			break
		}
		n += k
	}
	q.reader.Exit()
	if s.packFull && s.roomFor(dst[n:]) && !l.shut && l.car.unacked() {
		s.stage(dst[:n])
		return 0
	}
	return n
}

// roomFor says whether a segment whose free octets are rest had better wait for more: not when what comes next is known
// and did not fit.
func (s *sendHalf) roomFor(rest []byte) bool {
	return len(s.staged) == 0 && !s.stopped && s.term == nil && s.carryOff == s.carryEnd && !s.seg.Active() &&
		len(rest) >= s.tx.Size(ddp.TaggedLen)
}

// stage keeps FPDUs that were built for the segment to come; unstage puts them at its front. After EMSS has shrunk they may
// not fit: the rest then goes on in the next segment, unaligned (the drafts' section 5.3: the MTU has become too small).
func (s *sendHalf) stage(fpdus []byte) { s.staged = append(s.staged[:0], fpdus...) }

func (s *sendHalf) unstage(dst []byte) int {
	n := copy(dst, s.staged)
	s.staged = s.staged[:copy(s.staged, s.staged[n:])]
	return n
}

// mulpdu is the largest ULPDU for the rest of a segment of emss octets of which room are free. To fill segments it shrinks
// to the room there is, not below 128 (the drafts' section 5.3.2).
func (s *sendHalf) mulpdu(room, emss int) int {
	if s.packFull && room < emss {
		if m := s.tx.MULPDU(room); m > mpa.MULPDUMin {
			return m
		}
	}
	return s.tx.MULPDU(emss)
}

// putNext writes the next FPDU to dst, or nothing when there is none or it does not fit. emss is the whole segment.
func (q *QueuePair) putNext(l *link, dst []byte, emss int) int {
	s := &q.send
	if s.term != nil {
		return s.putTerminate(dst, emss)
	}
	if s.stopped || !s.enabled {
		return 0
	}
	if s.owed != nil && !s.seg.Active() {
		return s.putOwed(dst, emss)
	}
	if !s.seg.Active() && !q.nextRequest(l) {
		return 0
	}
	mulpdu := s.mulpdu(len(dst), emss)
	size := s.tx.Size(s.seg.NextLen(mulpdu))
	out := dst
	if size > len(dst) {
		if len(dst) != emss || size > len(s.carry) {
			return 0 // it begins the next segment
		}
		out = s.carry[:]
	}
	h, off, n := s.seg.Next(mulpdu)
	var src []byte
	if n > 0 {
		var res mem.CheckResult
		src, res = q.adapter.table.Check(q.opt.PD.id, mem.AnyStream, s.wr.Local.STag, s.wr.Local.Offset+uint64(off), n, mem.LocalRead)
		if res != mem.CheckOK {
			q.localError(l)
			return 0
		}
	}
	k := s.put(out, h, src)
	s.payload += uint64(n)
	if h.Last {
		s.messages++
		q.complete(q.opt.SendCQ, &s.wr, s.wr.Local.Length, Success)
		s.wr = WorkRequest{}
	}
	if size > len(dst) {
		return s.carryFrom(dst, k)
	}
	return k
}

func (s *sendHalf) put(dst []byte, h *ddp.Header, payload []byte) int {
	h.Put(s.hdr[:])
	s.parts[0], s.parts[1] = s.hdr[:h.Len()], payload
	s.fpdus++
	return s.tx.Put(dst, s.parts[:])
}

// nextRequest starts the next work request. Its whole range is checked here, before any of it is on the wire.
func (q *QueuePair) nextRequest(l *link) bool {
	s := &q.send
	wr, ok := q.sq.Pop()
	if !ok {
		return false
	}
	s.wr = wr
	if wr.Local.Length > 0 {
		_, res := q.adapter.table.Check(q.opt.PD.id, mem.AnyStream, wr.Local.STag, wr.Local.Offset, int(wr.Local.Length), mem.LocalRead)
		if res != mem.CheckOK {
			q.localError(l)
			return false
		}
	}
	m := ddp.Message{Len: wr.Local.Length}
	switch wr.Op {
	case OpWrite:
		m.Header = ddp.Header{Tagged: true, ULP: rdmap.Control(s.version, rdmap.OpWrite), STag: wr.RemoteSTag, TO: wr.RemoteOffset}
	case OpSend:
		m.Header = ddp.Header{QN: rdmap.QNSend, ULP: rdmap.Control(s.version, rdmap.OpSend)}
	case OpSendInvalidate:
		m.Header = ddp.Header{QN: rdmap.QNSend, ULP: rdmap.Control(s.version, rdmap.OpSendInv), ULP32: uint32(wr.RemoteSTag)}
	}
	m.Header.Version = s.version
	s.seg.Start(m)
	return true
}

// localError ends the connection: a message whose octets are gone cannot be finished.
func (q *QueuePair) localError(l *link) {
	s := &q.send
	q.complete(q.opt.SendCQ, &s.wr, 0, LocalProtection)
	s.wr = WorkRequest{}
	s.stopped = true
	q.state.Store(uint32(Error))
	l.fail(errLocalRange)
}

// terminate queues the one message that may follow an error (RFC 5040 section 4.8); everything else stops.
func (s *sendHalf) terminate(body []byte) {
	if s.stopped {
		return
	}
	s.stopped = true
	if s.termOut || !s.enabled {
		return
	}
	h := ddp.Header{Last: true, Version: s.version, ULP: rdmap.Control(s.version, rdmap.OpTerminate), QN: rdmap.QNTerminate, MSN: 1}
	s.term = make([]byte, h.Len()+len(body))
	h.Put(s.term)
	copy(s.term[h.Len():], body)
}

func (s *sendHalf) putTerminate(dst []byte, emss int) int {
	size := s.tx.Size(len(s.term))
	if size > len(dst) && len(dst) != emss {
		return 0 // it begins the next segment
	}
	out := dst
	if size > len(dst) {
		out = s.carry[:]
	}
	s.parts[0], s.parts[1] = s.term, nil
	k := s.tx.Put(out, s.parts[:])
	s.fpdus++
	s.term, s.termOut = nil, true
	if size > len(dst) {
		return s.carryFrom(dst, k)
	}
	return k
}

// carryFrom sends the front of the k octets in carry now; pull sends the rest.
func (s *sendHalf) carryFrom(dst []byte, k int) int {
	n := copy(dst, s.carry[:k])
	s.carryOff, s.carryEnd = n, k
	return n
}

// abandon flushes the request that was under way.
func (s *sendHalf) abandon(q *QueuePair) {
	if s.wr.Op != 0 {
		q.complete(q.opt.SendCQ, &s.wr, 0, Flushed)
		s.wr = WorkRequest{}
	}
}
