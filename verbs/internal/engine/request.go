package engine

import (
	"context"
	"net/netip"
	"slices"
	"sync/atomic"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
)

// asker is an MPA Request for a queue pair that is connected by number.
type asker struct {
	request *rnic.ConnRequest
	hello   hello
	way     *way
	timer   *time.Timer
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
	if err != nil || h.answer != accepted || h.flags != helloFlags {
		e.refuse(r, &hello{}, notByNumber)
		return
	}
	q, _ := s.find(h.to.number).(*qp)
	switch {
	case q == nil:
		e.refuse(r, &h, unknown)
	case !within && !(h.from.at(r.Remote().Addr()) && h.to.at(r.Local().Addr())):
		e.refuse(r, &h, elsewhere)
	default:
		q.way.offer(&asker{request: r, hello: h, way: &q.way})
	}
}

// refusals counts Requests that were refused, by answer.
type refusals [answersEnd]atomic.Uint64

// refuse answers a Request, on a goroutine of its own.
func (e *Engine) refuse(r *rnic.ConnRequest, h *hello, why answer) {
	e.refusals[why].Add(1)
	if why != comeAgain {
		e.tellLog("refused %v, for queue pair 0x%06x: %v", r.Remote(), h.to.number, why)
	}
	no := hello{answer: why, flags: helloFlags, to: h.from, from: h.to}
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
	if w.decide(a) {
		return
	}
	// One that the peer has made before is over.
	same := func(o *asker) bool { return o.hello.from == a.hello.from }
	if i := slices.IndexFunc(w.waiting, same); i >= 0 {
		w.forget(w.waiting[i])
	}
	if len(w.waiting) == waitingMax {
		w.q.engine.refuse(a.request, &a.hello, comeAgain)
		return
	}
	w.waiting = append(w.waiting, a)
	a.timer = time.AfterFunc(requestWait, func() {
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
	w.q.engine.refuse(a.request, &a.hello, comeAgain)
}

// decide accepts or refuses a Request. False: it has to wait. w is locked.
func (w *way) decide(a *asker) bool {
	if w.state != waySeeking || w.acceptor != nil {
		return false
	}
	if a.hello.to != w.own || a.hello.from != w.peer || w.initiates() && !w.toItself() {
		w.q.engine.refuse(a.request, &a.hello, notForYou)
		return true
	}
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
		w.q.engine.refuse(a.request, &a.hello, comeAgain)
	} else {
		ctx, cancel := awake.Timeout(context.Background(), acceptWait, nil)
		defer cancel()
		if err = a.request.Accept(ctx, l.rnic, w.param(accepted)); err == nil {
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

// addrPort is a, with any port.
func addrPort(a netip.Addr) netip.AddrPort { return netip.AddrPortFrom(a, 0) }
