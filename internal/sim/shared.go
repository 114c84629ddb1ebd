package sim

import (
	"fmt"
	"math/rand/v2"

	"github.com/rnicd/rnicd/rnic"
)

// recvPool is the receive buffers that all connections of a host share, recvDepth for each of them:
// no connection has more Sends under way, so that none may ever lack one.
type recvPool struct {
	pd     *rnic.ProtectionDomain
	srq    *rnic.SharedReceiveQueue
	inbox  *scattered
	rng    *rand.Rand
	order  []uint64 // by buffer: its place in the order of posting, 0 when it is not posted
	posted uint64
}

// poolOf makes the pool for a host, with all its buffers posted.
func poolOf(a *rnic.Adapter, wl *Workload) (*recvPool, error) {
	n := recvDepth * len(wl.Conns)
	p := &recvPool{pd: a.AllocPD(), rng: rand.New(rand.NewPCG(wl.Seed, 0x5ca7)),
		order: make([]uint64, n)}
	var err error
	if p.srq, err = a.CreateSRQ(rnic.SRQOptions{PD: p.pd, Depth: n}); err != nil {
		return nil, err
	}
	if p.inbox, err = newScattered(p.pd, n, wl.SendMax); err != nil {
		return nil, err
	}
	for i := range n {
		if err := p.post(i); err != nil {
			return nil, err
		}
	}
	return p, nil
}

func (p *recvPool) post(i int) error {
	p.posted++
	p.order[i] = p.posted
	_, err := p.srq.PostRecv(p.inbox.scatter(p.rng, i, rnic.SharedSGEMax))
	return err
}

// completed: a stream has used buffer i, or lets go of it. Each takes them in the order of posting;
// last is the stream's last.
func (p *recvPool) completed(i uint64, last *uint64) error {
	if i >= uint64(len(p.order)) || p.order[i] == 0 {
		return fmt.Errorf("shared buffer %d completed and is not posted", i)
	}
	if p.order[i] <= *last {
		return fmt.Errorf("shared buffer %d, posted as number %d, after number %d", i, p.order[i], *last)
	}
	*last, p.order[i] = p.order[i], 0
	return nil
}

// check: what did not complete is still there.
func (p *recvPool) check() error {
	left := 0
	for _, at := range p.order {
		if at > 0 {
			left++
		}
	}
	if left != p.srq.Left() {
		return fmt.Errorf("%d shared buffers are left, %d did not complete", p.srq.Left(), left)
	}
	return nil
}

// shared draws whether each host's connections share receive buffers, from a generator of its own:
// what else a seed draws is the same with and without.
func (wl *Workload) shared() {
	d := drawer{rand.New(rand.NewPCG(wl.Seed, 0x5a4ed))}
	for i := range wl.SharedRecv {
		wl.SharedRecv[i] = d.chance(35)
	}
}

// takeFrom has the peer's QueuePair take its receive buffers from pool.
func (p *peer) takeFrom(pool *recvPool, opt *rnic.QPOptions) {
	p.pool, p.inbox, p.pd = pool, pool.inbox, pool.pd
	opt.SRQ, opt.PD = pool.srq, pool.pd
}

// due holds a receive completion against the order of posting.
func (p *peer) due(c *rnic.Completion) error {
	if p.pool != nil {
		if err := p.pool.completed(c.ID, &p.lastTaken); err != nil {
			return fmt.Errorf("%s: %w", p.name, err)
		}
		return nil
	}
	if due := (p.received + p.flushed) % recvDepth; c.ID != uint64(due) {
		return fmt.Errorf("%s: receive buffer %d completed, %d was due", p.name, c.ID, due)
	}
	return nil
}
