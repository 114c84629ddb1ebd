package connect

import (
	"math"
	"time"
)

// retries are for a connection in acknowledged mode: when to send again to a peer that was not
// ready, and when to give one up that does not answer. They share the transport's one timer with
// the purposes of timer.go.
type retries struct {
	retryAt  int64 // 0: nothing is due
	resumes  bool  // then requests are sent again; else the peer is to have answered
	peerLeft bool  // the peer has closed its half first
	resetBy  int64 // the reset waits no longer (ending.go)
	asked    asked // while an answer is awaited
}

// asked is what the time for an answer began with. It is the peer's engine that has to answer: what
// else its program sends, or that its TCP takes octets, does not count. But the oldest request has
// to be there first, and a long one, or its Response, may take longer than the time.
type asked struct {
	answered uint64 // Engine.Answered
	to       uint64 // stream offset after the oldest request; math.MaxUint64: it is not all pulled
	taken    uint64 // octets that the peer's TCP had acknowledged
}

// notReady has what the peer was not ready for be sent again when the time is over that it named.
func (c *Connection) notReady() {
	c.retryIn(c.engine.NotReadyTime(), true)
	c.armTimer()
}

// awaitAnswers begins the time for an answer, if requests are on their way. The transport has not
// counted what is being pulled yet.
func (c *Connection) awaitAnswers(pulled [][]byte) {
	if wait := c.engine.Unanswered(); wait > 0 && c.engine.OnTheirWay() {
		sent, taken := c.Transport.Taken()
		for _, d := range pulled {
			sent += uint64(len(d))
		}
		c.asked = asked{answered: c.engine.Answered(), to: c.oldestTo(sent), taken: taken}
		c.retryIn(wait, false)
		c.armTimer()
	}
}

// oldestTo is an offset after the oldest request, where so many octets were pulled.
func (c *Connection) oldestTo(sent uint64) uint64 {
	if c.engine.OldestCut() {
		return sent
	}
	return math.MaxUint64
}

func (c *Connection) retryIn(wait time.Duration, resumes bool) {
	c.retryAt, c.resumes = c.Transport.Now()+int64(wait), resumes
}

// retryDue acts on the time being over.
func (c *Connection) retryDue() {
	c.retryAt = 0
	switch {
	case !c.phase.inService():
	case c.resumes:
		c.engine.Resume()
		c.Transport.Send() // and Pull awaits answers again
	case !c.engine.OnTheirWay():
	case c.engine.Answered() != c.asked.answered:
		c.awaitAnswers(nil)
	case !c.arrives():
		c.Fail(ErrNoAnswer)
	default:
		c.retryIn(c.engine.Unanswered(), false)
		c.armTimer()
	}
}

// arrives says whether the peer's TCP has taken more of the oldest request in the time that is
// over. The peer has the next time to answer, and a request that is pulled meanwhile does not
// lengthen it.
func (c *Connection) arrives() bool {
	sent, taken := c.Transport.Taken()
	a := &c.asked
	before := a.taken
	a.taken = taken
	if before >= a.to {
		return false
	}
	if a.to == math.MaxUint64 {
		a.to = c.oldestTo(sent)
	}
	return taken != before
}
