package engine

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
)

// Bounds.
const (
	// requestWait is for how long a Request waits for its queue pair: two programs' moves to RTR may
	// lie so far apart without costing the slower one another attempt.
	requestWait = 5 * time.Second
	waitingMax  = 8 // Requests of one queue pair, each of another peer
)

// asker is an MPA Request for a queue pair that is connected by number.
type asker struct {
	request *rnic.ConnRequest
	hello   hello
	way     *way
	timer   *awake.Timer
}

// serveSlot takes Requests, for as long as the process lives.
func (e *Engine) serveSlot(s *slot) {
	for {
		r, err := s.listener.Accept(context.Background())
		if err != nil {
			return
		}
		e.asked(s, r, false)
	}
}

// asked takes a Request; within: of this process itself (within.go).
func (e *Engine) asked(s *slot, r *rnic.ConnRequest, within bool) {
	h, err := parseHello(r.PrivateData())
	if err != nil || h.answer != accepted || h.flags&^helloProven != helloAcknowledged {
		e.refuse(r, &hello{}, notByNumber, nil)
		return
	}
	if !e.believes(ofRequest, &h) { // it hears nothing that the secret has made
		e.refuse(r, &h, otherSecret, nil)
		return
	}
	q, _ := s.find(h.to.number).(*qp)
	switch {
	case q == nil:
		e.refuse(r, &h, unknown, nil)
	case !within && !(h.from.at(r.Remote().Addr()) && h.to.at(r.Local().Addr())):
		e.refuse(r, &h, elsewhere, nil)
	default:
		q.way.offer(&asker{request: r, hello: h, way: &q.way})
	}
}

// refuse answers a Request, on a goroutine of its own; challenge is for the next, or nil.
func (e *Engine) refuse(r *rnic.ConnRequest, h *hello, why answer, challenge *[16]byte) {
	e.tellRefused(r.Remote(), h.to.number, why)
	no := &hello{answer: why, flags: helloAcknowledged, to: h.from, from: h.to}
	if h.flags&helloProven != 0 && why != otherSecret {
		no.proof.nonce = h.proof.nonce
		if challenge != nil {
			no.proof.challenge = *challenge
		}
		e.proven(ofReply, no)
	}
	go func() {
		ctx, cancel := awake.Timeout(context.Background(), rejectWait, nil)
		defer cancel()
		_ = r.Reject(ctx, no.put()) // it will get no other answer
	}()
}

// offer is a Request that has come.
func (w *way) offer(a *asker) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.fresh(a) {
		w.q.engine.refuse(a.request, &a.hello, proveAgain, &w.challenge)
		return
	}
	if w.decide(a) {
		return
	}
	// One that the peer has made before is over.
	same := func(o *asker) bool { return o.hello.from == a.hello.from }
	if i := slices.IndexFunc(w.waiting, same); i >= 0 {
		w.forget(w.waiting[i])
	}
	if len(w.waiting) == waitingMax {
		w.q.engine.refuse(a.request, &a.hello, comeAgain, nil)
		return
	}
	w.waiting = append(w.waiting, a)
	a.timer = awake.AfterFunc(requestWait, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if slices.Contains(w.waiting, a) {
			w.forget(a)
		}
	})
}

// forget has a Request that waits come again. w is locked.
func (w *way) forget(a *asker) {
	a.timer.Stop()
	w.waiting = slices.DeleteFunc(w.waiting, func(o *asker) bool { return o == a })
	w.q.engine.refuse(a.request, &a.hello, comeAgain, nil)
}

// decide accepts or refuses a Request. False: it has to wait. w is locked.
func (w *way) decide(a *asker) bool {
	if w.state != waySeeking || w.acceptor != nil {
		return false
	}
	if a.hello.to != w.own || a.hello.from != w.peer || w.initiates() && !w.toItself() {
		w.q.engine.refuse(a.request, &a.hello, notForYou, nil)
		return true
	}
	if !w.fresh(a) { // another was accepted while it waited
		w.q.engine.refuse(a.request, &a.hello, proveAgain, &w.challenge)
		return true
	}
	w.challenge = [16]byte{} // which is for one connection
	w.acceptor = make(chan struct{})
	go w.accept(a, w.acceptor)
	return true
}

// decideAll looks at the Requests that wait. w is locked.
func (w *way) decideAll() {
	for _, a := range slices.Clone(w.waiting) {
		if w.decide(a) {
			a.timer.Stop()
			w.waiting = slices.DeleteFunc(w.waiting, func(o *asker) bool { return o == a })
		}
	}
}

// accept is the Responder's start-up.
func (w *way) accept(a *asker, done chan struct{}) {
	defer close(done)
	l, err := w.begin(!w.toItself(), true)
	if err != nil {
		w.q.engine.refuse(a.request, &a.hello, comeAgain, nil)
	} else {
		ctx, cancel := awake.Timeout(context.Background(), acceptWait, nil)
		defer cancel()
		if err = a.request.Accept(ctx, l.rnic, w.param(w.reply(a))); err == nil {
			err = l.rnic.StartupOver(ctx)
		}
		if err == nil {
			w.serve(l)
		} else {
			w.q.engine.tellLog("queue pair 0x%06x from %v: %v", w.own.number, w.peer, err)
			l.end()
		}
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	w.acceptor = nil
	w.decideAll()
}

// reply is what the Responder says.
func (w *way) reply(a *asker) *hello {
	return w.q.engine.proven(ofReply, &hello{answer: accepted, flags: helloAcknowledged, to: w.peer,
		from: w.own, proof: proof{nonce: a.hello.proof.nonce}})
}

// addrPort is a, with any port.
func addrPort(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 0) }
