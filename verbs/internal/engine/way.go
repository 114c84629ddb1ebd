package engine

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/rnicd/rnicd/internal/awake"
	"github.com/rnicd/rnicd/internal/waiting"
	"github.com/rnicd/rnicd/rnic"
)

// way is how a queue pair gets to its peer that is connected by number, and what it is without a
// peer.
//
//	        ConnectQP         a life in service       its end
//	unset ------------> seeking ------------> served ------------> lost
//	  ^                    |  no answer           | an error         | no answer
//	  |  ResetQP           v                      v                  v
//	  +----------------- over <------------------------------------------ AbortQP, from anywhere
//
// unset is RESET and INIT of the verbs, over is ERR; the others are RTR and RTS. Of two ends, that
// with the smaller name connects (seek); the other one waits for it (offer). One that is lost keeps
// its receive buffers, as a reliable connection does, which hears of its peer's end when nothing
// answers a request. Those that the connection leaves are held for so long.
type way struct {
	q      *qp
	mu     sync.Mutex
	ending turns // of end, reset, leave and seek

	state     wayState
	era       uint32 // resets: an end that was on its way when one came is of what was before
	ended     bool   // end has waited for all lives: nothing of them completes any more
	own, peer name
	reads     int                  // of the peer's that are served at a time
	stop      context.CancelFunc   // of who connects
	seeker    chan struct{}        // closed when that has ended; nil: nobody
	lives     []*life              // that have not ended
	acceptor  chan struct{}        // closed when a Request was accepted, or not; nil: there is none
	waiting   []*asker             // Requests
	challenge [16]byte             // that the next Request must answer; zero: not drawn yet
	answers   [16]byte             // the peer's challenge, for who connects; zero: not heard yet
	current   atomic.Pointer[life] // that sends; nil: not in service
	terminate atomic.Uint32        // wq.CQE's Terminate: of the last that has ended a life
	failed    atomic.Bool          // a completion has told why, or the program has asked for the end
	timer     *awake.Timer         // until requests are unanswered
	retry     rnic.Retry           // after what time; how long a receiver may be not ready
	held      []rnic.Completion    // of requests that the peer has left unanswered
	heardOf   atomic.Bool          // communication was established, or no longer needs to be told
	kept      []uint64             // receive buffers that a life has given back
	flushing  sync.Mutex           // of kept and the rings, in no life
}

// turns is a lock that is held while connections end. The clock of testing/synctest goes on while a
// goroutine waits for it, unlike for a sync.Mutex.
type turns chan struct{}

func newTurns() turns { return make(turns, 1) }

func (t turns) take() { t <- struct{}{} }
func (t turns) give() { <-t }

type wayState uint8

const (
	wayUnset wayState = iota
	waySeeking
	wayServed
	wayLost
	wayOver
	wayManaged // by the connection manager
	wayGone    // destroyed
)

// in says whether it is in a state.
func (w *way) in(s wayState) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.state == s
}

// move goes from one state to another; false: it is not in from.
func (w *way) move(from, to wayState) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != from {
		return false
	}
	w.state = to
	return true
}

