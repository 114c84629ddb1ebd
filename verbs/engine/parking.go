package engine

import (
	"context"
	"sync"
	"time"

	"github.com/rnicd/rnicd/rnic"
)

// parking keeps Listeners for a moment after the program has destroyed their ids. perftest's servers
// listen, take one connection, stop, and listen again for the next, which the client begins at
// once: with adapters it is slowed down by finding its route, here it would be refused. A request
// that comes meanwhile waits for the next listener; if there is none it is rejected.
type parking struct {
	mu  sync.Mutex
	all map[string]*rnic.Listener
}

// parkedMax is how long a Listener waits.
const parkedMax = time.Second

// park takes over a Listener that listens at addr.
func (p *parking) park(addr string, l *rnic.Listener) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.all == nil {
		p.all = map[string]*rnic.Listener{}
	}
	if p.all[addr] != nil {
		l.Close()
		return
	}
	p.all[addr] = l
	time.AfterFunc(parkedMax, func() {
		p.mu.Lock()
		still := p.all[addr] == l
		if still {
			delete(p.all, addr)
		}
		p.mu.Unlock()
		if still {
			rejectWaiting(l)
			l.Close()
		}
	})
}

// take returns the Listener that was parked at addr, or nil.
func (p *parking) take(addr string) *rnic.Listener {
	p.mu.Lock()
	defer p.mu.Unlock()
	l := p.all[addr]
	delete(p.all, addr)
	return l
}

func rejectWaiting(l *rnic.Listener) {
	ctx, cancel := context.WithTimeout(context.Background(), rejectWait)
	defer cancel()
	for r := l.Poll(); r != nil; r = l.Poll() {
		_ = r.Reject(ctx, nil)
	}
}
