package engine

import (
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/rnicd/rnicd/rnic"
)

// deliveries are the completions of a queue pair on their way to its completion queues.
//
//	while it connects       kept, until the program is told what came of that
//	later                   into the completion queue
//	when it is destroyed    discarded; a buffer of a shared receive queue is given back
//
// So ESTABLISHED is always told before a completion.
type deliveries struct {
	under      atomic.Int32 // under way
	connecting atomic.Bool
	mu         sync.Mutex
	kept       []keptCompletion
	wrote      bool // the peer has written while it connected
}

type keptCompletion struct {
	to *cq
	c  rnic.Completion
}

// deliver passes on a completion. One goroutine at a time: the one that drives the connection.
func (q *qp) deliver(to *cq, c *rnic.Completion) {
	d := &q.deliveries
	c.QP = q.number
	d.under.Add(1)
	if !d.connecting.Load() || !d.keep(to, c) {
		q.put(to, c)
	}
	d.under.Add(-1)
}

// put adds a completion to its queue, unless the queue pair is destroyed.
func (q *qp) put(to *cq, c *rnic.Completion) {
	if (q.gone.Load() || !to.add(c)) && q.srq != nil && c.Op == rnic.OpRecv {
		q.srq.giveBack(uint32(c.ID))
	}
}

// keep says whether the queue pair connects, and keeps the completion then.
func (d *deliveries) keep(to *cq, c *rnic.Completion) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	if !d.connecting.Load() {
		return false
	}
	d.kept = append(d.kept, keptCompletion{to, *c})
	return true
}

// keepWritten says whether the queue pair connects, and keeps it that the peer has written then.
func (d *deliveries) keepWritten() bool {
	if !d.connecting.Load() {
		return false
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.wrote = d.connecting.Load()
	return d.wrote
}

// connected is called when the program was told that there is a connection, or that there is none.
func (q *qp) connected() {
	d := &q.deliveries
	d.under.Add(1)
	d.mu.Lock()
	for i := range d.kept {
		q.put(d.kept[i].to, &d.kept[i].c)
	}
	wrote, some := d.wrote, len(d.kept) > 0
	d.kept, d.wrote = nil, false
	d.connecting.Store(false)
	d.mu.Unlock()
	d.under.Add(-1)
	if wrote && !q.gone.Load() {
		q.scq.written()
	}
	if some {
		q.engine.progress()
	}
}

// goAway is called when the program destroys the queue pair: when it returns no completion of it
// gets into a queue.
func (q *qp) goAway() {
	q.gone.Store(true)
	for q.deliveries.under.Load() != 0 {
		runtime.Gosched()
	}
}
