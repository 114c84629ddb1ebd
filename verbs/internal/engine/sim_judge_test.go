package engine

import (
	"bytes"
	"slices"
	"time"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// outcome is what must come of an end's round.
type outcome int

const (
	serves outcome = iota // all that both ends post arrives, and completes
	fails                 // nobody answers in time
	waits                 // nobody answers, and the program waits for ever
	breaks                // some arrives; then nobody answers in time
)

// expects is what must come of the end's round.
func (e *end) expects() outcome {
	switch d, p := e.draw(), e.part(); {
	case d.Kind == roundMeet:
		return serves
	case d.ends():
		return breaks
	case p.impatient() && !(d.Kind == roundStray && e.index != d.Who && len(e.c.ends) > 1):
		return fails
	}
	return waits
}

// slack is how late what a clock decides may be.
const slack = 200 * time.Millisecond

// judge waits for what must come of the round, and fails the world if that does not come.
func (e *end) judge() {
	switch e.expects() {
	case serves:
		e.judgeService()
	case fails:
		e.judgeNoAnswer(e.begin+int64(e.part().over()), int64(slack))
	case waits:
		e.judgeWait()
	case breaks:
		e.judgeBreak()
	}
	e.over.Store(true)
}

// judgeService: both ends are connected to each other, once; all arrives.
func (e *end) judgeService() {
	d, p, o := e.draw(), e.part(), e.other()
	theirs := &d.Parts[o.index]
	by := e.begin + int64(max(d.both(), p.last(), theirs.last(), p.Recv, theirs.Recv)+
		e.n.wl.connects())
	if !e.n.wl.calm() {
		by += int64(2 * time.Minute) // TCP repeats, less and less often
	}
	all := func() bool {
		return len(e.sent) == p.Messages && len(e.got) == theirs.Messages && e.q.way.in(wayServed)
	}
	if !e.wait(by, all) {
		e.n.fail("%v: %d of %d sent, %d of %d received, in service %v", e, len(e.sent), p.Messages,
			len(e.got), theirs.Messages, e.q.way.in(wayServed))
		return
	}
	e.n.mark("connected", true)
	e.n.mark("connected in its second life", e.round > 0)
	e.n.mark("the request waited",
		e.c.Kind == coupleApart && e.q.way.initiates() && p.RTR < theirs.RTR)
	e.n.mark("the request came again", e.q.way.initiates() && p.RTR+requestWait < theirs.RTR)
	e.n.mark("both ends at once", e.c.Kind == coupleApart && p.RTR == theirs.RTR)
	e.n.mark(string(e.c.Kind), true)
}

// once: there is one connection, of both ends, and no Request waits.
func (e *end) once() {
	want := 1
	if e.c.Kind == coupleItself {
		want = 2
	}
	w := &e.q.way
	peers := func(a *asker) bool { return a.hello.from == e.other().name }
	e.n.until(e.n.Now()+int64(e.n.wl.connects()), func() bool {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.lives) == want && !slices.ContainsFunc(w.waiting, peers) && w.acceptor == nil
	})
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != wayServed || len(w.lives) != want || slices.ContainsFunc(w.waiting, peers) ||
		w.acceptor != nil || w.timer != nil {
		e.n.fail("%v: state %d, %d connections, %d Requests wait, accepts: %v, a timer: %v", e, w.state,
			len(w.lives), len(w.waiting), w.acceptor != nil, w.timer != nil)
	}
}

// judgeNoAnswer: the first request that has no answer fails between from and within after it, all
// after it are flushed, and so are all buffers.
func (e *end) judgeNoAnswer(from, within int64) {
	e.wait(from+within, e.allDone)
	good := 0
	for good < len(e.sent) && e.sent[good].status == rnic.Success {
		good++
	}
	if !e.allDone() || good == len(e.sent) {
		e.n.fail("%v: %d of %d requests completed, %d of %d buffers, %d requests succeeded", e,
			len(e.sent), len(e.requests), len(e.got), e.awaited, good)
		return
	}
	first := e.sent[good]
	if first.status != rnic.RetryExceeded || first.at < from {
		e.n.fail("%v: request %d is %v after %v; no answer by %v", e, good, first.status,
			time.Duration(first.at-e.begin), time.Duration(from-e.begin))
	}
	e.allFlushed(good + 1)
	e.n.mark("no answer", true)
}

