package connect

import (
	"cmp"
	"errors"
	"fmt"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/stack"
)

// heed does what the engine's last call means for the connection.
func (l *Connection) heed() {
	if l.Engine.HasEffects() {
		l.heedEffects()
	}
}

func (l *Connection) heedEffects() {
	fx, err := l.Engine.TakeEffects()
	err = l.Host.Public(err)
	if fx&qp.EffectOpened != 0 {
		l.opened()
	}
	if fx&qp.EffectCloseHalf != 0 && !l.shut {
		l.closing()
	}
	switch {
	case fx&qp.EffectFail != 0:
		l.Fail(err)
	case fx&qp.EffectLeave != 0:
		l.Engine.Tell(qp.EventTerminated, 0, err)
		l.note(err)
		l.closing()
	}
	if fx&qp.EffectSend != 0 {
		l.Transport.Send()
	}
	if fx&qp.EffectShort != 0 {
		l.Transport.Short()
	}
}

// MPA's Verdicts are the stack's.
var _ = [1]struct{}{}[stack.Verdict(mpa.Done)-stack.Taken+stack.Verdict(mpa.Kept)-stack.Kept+stack.Verdict(mpa.Refused)-stack.Refused]

// opened: the Responder's half may send.
func (l *Connection) opened() {
	l.sendFirstAt, l.awaitsReady = 0, false
	if !l.shut {
		l.Transport.SetTimer(0)
	}
	l.Transport.Send()
}

// open lets the Responder send.
func (l *Connection) open() {
	l.Engine.Open()
	l.heed()
}

// closing ends our half after what is still to be pulled, and bounds the wait for the peer's.
func (l *Connection) closing() {
	if l.Phase == phaseOver {
		return
	}
	l.shut = true
	l.linger()
	if l.drained() && !l.closed {
		l.closed = true
		l.Transport.CloseSend()
		return
	}
	l.Transport.Send()
}

// linger bounds how long a peer that does nothing can keep a closing connection.
func (l *Connection) linger() {
	l.Seen = l.Transport.Progress()
	wait := LingerTimeout
	if l.Phase == PhaseFull && l.Err == nil {
		wait = cmp.Or(l.Endpoint.Param.UserTimeout, CloseTimeout)
	}
	at := l.Transport.Now() + int64(wait)
	if l.sendFirstAt != 0 {
		at = min(at, l.sendFirstAt)
	}
	l.Transport.SetTimer(at)
}

// Shutdown is the application's orderly close.
func (l *Connection) Shutdown() {
	switch l.Phase {
	case PhaseFull:
		l.Engine.Leave(qp.Closing)
		if !l.shut {
			l.closing()
		}
	default:
		l.Fail(ErrClosed)
	}
}

// PeerClosed: the peer's FIN is in order. A graceful event unless a frame is cut or the peer still
// owes one of start-up's, or its RTR message (DECISIONS 29).
func (l *Connection) PeerClosed() {
	switch {
	case l.Phase == phaseRequest || l.Phase == phaseReply || l.Phase == phaseDecide || l.Phase == PhaseFull && l.awaitsReady && !l.shut:
		l.Fail(&connectionError{fmt.Errorf("%w during MPA start-up", ErrPeerClosed)})
	case l.Phase == PhaseFull && (l.Engine.Cut() || len(l.In) > 0):
		l.Fail(&connectionError{fmt.Errorf("%w in the middle of a frame", ErrPeerClosed)})
	case l.Phase == PhaseFull && l.Engine.PeerEnds():
		l.Fail(&connectionError{ErrUnanswered})
	case l.Phase == phaseLeaving: // the stream will say so
	default:
		if l.Phase == PhaseFull {
			l.Engine.Leave(qp.Closing)
			l.Endpoint.tellPeerClosed(l.shut)
			if l.Engine.StopUnopened() {
				// The FPDU that would have let us send will not come.
			} else if l.Endpoint.Param.AllowHalfClosed && !l.shut {
				return
			}
		}
		l.closing()
	}
}

