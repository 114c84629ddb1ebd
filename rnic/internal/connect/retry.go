package connect

import "time"

// retries are for a connection in acknowledged mode: when to send again to a peer that was not
// ready, and when to give one up that does not answer. They share the transport's one timer with
// the purposes of timer.go.
type retries struct {
	acknowledged bool   // Param.Acknowledged, in service
	retryAt      int64  // 0: nothing is due
	resumes      bool   // then requests are sent again; else the peer is to have answered
	answered     uint64 // Transport.Progress when the time for an answer began
	peerLeft     bool   // the peer has closed its half first
}

// notReady has what the peer was not ready for be sent again when the time is over that it named.
func (c *Connection) notReady() {
	c.retryIn(c.engine.NotReadyTime(), true)
	c.armTimer()
}

// awaitAnswers begins the time for an answer, if requests are on their way.
func (c *Connection) awaitAnswers() {
	if wait := c.engine.Unanswered(); wait > 0 && c.engine.OnTheirWay() {
		c.answered = c.Transport.Progress()
		c.retryIn(wait, false)
		c.armTimer()
	}
}

func (c *Connection) retryIn(wait time.Duration, resumes bool) {
	c.retryAt, c.resumes = c.Transport.Now()+int64(wait), resumes
}

// retryDue acts on the time being over. A peer whose TCP takes octets or sends some has answered:
// a long message is acknowledged when all of it is there.
func (c *Connection) retryDue() {
	c.retryAt = 0
	switch {
	case !c.phase.inService():
	case c.resumes:
		c.engine.Resume()
		c.Transport.Send() // and Pull awaits answers again
	case c.engine.OnTheirWay() && c.Transport.Progress() == c.answered:
		c.Fail(ErrNoAnswer)
	default:
		c.awaitAnswers()
	}
}
