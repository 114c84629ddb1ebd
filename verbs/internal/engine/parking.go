package engine

import (
	"context"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/rnic"
)

// parking keeps Listeners after the program has destroyed their ids, as long as a connection lasts
// that came by them. perftest's servers listen, take one connection, stop, and listen again for the
// next, which the client begins at once: with adapters it is slowed down by finding its route, here
// it would be refused. A request that comes meanwhile waits for the next listener; if there is none
// it is rejected.
type parking struct {
	mu  sync.Mutex
	all map[string]*doorway
}

// parkedMax is how long a Listener waits at most: its port is taken meanwhile. Beside busy programs
// perftest's server has needed more than a second.
const parkedMax = 10 * time.Second

// doorway is a Listener with the ends of the connections that came by it.
type doorway struct {
	*rnic.Listener
	binding *rnic.Binding // of its port
	mu      sync.Mutex
	ends    []<-chan struct{}
	back    []*rnic.ConnRequest // announced by an earlier listener, and not taken by its program
}

// next is the next request, those that were given back first.
func (d *doorway) next(ctx context.Context) (*rnic.ConnRequest, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if len(d.back) == 0 {
		d.mu.Unlock()
		r, err := d.Accept(ctx)
		d.mu.Lock()
		return r, err
	}
	r := d.back[0]
	d.back = d.back[1:]
	return r, nil
}

// giveBack takes those requests from a listener that its program has not. The listener does nothing
// any more.
func (d *doorway) giveBack(objects *handles, listener *cmID) {
	listener.mu.Lock()
	told := listener.told
	listener.told = nil
	listener.mu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	for handle, id := range told {
		_ = objects.drop(handle) // it is there: the program has not been given the handle
		id.end()
		id.mu.Lock()
		if id.request != nil { // nil: the program has guessed the handle, and answered
			d.back = append(d.back, id.request)
		}
		id.mu.Unlock()
	}
}

// reject answers all that wait, since no listener is left to do so.
func (d *doorway) reject() {
	ctx, cancel := awake.Timeout(context.Background(), rejectWait, nil)
	defer cancel()
	d.mu.Lock()
	back := d.back
	d.back = nil
	d.mu.Unlock()
	for _, r := range back {
		_ = r.Reject(ctx, nil)
	}
	for r := d.Poll(); r != nil; r = d.Poll() {
		_ = r.Reject(ctx, nil)
	}
	d.Close()
	d.binding.Close()
}

// came adds a connection, or a request for one, by its end.
func (d *doorway) came(end <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ends = append(d.lasting(), end)
}

// lasting drops those that have ended. d is locked.
func (d *doorway) lasting() []<-chan struct{} {
	d.ends = slices.DeleteFunc(d.ends, func(end <-chan struct{}) bool {
		select {
		case <-end:
			return true
		default:
			return false
		}
	})
	return d.ends
}

// park takes over a doorway at addr.
func (p *parking) park(addr string, d *doorway) {
	d.mu.Lock()
	ends := slices.Clone(d.lasting())
	d.mu.Unlock()
	if len(ends) == 0 || !p.keep(addr, d) {
		d.reject()
		return
	}
	go func() {
		enough, stop := awake.After(parkedMax)
		defer stop()
		for _, end := range ends {
			select {
			case <-end:
				continue
			case <-enough:
			}
			break
		}
		p.remove(addr, d)
	}()
}

// parkedAt is where a doorway is kept: one that takes IPv6 alone is no other's.
func parkedAt(at netip.AddrPort, v6Only bool) string {
	if v6Only {
		return at.String() + " v6only"
	}
	return at.String()
}

// keep enters a doorway; false: there is one at addr.
func (p *parking) keep(addr string, d *doorway) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]*doorway{}
	}
	if p.all[addr] != nil {
		return false
	}
	p.all[addr] = d
	return true
}

// remove closes a doorway that was not taken.
func (p *parking) remove(addr string, d *doorway) {
	p.mu.Lock()
	still := p.all[addr] == d
	if still {
		delete(p.all, addr)
	}
	p.mu.Unlock()
	if still {
		d.reject()
	}
}

// yield closes the doorways that are kept at a port, for an id that has another address of it in
// mind, and says whether there was one.
func (p *parking) yield(port uint16) (any bool) {
	p.mu.Lock()
	var closed []*doorway
	for addr, d := range p.all {
		if d.binding.Addr().Port() == port {
			closed = append(closed, d)
			delete(p.all, addr)
		}
	}
	p.mu.Unlock()
	for _, d := range closed {
		d.reject()
	}
	return len(closed) > 0
}

// take returns the doorway that was parked at addr, or nil.
func (p *parking) take(addr string) *doorway {
	p.mu.Lock()
	defer p.mu.Unlock()
	d := p.all[addr]
	delete(p.all, addr)
	return d
}