// note records the first reason.
func (l *Connection) note(err error) {
	if l.Err == nil {
		l.Err = err
	}
}

// Lost notes that the transport failed. An Initiator may end what was rejected as it likes.
func (l *Connection) Lost(err error) {
	if l.Phase != phaseRejecting {
		l.note(&connectionError{err})
	}
}

// Fail aborts the connection for err.
func (l *Connection) Fail(err error) {
	l.note(err)
	if l.Phase == PhaseFull {
		l.Engine.Leave(qp.Error)
	}
	if l.Phase != phaseOver {
		l.Transport.Abort()
	}
}

// Timer implements transport.Upper.
func (l *Connection) Timer() {
	switch l.Phase {
	case phaseRequest, phaseReply:
		l.Fail(ErrStartupTimeout)
	case phaseDecide:
		l.Fail(ErrUndecided)
	default:
		if l.Phase == phaseRejecting && !l.shut {
			l.closing()
			return
		}
		if l.sendFirstAt != 0 && l.Transport.Now() >= l.sendFirstAt {
			l.pauseOver()
			return
		}
		if l.wakeUpPlanned && !l.shut {
			l.wakeUp()
			return
		}
		if l.Phase == PhaseFull && l.awaitsReady && !l.shut {
			l.Fail(ErrStartupTimeout)
			return
		}
		if l.Phase == PhaseFull && l.Err == nil && l.Transport.Progress() != l.Seen {
			l.linger() // what was posted, or the peer's own rest, still moves
			return
		}
		if l.Phase == phaseRejecting {
			l.Transport.Abort()
			return
		}
		l.Fail(ErrLinger)
	}
}

// Over is the last event. err is the transport's reason.
func (l *Connection) Over(err error) {
	if l.Phase == phaseOver {
		return
	}
	was := l.Phase
	switch {
	case err == nil:
	case l.Err != nil && errors.Is(err, stack.ErrTentative): // what ended the wait for an address says less
		l.Err = fmt.Errorf("%w: %w", l.Err, err)
	case errors.Is(err, stack.ErrHoarding): // the stack has given it up for what the peer holds: not lost
		l.note(err)
		if was == PhaseFull {
			l.Engine.Leave(qp.Error)
		}
	default:
		l.Lost(err)
	}
	err = l.Err
	l.Host.dropConnection(l)
	l.dropEarly()
	if l.fallsBack(was, err) {
		l.Phase = phaseOver
		l.Host.Startup.Fallbacks.Add(1)
		close(l.Gone)
		l.Again()
		return
	}
	err = l.Host.Public(err)
	l.Err = err
	if e := l.Endpoint; e != nil {
		if was == PhaseFull {
			e.Final = e.Snapshot(l)
		}
		l.Phase = phaseOver
		if was != PhaseFull {
			select {
			case e.Connected <- OrClosed(err):
			default:
			}
		}
		e.Conclude(err)
		if was == PhaseFull {
			e.tellEnd(err)
		}
	}
	l.Phase = phaseOver
	if l.Responder != nil && err != nil {
		l.report(was, err)
	}
	close(l.Gone)
}

// report tells the Responder of an end that this host did not want.
func (l *Connection) report(was phase, err error) {
	if errors.Is(err, ErrClosed) {
		return
	}
	offered := !l.claim.CompareAndSwap(unclaimed, claimedByEnd)
	if l.Responder.Report != nil {
		l.Responder.Report(l, was == PhaseFull, offered, err)
	}
}

// Claimed says whether the ULP has the Request; otherwise its connection is over. Any goroutine,
// once.
func (l *Connection) Claimed() bool { return l.claim.CompareAndSwap(unclaimed, claimedByULP) }

// OrClosed is err, or that the connection was closed.
func OrClosed(err error) error {
	if err == nil {
		return errClosedEarly
	}
	return err
}
