package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rdmap"
)

// Acknowledged mode (ADR 0046). Requests are numbered, in both directions, and the peer says how
// many it has accepted by Reliability Messages, which are not numbered. A request stays in
// requester.sent until it was accepted, and is sent again if the peer was not ready for it
// (acknowledged.go). What this end accepts, and what it says of that, is in accept.go.
//
//	                  ┌── taken again after NotReady ──┐
//	                  ▼                                │
//	send ring ─► sent: begun, cut ──────────────────► waits ──Acknowledge, Response──► completion
//
// Nothing is placed ahead of a gap, so that nothing becomes visible after a message that waits for
// its buffer.

// acknowledging is what an Engine has in this mode.
type acknowledging struct {
	on bool

	// this end's requests
	kept    []keptRequest // by place in requester.sent
	entries []wq.WQE      // ring: their lists and inline octets
	entry   uint32        // free-running: the next
	cursor  uint32        // place in sent, free-running, of the request in hand or to be taken next
	next    uint32        // number of the next message that enters sent
	cut     uint32        // messages that were cut to their end
	acked   uint32        // messages that the peer has accepted
	waiting bool          // NotReady came, and Resume has not been sent
	wait    uint8         // of that NotReady: how long, a code of rdmap.RNRTime
	tries   int64         // in vain: NotReady messages since one was accepted

	// the peer's requests
	accepted uint32
	told     uint32 // of accepted, by Reliability Messages
	dropping bool   // NotReady was said: the peer's requests are dropped until Resume
	later    bool   // EffectSendLater was told
	inMSN    uint32 // of the peer's next Reliability Message

	// Reliability Messages to be sent
	due    uint8
	outMSN uint32
	ulpdu  [ddp.UntaggedLen + rdmap.ReliabilityLen]byte

	notReadyIn, notReadyOut uint64
	answers                 uint64 // grows with messages accepted and with octets of whole Responses
	responded               uint64 // octets of the Response to the oldest Read
}

// putReliability writes the next Reliability Message that is due. It returns 0 when that does not
// fit.
func (q *Engine) putReliability(dst []byte, emss int) int {
	k, s := &q.ack, &q.send
	size := s.tx.Size(len(k.ulpdu))
	out := dst
	if size > len(dst) {
		if len(dst) != emss || size > len(s.carry) {
			return 0 // it begins the next segment
		}
		out = s.carry[:]
	}
	m := rdmap.Reliability{Kind: rdmap.Acknowledge, Count: k.accepted}
	switch {
	case k.due&dueNotReady != 0: // acknowledges, too
		k.due &^= dueNotReady | dueAcknowledge
		m.Kind, m.Timer = rdmap.NotReady, q.retry.timer()
		m.Tries = q.retry.get().PeerTries
		m.SendMSN, m.ReadMSN = q.recv.sendQ.Next(), q.respond.nextMSN()
		k.notReadyOut++
	case k.due&dueResume != 0:
		k.due &^= dueResume
		m.Kind, m.Count = rdmap.Resume, k.acked
	default:
		k.due &^= dueAcknowledge
	}
	if m.Kind != rdmap.Resume {
		k.told, k.later = k.accepted, false
	}
	h := ddp.Header{Last: true, Version: s.version,
		ULP: rdmap.Control(s.version, rdmap.OpReliability), QN: rdmap.QNReliability, MSN: k.outMSN}
	k.outMSN++
	h.Put(k.ulpdu[:])
	m.Put(k.ulpdu[ddp.UntaggedLen:])
	n := s.putULPDU(out, k.ulpdu[:])
	s.push = true
	if size > len(dst) {
		return s.putCarried(dst, n)
	}
	return n
}
