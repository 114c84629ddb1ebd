package engine

import (
	"net/netip"
	"sync"
)

// dials keeps the order of rdma_connect to each peer, as the kernel's connection manager does: the
// next connection begins when the one before has: has sent its MPA Request, over our own TCP its
// SYN, or has failed. Programs rely on it: perftest's ends number their queue pairs in this order,
// and have no other way to tell which two are connected.
type dials struct {
	mu   sync.Mutex
	last map[netip.AddrPort]chan struct{} // closed when the last one has begun
}

// queue takes the next place in the order to a peer. begun is closed when the connection before has
// begun; the caller calls next once, when its own has.
func (d *dials) queue(to netip.AddrPort) (begun <-chan struct{}, next func()) {
	d.mu.Lock()
	defer d.mu.Unlock()
	before, own := d.last[to], make(chan struct{})
	if before == nil {
		before = make(chan struct{})
		close(before)
	}
	if d.last == nil {
		d.last = map[netip.AddrPort]chan struct{}{}
	}
	d.last[to] = own
	return before, func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		close(own)
		if d.last[to] == own {
			delete(d.last, to)
		}
	}
}
