package stack

import (
	"context"
	"fmt"

	"github.com/rnicd/rnicd/internal/rouse"
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
		if err := p.rouser.Prepare(p.cfg.Queue.(pmd.Interrupter), p.cfg.Bell); err != nil {
			p.running.Store(false)
			return fmt.Errorf("stack: poller %q: what wakes it: %w", p.cfg.Name, err)
		}
		defer p.rouser.Close()
	}
	rouse.Pollers.Add(1)
	defer rouse.Pollers.Add(-1)
	defer context.AfterFunc(ctx, p.Stop)()
	r := newRunner(p, !own)
	for !p.stopped {
		r.after(p.Turn())
	}
	return nil
}
