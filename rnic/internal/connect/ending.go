package connect

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/stack"
)

// How a connection ends. This end begins it with Host.Close, Abort, Disconnect or shutdown; the
// peer with its FIN (PeerClosed) or a Terminate (effects.go); an error with Fail; the transport
// with Lost. closing and linger wind it up. Closed is the last call.

// Close has no more connections come about and resets those that are left. It returns them: they
// end soon after. ctx bounds the wait for Pollers. Any goroutine.
func (h *Host) Close(ctx context.Context) []*Connection {
	h.Shut()
	connections := h.Live()
	for _, c := range connections {
		// a stopped Poller has ended it already
		_ = OrderUntil(ctx, h, c.Transport.Submit, func() { c.Fail(ErrClosed) })
	}
	return connections
}

// Abort resets the connection, or gives it up while it is still coming about. Any goroutine.
func (e *Endpoint) Abort() {
	if c := e.connectionOrUnwanted(); c != nil {
		_ = Order(c.Transport.Submit, func() { c.Fail(ErrClosed) })
	} else if e.engine.Move(wq.Idle, wq.Closed) {
		e.Finish(ErrClosed)
	}
}

// Disconnect begins an orderly end, or gives the connection up while it is still coming about. Any
// goroutine.
func (e *Endpoint) Disconnect() {
	if c := e.connectionOrUnwanted(); c != nil {
		_ = Order(c.Transport.Submit, c.Shutdown) // a stopped Poller has ended it already
	}
}

// closing ends our half after what is still to be pulled, and bounds the wait for the peer to end
// its half.
func (c *Connection) closing() {
	if c.phase == phaseOver {
		return
	}
	if c.half == halfOpen {
		c.Transport.Record(flight.Closing, 0, 0)
		c.half = halfClosing
		if c.phase.inService() {
			c.engine.SendAcknowledgements() // the last that can be
		}
	}
	c.linger()
	if c.half == halfClosing && c.drained() {
		c.closeHalf()
		return
	}
	c.Transport.Send()
}

// closeHalf ends our half, of which everything was pulled.
func (c *Connection) closeHalf() {
	c.half = halfClosed
	c.Transport.CloseSend()
}

// drained says whether everything that is to be sent was pulled.
func (c *Connection) drained() bool {
	return len(c.out) == 0 && (!c.phase.inService() || c.engine.Idle())
}

// linger bounds how long a peer that does nothing can keep a closing connection.
func (c *Connection) linger() {
	c.progressSeen = c.Transport.Progress()
	wait := LingerTimeout
	if c.phase.inService() && c.Err == nil {
		wait = cmp.Or(c.endpoint.param.UserTimeout, CloseTimeout)
	}
	at := c.Transport.Now() + int64(wait)
	if c.sendFirstAt != 0 && c.sendFirstAt <= at {
		c.setTimerAt(timerSendFirst, c.sendFirstAt)
		return
	}
	c.setTimerAt(timerLinger, at)
}

// lingered is what linger's timer does.
func (c *Connection) lingered() {
	switch {
	case c.phase.inService() && c.Err == nil && c.Transport.Progress() != c.progressSeen:
		c.linger() // what was posted, or the peer's own rest, still moves
	case c.phase == phaseRejecting:
		c.Transport.Abort()
	default:
		c.Fail(ErrLinger)
	}
}

// Shutdown is the application's orderly close.
func (c *Connection) Shutdown() {
	if !c.phase.inService() {
		c.Fail(ErrClosed)
		return
	}
	c.engine.Leave(wq.Closing)
	if c.half == halfOpen {
		c.closing()
	}
}

