package connect

import (
	"time"
)

// purpose is what a connection's one timer was set for, and so what Timer does.
//
//	Initiator:  timerFrame ──Reply──▶ timerWakeUp ◀─▶ timerWakeUpLate ──▶ timerOff
//	Responder:  timerFrame ─Request─▶ timerDecision ┬▶ timerFrame ──RTR──▶ timerOff
//	                                                ├▶ timerSendFirst ───▶ timerOff
//	                                                ├▶ timerHandBack
//	                                                └▶ timerRejected ──▶ timerLinger
//	either, when its half is to end:  any ──▶ timerLinger, or timerSendFirst before it
//	        when it is to be reset:   any ──▶ timerReset
type purpose uint8

const (
	timerOff        purpose = iota
	timerFrame              // the peer's start-up frame, or its RTR message, is due
	timerDecision           // the ULP's decision on a Request is due
	timerWakeUp             // an Initiator sends once more (wakeup.go)
	timerWakeUpLate         // likewise; start-up's message had not left when that came
	timerSendFirst          // a Responder may send first (sendfirst.go)
	timerRejected           // a rejected peer has had its time to close first
	timerHandBack           // the Reply is to leave before the connection is a stream again
	timerLinger             // the peer is to end its half
	timerReset              // the peer is to take what comes before the reset
)

// setTimer sets the timer for p, so long from now.
func (c *Connection) setTimer(p purpose, wait time.Duration) {
	c.setTimerAt(p, c.Transport.Now()+int64(wait))
}

func (c *Connection) setTimerAt(p purpose, at int64) {
	c.timer, c.timerAt = p, at
	c.armTimer()
}

// armTimer sets the transport's one timer for what comes first: the purpose, or a retry.
func (c *Connection) armTimer() {
	at := c.timerAt
	if due := c.retryDueAt(); due != 0 && (at == 0 || due < at) {
		at = due
	}
	c.Transport.SetTimer(at)
}

// retryDueAt is when a retry is due; 0: none is.
func (c *Connection) retryDueAt() int64 {
	if c.retries == nil {
		return 0
	}
	return c.retryAt
}

func (c *Connection) clearTimer() { c.setTimerAt(timerOff, 0) }
