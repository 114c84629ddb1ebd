// Package fault simulates a bad network: middleware around a port or a queue that drops,
// duplicates, reorders, damages, cuts and delays frames of both directions, each with its own
// probability.
//
// All faults follow from the seed, the calls and the clock argument: runs can be repeated.
// Delayed frames are held in Bufs of the port's pool, and are bounded; every fault is counted. A
// capture around it records what the Poller sees, a capture inside it what is on the cable.
//
// It also makes a device slow: one that takes, or gives, frames at a rate, or so many a call, and
// stands still at times. Such a device loses nothing.
//
// Limits: a faulty port has no offloads, because the checksums of damaged frames must be verified.
// Faults of frames are independent: there are no bursts of loss, except with Queue.Set.
package fault

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// Port is a faulty pmd.Port.
type Port struct {
	inner  pmd.Port
	spec   Spec
	clock  func() int64
	queues []*Queue
}

var _ pmd.Port = (*Port)(nil)

// NewPort puts the faults of spec around every queue of p. clock: see Wrap; it is called on every
// queue's goroutine. Error: a Spec out of its bounds.
func NewPort(p pmd.Port, spec Spec, clock func() int64) (*Port, error) {
	if err := spec.check(); err != nil {
		return nil, err
	}
	return &Port{inner: p, spec: spec, clock: clock, queues: make([]*Queue, p.Caps().Queues)}, nil
}

func (p *Port) Name() string { return p.inner.Name() }
func (p *Port) MAC() [6]byte { return p.inner.MAC() }

// Caps are the device's without its offloads.
func (p *Port) Caps() pmd.Caps {
	c := p.inner.Caps()
	c.RxChecksum, c.TxChecksum, c.TxSegment = false, false, false
	return c
}

// Open gives queue i, a *Queue.
func (p *Port) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	q, err := p.inner.Open(i, pool)
	if err != nil {
		return nil, err
	}
	w, err := wrap(q, pool, p.spec, p.clock, i)
	if err != nil {
		return nil, err
	}
	p.queues[i] = w
	return w, nil
}

// Close frees what its queues hold and closes the device.
func (p *Port) Close() error {
	for _, q := range p.queues {
		if q != nil {
			q.Drop()
		}
	}
	return p.inner.Close()
}