// allDone says whether all that was posted has completed.
func (e *end) allDone() bool { return len(e.sent) == len(e.requests) && len(e.got) == e.awaited }

// allFlushed fails the world unless the requests from the first on, and all buffers that no message
// has come to, were flushed.
func (e *end) allFlushed(first int) {
	for i := first; i < len(e.sent); i++ {
		if e.sent[i].status != rnic.Flushed {
			e.n.fail("%v: request %d is %v", e, i, e.sent[i].status)
		}
	}
	for i := 1; i < len(e.got); i++ {
		if e.got[i-1].status == rnic.Flushed && e.got[i].status != rnic.Flushed {
			e.n.fail("%v: buffer %d is %v after one that was flushed", e, i, e.got[i].status)
		}
	}
}

// judgeWait: nothing completes, for as long as the program waits.
func (e *end) judgeWait() {
	o := e.other()
	e.wait(e.n.Now()+int64(10*time.Minute), func() bool { return o == e || o.over.Load() })
	e.wait(e.n.Now()+int64(requestWait+2*time.Second), func() bool { return false })
	if len(e.sent)+len(e.got) > 0 || e.q.way.in(wayServed) {
		e.n.fail("%v: %d sent, %d received, in service %v, and nobody is there", e, len(e.sent),
			len(e.got), e.q.way.in(wayServed))
	}
	e.call(ring.AbortQP, nil)
	e.flushed()
}

// flushed: all that was posted completes, now that the program has moved the queue pair to ERR.
func (e *end) flushed() {
	if !e.wait(e.n.Now()+int64(slack), e.allDone) {
		e.n.fail("%v: in ERR %d of %d requests completed, %d of %d buffers", e, len(e.sent),
			len(e.requests), len(e.got), e.awaited)
	}
	first := 0
	for first < len(e.sent) && e.sent[first].status == rnic.Success {
		first++
	}
	if first < len(e.sent) && e.sent[first].status == rnic.RetryExceeded { // before
		first++
	}
	e.allFlushed(first)
}

// judgeBreak: what has no answer fails in time.
func (e *end) judgeBreak() {
	d := e.draw()
	succeeded := func() bool {
		return len(e.sent) == len(e.requests) && e.sent[len(e.sent)-1].status == rnic.Success
	}
	// A request is answered, or not, from when it is posted, or from when its predecessor was.
	patience := int64(e.part().patience())
	by := max(e.begin+int64(d.At), e.n.Now()) + int64(messagesMax+2)*patience
	e.wait(by, func() bool { return e.allDone() || succeeded() })
	switch {
	case succeeded():
		e.call(ring.AbortQP, nil)
		e.flushed()
	case e.allDone():
		peer := &d.Parts[e.other().index] // which leaves after its last message, too
		left := min(d.At, peer.last()) + unansweredMin
		e.judgeNoAnswer(e.begin+int64(min(e.part().over(), left)), 0)
	default:
		e.n.fail("%v: %d of %d requests completed, %d of %d buffers, %v after the end", e, len(e.sent),
			len(e.requests), len(e.got), e.awaited, time.Duration(e.n.Now()-e.begin)-d.At)
	}
	e.n.mark(string(d.Kind), true)
}

// complete judges a completion by itself.
func (e *end) complete(c *wq.CQE) {
	d := done{rnic.Status(c.Status), e.n.Now()}
	if c.Op == wq.OpRecv {
		i := len(e.got)
		e.got = append(e.got, d)
		switch {
		case c.ID != uint64(i):
			e.n.fail("%v: buffer %d completes, of %d that were to", e, c.ID, i)
		case d.status == rnic.Success && !bytes.Equal(e.inbound(i), e.other().message(i)):
			e.n.fail("%v: message %d is not what was sent", e, i)
		case d.status != rnic.Success && d.status != rnic.Flushed:
			e.n.fail("%v: buffer %d is %v", e, i, d.status)
		}
		return
	}
	i := len(e.sent)
	e.sent = append(e.sent, d)
	if c.ID != uint64(i) {
		e.n.fail("%v: request %d completes, of %d that were to", e, c.ID, i)
	}
	// the peer has it
	if o := e.other(); d.status == rnic.Success && o.round == e.round &&
		!bytes.Equal(o.inbound(i), e.message(i)) {
		e.n.fail("%v: request %d has succeeded, and the peer does not have the message", e, i)
	}
}