// connectQP is the move to RTR.
func (e *Engine) connectQP(c *call) error {
	q, err := find[*qp](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	if !e.roce || len(c.data) != 32 || q.rnic.Load() != nil {
		return syscall.EINVAL
	}
	own, peer := name{number: q.number}, name{number: uint32(c.arg[1])}
	copy(own.gid[:], c.data)
	copy(peer.gid[:], c.data[16:])
	if !e.allows(peer.addr()) {
		e.tellError("queue pair 0x%06x to %v: %v", own.number, peer, notAllowed)
		return syscall.EACCES
	}
	return q.way.seek(own, peer, int(min(c.arg[2], readDepthMax)))
}

// seek begins to connect.
func (w *way) seek(own, peer name, reads int) error {
	w.ending.take() // a reset on another thread of the program is over first
	defer w.ending.give()
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.state != wayUnset {
		return syscall.EINVAL
	}
	w.state, w.own, w.peer, w.reads = waySeeking, own, peer, reads
	w.heardOf.Store(false)
	w.answers = [16]byte{}
	if own.compare(peer) <= 0 {
		ctx, stop := context.WithCancel(context.Background())
		w.stop, w.seeker = stop, make(chan struct{})
		go w.connect(ctx, w.era, w.seeker)
	}
	w.decideAll()
	return nil
}

// initiates says whether this end connects.
func (w *way) initiates() bool { return w.own.compare(w.peer) <= 0 }

// toItself says whether it is connected to itself.
func (w *way) toItself() bool { return w.own == w.peer }

// begin makes a life.
func (w *way) begin(sends, recvs bool) (*life, error) {
	l, err := w.q.newLife(sends, recvs)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	if w.state != waySeeking && w.state != wayServed {
		w.mu.Unlock()
		l.rnic.Abort()
		return nil, context.Canceled
	}
	w.lives = append(w.lives, l)
	l.rnic.SetRetry(w.retry)
	w.mu.Unlock()
	l.permit() // in case it was permitted something else meanwhile
	return l, nil
}

// serve puts l, which has a connection, into service. False: it has ended already, or must.
func (w *way) serve(l *life) bool {
	e := w.q.engine
	w.mu.Lock()
	if !slices.Contains(w.lives, l) || w.state != waySeeking && w.state != wayServed {
		w.mu.Unlock()
		l.rnic.Abort()
		return false
	}
	if l.sends {
		w.state = wayServed
		w.current.Store(l)
	}
	w.stopTimer()
	w.mu.Unlock()
	e.tellLog("connected by number, 0x%06x with %v", w.own.number, w.peer)
	l.rnic.Doorbell() // for what was posted meanwhile
	return true
}

// doorbell is rung after requests were posted; after ERR after receive buffers, too. It does not
// block.
func (w *way) doorbell() {
	if l := w.current.Load(); l != nil {
		l.rnic.Doorbell()
		return
	}
	w.mu.Lock()
	switch {
	case w.state == waySeeking && w.timer == nil && w.retry.Unanswered > 0 && w.q.requestWaits():
		era := w.era
		w.timer = awake.AfterFunc(w.retry.Unanswered, func() { w.unanswered(era) })
	case w.state == wayServed: // meanwhile
		l := w.current.Load()
		w.mu.Unlock()
		if l != nil {
			l.rnic.Doorbell()
		}
		return
	case w.state == wayLost && w.q.requestWaits():
		w.awaitLost()
	}
	ended := w.ended
	w.mu.Unlock()
	if ended { // before that, end will flush it: after what was posted earlier
		w.flush()
	}
}

// now is the era.
func (w *way) now() uint32 {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.era
}

// end moves to ERR, unless a reset has come since era: everything that was posted, or is from now
// on, completes, and the program is told of kind, if it is not 0. Any goroutine but one that drives
// a connection.
func (w *way) end(era, kind uint32) {
	w.ending.take()
	defer w.ending.give()
	w.mu.Lock()
	if w.state == wayGone || w.era != era {
		w.mu.Unlock()
		return
	}
	w.q.setOver(1)
	w.state = wayOver
	lives := w.quit()
	w.mu.Unlock()
	w.endAll(lives)
	w.mu.Lock()
	first := !w.ended
	w.ended = true
	w.mu.Unlock()
	if kind != 0 {
		w.q.ctx.tell(kind, &w.q.subject)
	}
	w.flush()
	if w.q.srq != nil && first {
		w.q.ctx.tell(eventQPLastWQE, &w.q.subject)
	}
}

// quit stops everything, except for lives. w is locked.
func (w *way) quit() (lives []*life) {
	w.current.Store(nil)
	if w.stop != nil {
		w.stop()
	}
	w.stopTimer()
	lives, w.lives = w.lives, nil
	return lives
}

// endAll returns when nobody connects or accepts any more and lives have ended.
func (w *way) endAll(lives []*life) {
	w.mu.Lock()
	acceptor := w.acceptor
	w.mu.Unlock()
	for _, l := range lives {
		l.end()
	}
	for _, done := range [...]chan struct{}{w.seeker, acceptor} {
		if done != nil {
			<-done
		}
	}
}

// abort is the program's move to ERR.
func (w *way) abort() {
	w.failed.Store(true)
	w.end(w.now(), 0)
}

// reset is the program's move to RESET: what was posted is forgotten. It posts nothing meanwhile.
func (w *way) reset() {
	w.ending.take()
	defer w.ending.give()
	w.mu.Lock()
	if w.state == wayGone {
		w.mu.Unlock()
		return
	}
	w.failed.Store(true)
	w.state, w.ended = wayUnset, false
	w.era++
	lives := w.quit()
	w.mu.Unlock()
	w.endAll(lives)
	q := w.q
	q.engine.whenQuiet(func() {})
	w.flushing.Lock()
	defer w.flushing.Unlock()
	w.giveBack()
	w.mu.Lock()
	w.stop, w.seeker, w.held = nil, nil, nil
	w.mu.Unlock()
	w.terminate.Store(0)
	q.bound = false
	q.drain.off()
	q.rest, q.underway, q.abort = nil, waiting.Underway{}, sync.Once{}
	q.sends.restart()
	q.recvs.restart()
	q.setOver(0)
	w.failed.Store(false)
}

// keep is for a receive buffer that a life has given back.
func (w *way) keep(id uint64) {
	w.flushing.Lock()
	defer w.flushing.Unlock()
	if w.kept = append(w.kept, id); w.q.gone.Load() {
		w.giveBack()
	}
}

// giveBack forgets the receive buffers that were kept: those of a shared receive queue are the
// program's again. w.flushing is locked.
func (w *way) giveBack() {
	for _, id := range w.kept {
		if w.q.srq != nil {
			w.q.srq.giveBack(uint32(id))
		}
	}
	w.kept = nil
}

// heard is called when the first message may have come.
func (w *way) heard() {
	if !w.heardOf.Load() && !w.heardOf.Swap(true) {
		w.q.ctx.tell(eventCommEst, &w.q.subject)
	}
}

// setOver says whether posted receive buffers need a doorbell.
func (q *qp) setOver(over uint32) {
	atomic.StoreUint32(&q.sends.shared.Over, over)
	atomic.StoreUint32(&q.recvs.shared.Over, over)
}

// resetQP is the move to RESET.
func (e *Engine) resetQP(c *call) error {
	q, err := find[*qp](&e.objects, c.arg[0])
	if err != nil {
		return err
	}
	if !e.roce || q.rnic.Load() != nil {
		return syscall.EOPNOTSUPP
	}
	q.way.reset()
	return nil
}

// leave is the program's end of the queue pair: it returns the connections, of which nothing
// completes any more because q is gone.
func (w *way) leave() []*rnic.QueuePair {
	w.ending.take()
	defer w.ending.give()
	w.mu.Lock()
	w.state = wayGone
	var all []*rnic.QueuePair
	for _, l := range w.quit() {
		all = append(all, l.rnic)
	}
	for _, a := range slices.Clone(w.waiting) {
		w.forget(a)
	}
	w.mu.Unlock()
	w.flushing.Lock()
	defer w.flushing.Unlock()
	w.giveBack()
	return all
}

// receiver is the one that carries what the peer asks for; nil: there is none.
func (w *way) receiver() *rnic.QueuePair {
	if l := w.current.Load(); l != nil && l.recvs {
		return l.rnic
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lives {
		if l.recvs {
			return l.rnic
		}
	}
	return nil
}

// ends are the connections there are.
func (w *way) ends() (all []*rnic.QueuePair) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, l := range w.lives {
		all = append(all, l.rnic)
	}
	return all
}
