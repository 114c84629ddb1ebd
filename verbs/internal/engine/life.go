package engine

import (
	"github.com/rnicd/rnicd/rnic"
)

// life is a connection of a queue pair that is connected by number, or an attempt to have one. It
// takes from the queue pair's rings, and completes into its completion queues, while the connection
// is in service.
type life struct {
	q            *qp
	rnic         *rnic.QueuePair
	sends, recvs bool // what it carries: of a queue pair that is connected to itself one of the two
	worked       bool // something has completed that the program had posted
	watched      chan struct{}
}

var _ rnic.WorkSource = (*life)(nil)

// newLife is one that has no connection yet.
func (q *qp) newLife(sends, recvs bool) (l *life, err error) {
	l = &life{q: q, sends: sends, recvs: recvs, watched: make(chan struct{})}
	opt := q.opt
	opt.SendCQ = q.engine.adapter.CreateCQSink(l.sent)
	opt.RecvCQ = q.engine.adapter.CreateCQSink(l.received)
	opt.Source = l
	if l.rnic, err = q.engine.adapter.CreateQP(opt); err != nil {
		return nil, err
	}
	l.permit()
	go l.watch(q.engine.endings.await(l.rnic))
	return l, nil
}

// permit has the peer do what the program permits it.
func (l *life) permit() { l.rnic.Permit(rnic.PeerAccess(l.q.peerAccess.Load())) }

// takes says whether requests may be taken: not after service, when what is left in the rings is
// the queue pair's to keep or to flush.
func (l *life) takes() bool { return l.rnic.State() == rnic.RTS }

// SendsWait is rnic's question whether the program has posted requests.
func (l *life) SendsWait() bool { return l.sends && l.q.SendsWait() && l.takes() }

// Sends posts the next.
func (l *life) Sends(f rnic.Feed) {
	if l.sends && l.takes() {
		l.q.Sends(f)
	}
}

// Recvs posts the next receive buffer.
func (l *life) Recvs(f rnic.Feed) {
	if l.recvs && l.takes() {
		l.q.Recvs(f)
	}
}

// Written is rnic's word that the peer has written to memory.
func (l *life) Written() {
	l.q.way.heard()
	l.q.Written()
}

// sent is the completion of a request.
func (l *life) sent(c rnic.Completion) {
	if l.q.drain.marked(&c) {
		return
	}
	l.worked = true
	l.failed(&c)
	w := &l.q.way
	switch c.Status {
	case rnic.Success:
	case rnic.Flushed, rnic.RetryExceeded:
		if w.hold(&c) {
			return
		}
		c.Status = rnic.Flushed
	default:
		w.failed.Store(true)
		w.flushHeld() // an error of this end's own comes after them
	}
	l.q.sent(c)
}

// received is the completion of a receive buffer. The end of the connection flushes none.
func (l *life) received(c rnic.Completion) {
	w := &l.q.way
	l.worked = true
	l.failed(&c)
	switch c.Status {
	case rnic.Flushed:
		w.keep(c.ID)
		return
	case rnic.Success:
		w.heard()
	default:
		w.failed.Store(true)
	}
	l.q.received(c)
}

// failed keeps, for what is flushed after it, which Terminate has ended it.
func (l *life) failed(c *rnic.Completion) {
	if c.Terminate != 0 {
		l.q.way.terminate.Store(c.Terminate)
	}
}

// watch waits for the end.
func (l *life) watch(told func()) {
	<-l.rnic.Done()
	l.q.windows.end(l.rnic)
	close(l.watched)
	l.q.way.lifeOver(l, l.rnic.Err())
	told()
}

// end aborts it, and returns when nothing of it completes any more.
func (l *life) end() {
	l.rnic.Abort()
	<-l.rnic.Done()
	<-l.watched
}
