package qp

import (
	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/rdmap"
)

// What is due to the peer in acknowledged mode, and what it has acknowledged.

// acknowledging.due
const (
	dueAcknowledge uint8 = 1 << iota
	dueNotReady
	dueResume
)

// ackBurst is how many messages are acknowledged at once: the peer, which has sent as many
// together, goes on while this end's program takes them. Fewer wait for an answer to go with.
const ackBurst = 32

// acksWait says whether messages were accepted that the peer has not been told of.
func (k *acknowledging) acksWait() bool { return k.accepted != k.told }

// accept counts a message of the peer's that was delivered.
func (q *Engine) accept() {
	k := &q.ack
	if !k.on || q.recv.fault != nil {
		return
	}
	k.accepted++
	if k.accepted-k.told >= ackBurst && q.send.enabled && !q.send.stopped {
		k.due |= dueAcknowledge
		q.effects = q.effects&^EffectSendLater | EffectSend
		return
	}
	if !k.later {
		k.later = true
		q.effects |= EffectSendLater
	}
}

// SendAcknowledgements has the next Pull say what was accepted. False: the peer knows.
func (q *Engine) SendAcknowledgements() bool {
	k, s := &q.ack, &q.send
	k.later = false
	if !k.acksWait() || s.stopped || !s.enabled {
		return false
	}
	k.due |= dueAcknowledge
	return true
}

// HasAccepted says whether the peer has ever sent a message that was accepted.
func (q *Engine) HasAccepted() bool { return q.ack.accepted != 0 }

// StopSending has nothing more sent than what the peer is still to know: which of its requests were
// accepted. It is for an end that is about to reset the connection.
func (q *Engine) StopSending() {
	if q.send.stopped {
		return
	}
	q.ack.due = 0
	q.SendAcknowledgements()
	q.send.stopped = true
}

func (k *acknowledging) at(place uint32) *keptRequest {
	return &k.kept[place&uint32(len(k.kept)-1)]
}

// acceptedTo notes that the peer has accepted all messages before number n.
func (k *acknowledging) acceptedTo(n uint32) {
	if int32(n-k.acked) > 0 {
		k.acked, k.tries = n, 0
		k.answers++
	}
}

// check is rdmap's Check, of the mode.
func (q *Engine) check(h *ddp.Header) (op rdmap.Opcode, cause rdmap.Cause, ok bool) {
	if q.ack.on {
		return rdmap.CheckAcknowledged(h, q.recv.version)
	}
	return rdmap.Check(h, q.recv.version)
}
