package stack

import (
	"context"
	"fmt"

	"github.com/rnicd/rnicd/pmd"
)

// Run pins itself and turns until ctx ends or Stop. Call on a goroutine of its own, once. At the
// end it resets all connections; their Uppers get ErrStopped. The error says why it could not
// start; an end by ctx or Stop is nil.
func (p *Poller) Run(ctx context.Context) error {
	if !p.running.CompareAndSwap(false, true) {
		return fmt.Errorf("stack: poller %q: Run was called before", p.cfg.Name)
	}
	own := p.ownsThread()
	if own {
		defer keepThread()()
	}
	restore, err := pin(p.cfg.Core)
	if err != nil {
		p.running.Store(false)
		return fmt.Errorf("stack: poller %q: %w", p.cfg.Name, err)
	}
	defer restore()
	if p.cfg.Idle == IdleInterrupt {
		if err := p.rouser.prepare(p.queue.(pmd.Interrupter), p.cfg.Bell); err != nil {
			p.running.Store(false)
			return fmt.Errorf("stack: poller %q: what wakes it: %w", p.cfg.Name, err)
		}
		defer p.rouser.close()
	}
	polling.Add(1)
	defer polling.Add(-1)
	defer context.AfterFunc(ctx, p.Stop)()
	r := newRunner(p, !own)
	for !p.stopped {
		r.after(p.Turn())
	}
	return nil
}

// runner is what Run does between Turns.
type runner struct {
	p        *Poller
	wait     waiter
	reply    reply
	crowding crowding
	turn     func() int // made once: each is an allocation
	deadline func() (now, at int64)
}

// newRunner is p's. moves says that p has no thread of its own.
func newRunner(p *Poller, moves bool) *runner {
	r := &runner{p: p, wait: waiter{idle: p.cfg.Idle, moves: moves}, turn: p.Turn}
	if p.cfg.Bell != nil {
		r.crowding.word = p.cfg.Bell.Crowded
	}
	r.deadline = func() (now, at int64) {
		at = p.deadline()
		p.sleeps(min(at, p.now+p.rouser.maxNs))
		return p.now, at
	}
	return r
}

// after spins, gives way or sleeps after a Turn that has found so much work.
func (r *runner) after(work int) {
	p := r.p
	if p.cfg.Bell != nil {
		r.reply.turned(p.now, p.arrivals, p.asked)
		r.wait.brief = r.reply.within > 0
	}
	r.crowding.turned(p.now, r.wait.shared)
	switch {
	case work > 0:
		r.wait.busy(p.now)
	case p.stopped || r.reply.soon(p.now):
	case r.wait.deep(p.now):
		r.sleep()
		r.crowding.gaveWay()
	case r.wait.idle != IdleSpin:
		r.crowding.gaveWay()
		if at := p.deadline(); r.wait.wait(p.now, at) {
			p.sleeps(min(at, p.now+sleepMaxNs))
			p.n.Sleeps++
		}
	}
}

// sleep lasts until something comes.
func (r *runner) sleep() {
	p := r.p
	r.wait.prepare()
	if p.rouser.sleep(r.turn, r.deadline, p.cfg.Bell != nil && p.rouser.deaf(p.now, p.n.RxFrames),
		r.wait.company) {
		p.n.Sleeps++
	} else {
		r.wait.busy(p.now)
	}
}