// PeerClosed implements stack.Upper. It is a graceful event unless a frame is cut, or the peer
// still owes a start-up frame or its RTR message (DECISIONS 29).
func (c *Connection) PeerClosed() {
	c.Transport.Record(flight.PeerClosed, 0, 0)
	switch {
	case c.resetting != resetNot: // whatever it owes
	case c.phase == phaseRequest || c.phase == phaseReply || c.phase == phaseDecide ||
		c.phase.awaitsRtr() && c.half == halfOpen:
		c.Fail(newConnectionError(fmt.Errorf("%w during MPA start-up", ErrPeerClosed)))
	case c.phase.inService() && (c.engine.Cut() || len(c.in) > 0):
		c.Fail(newConnectionError(fmt.Errorf("%w in the middle of a frame", ErrPeerClosed)))
	case c.phase.inService() && c.engine.PeerEnds():
		c.Fail(newConnectionError(c.leftOpen()))
	case c.phase == phaseToStream: // the stream will say so
	default:
		if c.phase.inService() {
			c.engine.Leave(wq.Closing)
			if c.retries != nil {
				c.peerLeft = c.half == halfOpen
			}
			c.endpoint.tellPeerClosed(c.half != halfOpen)
			if c.engine.StopUnopened() {
				// The FPDU that would have let us send will not come.
			} else if c.endpoint.param.AllowHalfClosed && !c.endpoint.param.Acknowledged &&
				c.half == halfOpen {
				return
			}
		}
		c.closing()
	}
}

// leftOpen is what a peer that has closed its half owes.
func (c *Connection) leftOpen() error {
	if c.retries != nil {
		return ErrUnacknowledged
	}
	return ErrUnanswered
}

// note records the first reason.
func (c *Connection) note(err error) {
	if c.Err == nil {
		c.Err = err
	}
}

// Lost implements transport.Upper. A rejected Initiator may end the connection as it likes, so that
// is no failure.
func (c *Connection) Lost(err error) {
	if c.phase != phaseRejecting && c.Err == nil {
		c.note(newConnectionError(err))
	}
}

// Fail resets the connection for err. It implements transport.Upper. In acknowledged mode the peer
// is first told which of its messages were accepted: this end's program may have seen them, and an
// RNIC would have said so before. Where octets that this end has sent are on their way, or wait for
// the peer's window, a reset would do away with them, or overtake the acknowledgement: it waits
// for the peer's TCP to have them, but not for long. Nothing is received from now on.
func (c *Connection) Fail(err error) {
	c.note(err)
	if c.resetting != resetNot {
		return
	}
	if c.phase.inService() {
		c.engine.Leave(wq.Error)
		if c.retries != nil {
			c.beginReset()
			return
		}
	}
	c.abort()
}

// resetting is how far a connection in acknowledged mode has come with its reset.
//
//	not ──Fail──▶ next ──there is more──▶ after ──▶ waits, or the reset
type resetting uint8

const (
	resetNot   resetting = iota
	resetNext            // at the next call of Later; over our TCP it may be of Fail's own Turn
	resetAfter           // at the one after that
	resetWaits           // when the peer's TCP has all, or by time
)

// ResetTimeout is how long a reset waits for the peer to take what comes before it. A kernel does
// not tell when it has, so it is asked each resetTick.
const (
	ResetTimeout = 200 * time.Millisecond
	resetTick    = time.Millisecond
)

// beginReset tells the peer what was accepted.
func (c *Connection) beginReset() {
	c.engine.StopSending()
	c.resetting = resetNext
	c.Transport.Send()
	c.Transport.SendLater()
}

// resetLater resets the connection, unless the peer cannot have been told. more: there is something
// to pull.
func (c *Connection) resetLater(more bool) {
	switch {
	case c.resetting == resetWaits:
	case c.resetting == resetNext && more:
		c.resetting = resetAfter
		c.Transport.SendLater()
	case c.half != halfOpen || errors.Is(c.Err, ErrNoAnswer) || c.peerTold(more):
		c.abort()
	default:
		c.resetting, c.resetBy = resetWaits, c.Transport.Now()+int64(ResetTimeout)
		c.Transport.Send()
		c.setTimer(timerReset, resetTick)
	}
}

// resetDue resets the connection if the peer's TCP has all, or the time is over.
func (c *Connection) resetDue(more bool) {
	if c.peerTold(more) || c.Transport.Now() >= c.resetBy {
		c.abort()
	} else {
		c.setTimer(timerReset, resetTick)
	}
}

