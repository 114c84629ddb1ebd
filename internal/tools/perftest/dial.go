package perftest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

// A server of perftest's stops listening when the first connection is there, and begins again for
// the second: a moment late, and its own clients, too, try for some time.
const (
	secondPatience = 10 * time.Second
	secondPause    = 20 * time.Millisecond
)

// nextAfter is how long a connection waits for siw's answer before the next one is begun beside it.
// Linux siw listens before it takes what comes (siw_create_listen): a connection that TCP
// establishes in between stays in its queue, unanswered, until the next one has siw look there, and
// from then on each connection waits for the one after it. One that is given up instead would end
// siw's listener.
//
// A connection whose first SYN was lost takes a second longer; that is no reason.
const nextAfter = 2 * time.Second

// dialer makes the connections that are measured, one after the other: the server numbers them as
// they come.
type dialer struct {
	ctx    context.Context
	cancel context.CancelFunc
	cfg    *ClientConfig
	plan   *plan
	terms  terms
	pd     *rnic.ProtectionDomain // of all, where there are several
	c      *control

	under []*attempt // those under way, in order
	// nextAfter, until a connection has needed the next one; 0: the server is not siw
	after time.Duration
}

// attempt is a connection under way.
type attempt struct {
	e   *end
	end chan error // Connect's result; has room for it
}

func newDialer(ctx context.Context, cfg *ClientConfig, p *plan, g terms, c *control) *dialer {
	d := &dialer{cfg: cfg, plan: p, terms: g, c: c}
	if cfg.Conn.Quirks.WakeUp > 0 { // what else siw needs
		d.after = nextAfter
	}
	d.ctx, d.cancel = context.WithCancel(ctx)
	if p.QPs > 1 {
		d.pd = cfg.Adapter.AllocPD()
	}
	return d
}

// release gives up what is still under way: with all connections made, one too many, which the
// server's listener has reset when it ended.
func (d *dialer) release() {
	d.cancel()
	for _, a := range d.under {
		<-a.end
		a.e.Release()
	}
}

// all makes them. The ends are the caller's to release, with an error, too.
func (d *dialer) all() (es ends, err error) {
	for range d.plan.QPs {
		e, err := d.next()
		if err != nil {
			return es, err
		}
		es = append(es, e)
	}
	return es, nil
}

func (d *dialer) begin() error {
	e, err := newEnd(d.cfg.Adapter, d.plan, d.terms, d.pd, false)
	if err != nil {
		return err
	}
	a := &attempt{e: e, end: make(chan error, 1)}
	go func() { a.end <- e.QP.Connect(d.ctx, d.cfg.Addr, d.plan.connParam(d.cfg.Conn)) }()
	d.under = append(d.under, a)
	return nil
}

// next is the next connection. While nothing listens at the server it is tried again.
func (d *dialer) next() (*end, error) {
	until := time.Now().Add(secondPatience)
	for {
		if len(d.under) == 0 {
			if err := d.begin(); err != nil {
				return nil, err
			}
		}
		a := d.under[0]
		err := d.await(a)
		if err == nil {
			return a.e, nil
		}
		if !errors.Is(err, stack.ErrRefused) || !time.Now().Before(until) {
			return nil, err
		}
		select {
		case <-time.After(secondPause):
		case <-d.c.qp.Done():
			return nil, d.c.over(d.ctx, err)
		case <-d.ctx.Done():
			return nil, d.ctx.Err()
		}
	}
}

// await returns the result of a, the oldest attempt, which is no longer under way then, and
// released if it failed. If that takes siw too long it begins the next one.
func (d *dialer) await(a *attempt) (err error) {
	var late <-chan time.Time
	if d.after > 0 && len(d.under) == 1 { // otherwise there is a next one already
		timer := time.NewTimer(d.after)
		defer timer.Stop()
		late = timer.C
	}
	var next error
	select {
	case err = <-a.end:
	case <-late:
		if next = d.begin(); next == nil {
			d.after = secondPause
		}
		err = <-a.end
	}
	d.under = d.under[1:]
	if err == nil {
		return nil
	}
	a.e.Release()
	if next != nil {
		return fmt.Errorf("%w, and the next could not be begun: %w", err, next)
	}
	return err
}
