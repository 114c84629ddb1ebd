package connect

import (
	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic/internal/qp"
)

// open lets a Responder's half send.
func (c *Connection) open() {
	c.engine.Open()
	c.heed()
}

// heed carries out what the calls into the engine since the last time mean for the connection. It
// is called after each call that may have effects, and is inlined: mostly there are none.
func (c *Connection) heed() {
	if c.engine.HasEffects() {
		c.heedEffects()
	}
}

func (c *Connection) heedEffects() { c.carryOut(c.engine.TakeEffects()) }

// carryOut carries effects out. No call into the engine has both EffectFail and EffectLeave today,
// but several calls between two looks might. err is then that of the first, and decides which event
// tells of the end.
func (c *Connection) carryOut(fx qp.Effects, err error) {
	end, terminated := err.(*qp.TerminateError)
	if terminated {
		k := flight.TerminateSent
		if end.Remote {
			k = flight.TerminateIn
		}
		cause := end.Terminate().Cause
		c.Transport.Record(k, uint64(cause.Layer()), uint64(cause.Type())<<8|uint64(cause.Code()))
	}
	err = c.Host.Public(err)
	if fx&qp.EffectOpened != 0 {
		c.opened()
	}
	if fx&qp.EffectCloseHalf != 0 && c.half == halfOpen {
		c.closing()
	}
	if terminated {
		c.told = true
		c.engine.Tell(wq.EventTerminated, 0, err)
	}
	switch {
	case fx&qp.EffectFail != 0:
		c.Fail(err)
	case fx&qp.EffectLeave != 0:
		c.note(err)
		c.closing()
	}
	if fx&qp.EffectSend != 0 {
		c.Transport.Send()
	}
	if fx&qp.EffectSendLater != 0 {
		c.Transport.SendLater()
	}
	if fx&qp.EffectNotReady != 0 {
		c.notReady()
	}
	if fx&(qp.EffectNeedBufs|qp.EffectWantBufs) != 0 {
		c.Transport.Short(fx&qp.EffectNeedBufs != 0)
	}
}

// opened is EffectOpened: a Responder may send from now on.
func (c *Connection) opened() {
	c.sendFirstAt = 0
	if c.phase == phaseRtr {
		c.phase = phaseFull
	}
	c.endpoint.startedUp(nil)
	switch {
	case c.timer != timerFrame && c.timer != timerSendFirst:
	case c.half == halfOpen:
		c.clearTimer()
	default:
		c.linger()
	}
	c.Transport.Send()
}