// peerTold says whether the peer has what it is to know, if that is anything.
func (c *Connection) peerTold(more bool) bool {
	if !c.engine.HasAccepted() {
		return true
	}
	pulled, taken := c.Transport.Taken()
	return !more && pulled == taken
}

func (c *Connection) abort() {
	if c.phase != phaseOver {
		c.Transport.Record(flight.Aborted, 0, 0)
		c.Transport.Abort()
	}
}

// Closed implements stack.Upper.
func (c *Connection) Closed(err error) {
	c.over(err)
	c.Transport.Gone()
}

// over ends the connection; err is the transport's reason, nil for an orderly end.
func (c *Connection) over(err error) {
	if c.phase == phaseOver {
		return
	}
	was := c.phase
	switch {
	case err == nil:
	case c.Err != nil && errors.Is(err, stack.ErrTentative):
		// err says more: this end gave up while its address was being checked
		c.Err = fmt.Errorf("%w: %w", c.Err, err)
	case errors.Is(err, stack.ErrHoarding):
		// the stack has given it up for what the peer holds, so it is not lost
		c.note(err)
		if was.inService() {
			c.engine.Leave(wq.Error)
		}
	default:
		c.Lost(err)
	}
	err = c.Err
	c.Host.dropConnection(c)
	c.dropEarly() // of earlydata.go, which comes before in a connection's life
	if c.fallsBack(was, err) {
		c.phase = phaseOver
		c.Host.Startup.Fallbacks.Add(1)
		c.Gone.Give()
		c.again()
		return
	}
	if c.elsewhere != nil &&
		(errors.Is(err, stack.ErrOtherMember) || errors.Is(err, stack.ErrNotLocal)) &&
		!c.endpoint.Unwanted.Load() {
		c.phase = phaseOver
		c.Gone.Give()
		c.elsewhere()
		return
	}
	if c.Responder != nil && !was.inService() {
		c.Host.Refuse(RefusalOf(err))
	}
	err = c.Host.Public(err)
	c.Err = err
	if was.inService() {
		c.Transport.Record(flight.Flushed, 0, 0)
	}
	c.keepRecord(err)
	if e := c.endpoint; e != nil {
		if was.inService() {
			e.count(c, &e.final)
			if c.lostPeer(err) {
				c.engine.PeerLost()
			}
		}
		c.phase = phaseOver
		if !was.inService() {
			e.startedUp(OrClosed(err))
		}
		e.Finish(err)
		if was.inService() {
			e.tellEnd(c.told, err)
		}
	}
	c.phase = phaseOver
	if c.Responder != nil && err != nil {
		c.report(was, err)
	}
	c.Gone.Give()
}

// lostPeer says whether the peer, or the network, has ended the connection: err is why it ended.
func (c *Connection) lostPeer(err error) bool {
	return c.retries != nil && (c.peerLeft || err != nil && !errors.Is(err, ErrClosed))
}

// fallsBack says whether a connection that is over is a reason to try an older dialect.
func (c *Connection) fallsBack(was phase, err error) bool {
	if !c.initiates() || len(c.older) == 0 || c.again == nil || c.endpoint.Unwanted.Load() {
		return false
	}
	var re *Revision
	return was == phaseReply && (errors.Is(err, ErrPeerClosed) || errors.Is(err, stack.ErrReset) ||
		errors.As(err, &re) && re.Lower)
}

// report tells the Responder of an end that this host did not want.
func (c *Connection) report(was phase, err error) {
	if errors.Is(err, ErrClosed) {
		return
	}
	offered := !c.claim.CompareAndSwap(unclaimed, claimedByEnd)
	if c.Responder.Report != nil {
		c.Responder.Report(c, was.inService(), offered, err)
	}
}

// Claimed takes the Request for the ULP. False: its connection is over. Any goroutine, once.
func (c *Connection) Claimed() bool { return c.claim.CompareAndSwap(unclaimed, claimedByULP) }

// OrClosed is err, or that the connection was closed.
func OrClosed(err error) error {
	if err == nil {
		return errClosedEarly
	}
	return err
}
