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
	if l.engine.Effects != 0 {
		l.heedEffects()
	}
}

// heedEffects carries the effects out. EffectFail and EffectLeave may come together, with the error
// of the first: the event that tells of the end is that error's.
func (l *Connection) heedEffects() {
	fx, err := l.engine.TakeEffects()
	_, terminated := err.(*qp.TerminateError)
	err = l.Host.Public(err)
	if fx&qp.EffectOpened != 0 {
		l.opened()
	}
	if fx&qp.EffectCloseHalf != 0 && !l.shut {
		l.closing()
	}
	if terminated {
		l.told = true
		l.engine.Tell(qp.EventTerminated, 0, err)
	}
	switch {
	case fx&qp.EffectFail != 0:
		l.Fail(err)
	case fx&qp.EffectLeave != 0:
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
	l.engine.Open()
	l.heed()
}

// closing ends our half after what is still to be pulled, and bounds the wait for the peer's.
func (l *Connection) closing() {
	if l.phase == phaseOver {
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
	l.progressSeen = l.Transport.Progress()
	wait := lingerTimeout
	if l.phase == phaseFull && l.Err == nil {
		wait = cmp.Or(l.endpoint.param.UserTimeout, closeTimeout)
	}
	at := l.Transport.Now() + int64(wait)
	if l.sendFirstAt != 0 {
		at = min(at, l.sendFirstAt)
	}
	l.Transport.SetTimer(at)
}

// Shutdown is the application's orderly close.
func (l *Connection) shutdown() {
	switch l.phase {
	case phaseFull:
		l.engine.Leave(qp.Closing)
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
	case l.phase == phaseRequest || l.phase == phaseReply || l.phase == phaseDecide || l.phase == phaseFull && l.awaitsReady && !l.shut:
		l.Fail(&connectionError{fmt.Errorf("%w during MPA start-up", ErrPeerClosed)})
	case l.phase == phaseFull && (l.engine.Cut() || len(l.in) > 0):
		l.Fail(&connectionError{fmt.Errorf("%w in the middle of a frame", ErrPeerClosed)})
	case l.phase == phaseFull && l.engine.PeerEnds():
		l.Fail(&connectionError{ErrUnanswered})
	case l.phase == phaseLeaving: // the stream will say so
	default:
		if l.phase == phaseFull {
			l.engine.Leave(qp.Closing)
			l.endpoint.tellPeerClosed(l.shut)
			if l.engine.StopUnopened() {
				// The FPDU that would have let us send will not come.
			} else if l.endpoint.param.AllowHalfClosed && !l.shut {
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
	if l.phase != phaseRejecting {
		l.note(&connectionError{err})
	}
}

// Fail aborts the connection for err.
func (l *Connection) Fail(err error) {
	l.note(err)
	if l.phase == phaseFull {
		l.engine.Leave(qp.Error)
	}
	if l.phase != phaseOver {
		l.Transport.Abort()
	}
}

// Timer implements transport.Upper.
func (l *Connection) Timer() {
	switch l.phase {
	case phaseRequest, phaseReply:
		l.Fail(ErrStartupTimeout)
	case phaseDecide:
		l.Fail(errUndecided)
	default:
		if l.phase == phaseRejecting && !l.shut {
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
		if l.phase == phaseFull && l.awaitsReady && !l.shut {
			l.Fail(ErrStartupTimeout)
			return
		}
		if l.phase == phaseFull && l.Err == nil && l.Transport.Progress() != l.progressSeen {
			l.linger() // what was posted, or the peer's own rest, still moves
			return
		}
		if l.phase == phaseRejecting {
			l.Transport.Abort()
			return
		}
		l.Fail(ErrLinger)
	}
}

// Over is the last event. err is the transport's reason.
func (l *Connection) Over(err error) {
	if l.phase == phaseOver {
		return
	}
	was := l.phase
	switch {
	case err == nil:
	case l.Err != nil && errors.Is(err, stack.ErrTentative): // what ended the wait for an address says less
		l.Err = fmt.Errorf("%w: %w", l.Err, err)
	case errors.Is(err, stack.ErrHoarding): // the stack has given it up for what the peer holds: not lost
		l.note(err)
		if was == phaseFull {
			l.engine.Leave(qp.Error)
		}
	default:
		l.Lost(err)
	}
	err = l.Err
	l.Host.dropConnection(l)
	l.dropEarly()
	if l.fallsBack(was, err) {
		l.phase = phaseOver
		l.Host.Startup.Fallbacks.Add(1)
		close(l.Gone)
		l.again()
		return
	}
	err = l.Host.Public(err)
	l.Err = err
	if e := l.endpoint; e != nil {
		if was == phaseFull {
			e.final = e.snapshot(l)
		}
		l.phase = phaseOver
		if was != phaseFull {
			select {
			case e.connected <- OrClosed(err):
			default:
			}
		}
		e.Conclude(err)
		if was == phaseFull {
			e.tellEnd(l.told, err)
		}
	}
	l.phase = phaseOver
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
		l.Responder.Report(l, was == phaseFull, offered, err)
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
