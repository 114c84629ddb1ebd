package sim

import (
	"errors"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// excused says whether the connection ended for the reason that its Workload has.
func (s *session) excused() bool {
	if !s.ended {
		return false
	}
	doer, other := s.ending.Host, 1-s.ending.Host
	mine := s.peers[doer].qp.Err()
	switch s.ending.Kind {
	case Shutdown:
		return s.unanswered(doer, other)
	case Abort:
		return errors.Is(mine, rnic.ErrClosed) && s.gone(other)
	case Vanish:
		return s.gone(doer) && s.gone(other)
	case Revoke:
		var t *rnic.TerminateError
		var e *ddp.Error
		found := errors.As(mine, &t) && !t.Remote && errors.As(mine, &e) && e.Type == ddp.TypeTagged &&
			e.Code == ddp.CodeInvalidSTag
		return found && (s.told(other) || s.gone(other))
	case RevokeSource:
		return mine != nil && s.peers[doer].denied && s.gone(other)
	}
	return false
}

// revoked is what the peer of an end that has revoked its region is told.
var revoked = rdmap.NewCause(rdmap.LayerDDP, ddp.TypeTagged, ddp.CodeInvalidSTag)

// told says whether a host's connection ended by the Terminate of a peer that has revoked its
// region.
func (s *session) told(host int) bool {
	var t *rnic.TerminateError
	var e *rnic.PeerError
	err := s.peers[host].qp.Err()
	return errors.As(err, &t) && t.Remote && errors.As(err, &e) && e.Layer == revoked.Layer() &&
		e.Type == revoked.Type() && e.Code == revoked.Code()
}

// unanswered says whether the connection ended because other had Reads or atomics, or anything in
// acknowledged mode, when doer had closed its half, which sends nothing after that. If they had
// been sent, that breaks the connection. If not, they are flushed with all that was posted after
// them, and what doer had posted has arrived all the same.
func (s *session) unanswered(doer, other int) bool {
	a, b := s.peers[doer], s.peers[other]
	mine, theirs := a.qp.Err(), b.qp.Err()
	if errors.Is(theirs, rnic.ErrUnanswered) || errors.Is(theirs, rnic.ErrUnacknowledged) {
		return mine == nil || s.gone(doer) || errors.Is(mine, rnic.ErrLinger) && s.uninformed(doer)
	}
	return mine == nil && theirs == nil && (b.asking || s.c.Acknowledged) && a.arrived() == nil &&
		b.checkAsks(true) == nil
}

// gone says whether a host's connection ended as it may when the other end is gone, without an
// orderly end. It is reset by a RST that reached it. A RST is sent once: where it was lost, the TCP
// gives up, a Responder waits for its Initiator's RTR message in vain, or the end does not know,
// and is aborted.
func (s *session) gone(host int) bool {
	p := s.peers[host]
	switch err := p.qp.Err(); {
	case errors.Is(err, stack.ErrReset):
		return len(p.leg().resets) > 0
	case errors.Is(err, rnic.ErrStartupTimeout):
		return s.uninformed(host) && !s.readied(host)
	case errors.Is(err, stack.ErrTimeout):
		return s.uninformed(host)
	default:
		return s.aborted[host] && errors.Is(err, rnic.ErrClosed) && s.uninformed(host)
	}
}

// uninformed says whether a host cannot know that the other end is gone. No RST that reached it
// had to end its connection; and the other host has answered whatever reached it since its first
// RST: "An incoming segment not containing a RST causes a RST to be sent in response" (RFC 9293
// section 3.10.7.1). So the network lost the word.
func (s *session) uninformed(host int) bool {
	mine, other := s.peers[host].leg(), s.peers[1-host].leg()
	for i := range mine.resets {
		if !mine.resets[i].refusable() {
			return false
		}
	}
	if !other.gone {
		return s.ending.Kind == Vanish
	}
	return other.strays < other.sent
}

// readied says whether a Responder was told that it may send. Where segments may be cut, and bad
// ones are dropped, it need not take what reached it (mpa.ReceiverConfig.DropBadCRC).
func (s *session) readied(host int) bool {
	mine, other := s.peers[host].leg(), s.peers[1-host].leg()
	taken := mine.next
	if s.c.Ends[host].DropBadCRC && (s.wl.Split > 0 || s.hurtFPDU(host, 0, fpduReach)) {
		taken = mine.acked
	}
	lo, hi := s.readyFrame(host)
	if hi > lo {
		return uint64(taken-mine.first) >= hi
	}
	n := uint64(taken - mine.first)
	return n > hi && (taken == other.end || n >= hi+rtrMax)
}

// rtrMax is the longest FPDU of an RTR message, a Read Request's, with a marker before it.
const rtrMax = 64

// leg is what the peer's host sent and received on its connection.
func (p *peer) leg() *leg {
	return p.host.tap.leg(p.qp.LocalAddr().Port(), p.qp.RemoteAddr().Port())
}
