package transport

import (
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/rouse"
	"github.com/rnicd/rnicd/internal/waiting"
	"github.com/rnicd/rnicd/stack"
)

// Loop drives the connections of an Adapter over kernel sockets, as a stack.Poller drives those
// over our TCP: it polls the sockets and calls the Uppers. One goroutine at a time does, whichever
// holds the loop:
//
//	an application's that polls a completion queue     Drive: one Turn, if nobody else is in one
//	the loop's own, while there are connections        run: Turns, and sleeps in between
//
// The own one leaves the sockets to an application that polls, and looks now and then whether it
// still does. Without one it sleeps in an epoll of all sockets and the bell.
//
// Connections are the holder's, and it calls everything that a Poller's goroutine calls. Wake,
// Submit and Drive are for any goroutine.
type Loop struct {
	cfg    LoopConfig
	held   atomic.Uint32 // 1: somebody turns
	vainly atomic.Uint64 // Turns that Drive has made and that found nothing
	shut   atomic.Uint64 // calls of Drive that found somebody in a Turn
	waited atomic.Uint64 // vain when somebody began to wait for a completion
	more   atomic.Bool   // funcs has some
	rang   atomic.Pointer[member]
	rouser rouse.Rouser

	mu      sync.Mutex
	funcs   []func() // submitted
	running bool     // run is there, and with it sockets and rouser

	// Of the holder.
	now     int64 // of the Turn
	turns   uint64
	toRead  bool // the Turn has yet to read
	sockets sockets
	conns   int         // that are not over
	ready   []*member   // to be read from
	active  []*member   // with something to send, or to end
	hot     *member     // that octets came from last
	idly    int         // Turns in a row that read nothing
	unseen  int         // and that looked at the hot one alone
	out     *segments   // to be sent now; nil: to be made
	spare   []*segments // more of them
	bufs    bufPools
	// room for the next Turn's lists
	readyRoom, activeRoom []*member
	funcsRoom             []func()
	// room of a read, and of a Pull
	first [startupReadMax]byte
	vec   recvVec
	slots [readSlots][]byte
	dst   [stack.PullMax][]byte
}

// LoopConfig is what a Loop has from the beginning.
type LoopConfig struct {
	Start  time.Time   // where its time begins
	OnTurn func() int  // called in each Turn: how much work it found. nil: nothing
	Bell   *rouse.Bell // by which threads that run no Go wake the loop; nil: there are none
}

// NewLoop makes one. With OnTurn it runs for as long as the process does, else while there are
// connections.
func NewLoop(cfg LoopConfig) (*Loop, error) {
	l := &Loop{cfg: cfg}
	l.rouser.Init(cfg.Bell)
	l.rouser.MaxNs = asleepMaxNs
	if cfg.OnTurn == nil {
		return l, nil
	}
	l.hold()
	defer l.release()
	return l, l.begin()
}

// Drive makes one Turn, unless somebody is in one, and says whether that found work. For who polls;
// any goroutine.
func (l *Loop) Drive() bool {
	if !l.held.CompareAndSwap(0, 1) {
		l.shut.Add(1)
		return false
	}
	work := l.turn(true, l.looks())
	if work == 0 {
		l.vainly.Add(1)
	}
	// run is to end, or to go on with what is left, for the caller may not come back
	own := l.idle() || len(l.active) > 0 || len(l.ready) > 0
	l.release()
	l.settle()
	if own || l.rang.Load() != nil { // or somebody rang too late for this Turn
		l.rouser.Rouse()
	}
	if l.more.Load() || l.vain() == l.waited.Load() { // run may rest because of this Turn alone
		l.rouser.EndRest()
	}
	return work > 0
}

// vain is how many of callers' Turns were in vain for them. Any goroutine.
//
// One that polls all through a long Turn of the loop's own would make it, too: so many calls in
// vain count as one. Few do not, for one that has posted something does not poll for the answer.
func (l *Loop) vain() uint64 {
	return l.vainly.Load() + l.shut.Load()/shutShare + l.cfg.Bell.Polled()
}

const shutShare = 32

// Attend is called when somebody begins to wait for what he has polled for. Any goroutine.
func (l *Loop) Attend() {
	l.waited.Store(l.vain())
	l.rouser.EndRest()
}

// submit runs fn as the holder, soon. Any goroutine. It does not wait, except where the loop does
// not run: then the caller may be the holder.
func (l *Loop) submit(fn func()) {
	l.mu.Lock()
	l.funcs = append(l.funcs, fn)
	l.more.Store(true)
	running := l.running
	l.mu.Unlock()
	if running {
		l.rouser.EndRest()
		l.rouser.Rouse()
		return
	}
	l.settle()
}

// do runs fn as the holder, after what was submitted, and returns when it has. Any goroutine but
// the holder.
func (l *Loop) do(fn func()) {
	l.hold()
	if l.more.Load() {
		l.runFuncs()
	}
	fn()
	l.release()
	l.settle()
	l.rouser.EndRest() // it may have left something to do
	l.rouser.Rouse()
}

// settle runs what was submitted while the loop did not run. Who lets go of a loop calls it.
func (l *Loop) settle() {
	for l.more.Load() && !l.runs() && l.held.CompareAndSwap(0, 1) {
		l.turn(false, false)
		l.release()
	}
}

func (l *Loop) runs() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

func (l *Loop) clock() int64 { return int64(time.Since(l.cfg.Start)) }

func (l *Loop) hold() {
	for !l.held.CompareAndSwap(0, 1) {
		runtime.Gosched()
	}
}

func (l *Loop) release() { l.held.Store(0) }

// wake has s send soon. Any goroutine. See stack's doorbells.
func (l *Loop) wake(s *member) {
	if s.rung.Load() || s.rung.Swap(true) {
		return
	}
	for {
		last := l.rang.Load()
		s.rungNext = last
		if l.rang.CompareAndSwap(last, s) {
			break
		}
	}
	if l.held.Load() == 0 { // else the holder looks, or looks again
		l.rouser.Rouse()
	}
}

// begin starts run, if it is not there. The holder.
func (l *Loop) begin() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.running {
		return nil
	}
	if err := l.sockets.open(); err != nil {
		return err
	}
	if err := l.rouser.Prepare(&l.sockets, l.cfg.Bell); err != nil {
		l.sockets.close()
		return err
	}
	l.running = true
	go l.run()
	return nil
}

// idle says that there is no reason to run. The holder.
func (l *Loop) idle() bool { return l.conns == 0 && l.cfg.OnTurn == nil }

// ends ends run, if nothing is left for it. The holder.
func (l *Loop) ends() bool {
	if !l.idle() {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.funcs) > 0 {
		return false
	}
	l.running = false
	l.rouser.Close()
	l.sockets.close()
	l.bufs.close()
	l.hot, l.out, l.spare = nil, nil, nil
	return true
}

// run turns while nobody else does, until there is no connection.
func (l *Loop) run() {
	if l.cfg.Bell != nil {
		runtime.LockOSThread() // for good: the process ends before
		rouse.Pollers.Add(1)   // else it lets others have its processor while it sleeps
		defer rouse.Pollers.Add(-1)
	}
	for r := newLoopRunner(l); !r.over; {
		r.step()
	}
	l.settle()
}

// turn does what there is to do, and says how much that was. It reads only if read is set: a sleep
// ends at once where there is something to read. look: at all sockets, not only at those that are
// known to have something.
func (l *Loop) turn(read, look bool) (work int) {
	l.now = l.clock()
	l.turns++
	if l.cfg.OnTurn != nil {
		work += l.cfg.OnTurn()
	}
	if l.more.Load() {
		work += l.runFuncs()
	}
	if l.rang.Load() != nil { // before the read, for somebody may wait for the answer
		work += l.serveRung()
		l.toRead = read
		l.serveActive()
		l.toRead = false
	}
	if read && l.conns > 0 || len(l.ready) > 0 {
		work += l.read(look)
	}
	return work + l.serveActive()
}

// runFuncs runs what was submitted.
func (l *Loop) runFuncs() int {
	l.mu.Lock()
	fns := l.funcs
	l.funcs, l.funcsRoom = l.funcsRoom[:0], nil
	l.more.Store(false)
	l.mu.Unlock()
	for _, fn := range fns {
		fn()
	}
	clear(fns)
	l.funcsRoom = fns
	return len(fns)
}

// serveRung has those connections send whose Wake was called, in that order.
func (l *Loop) serveRung() (n int) {
	var first *member
	for s := l.rang.Swap(nil); s != nil; {
		next := s.rungNext
		s.rungNext, first = first, s
		s = next
	}
	for s := first; s != nil; n++ {
		next := s.rungNext
		s.rungNext = nil
		s.rung.Store(false) // what is posted from now on rings again
		l.activate(s)
		s = next
	}
	return n
}

// serveActive has connections send what they have, and end. Those that were not done are active
// again.
func (l *Loop) serveActive() int {
	all := l.active
	l.active = l.activeRoom[:0]
	for _, s := range all {
		s.active = false
		s.conn.serve()
	}
	clear(all)
	l.activeRoom = all
	return len(all)
}

// looks says whether a Turn is to look at all sockets. To ask the one that has had something a
// moment ago whether it has more costs no more than to ask for all, and saves the read after that.
func (l *Loop) looks() bool {
	return l.hot == nil || l.idly&looksShare == looksShare || l.unseen >= unseenMax
}

const (
	looksShare = 3  // how many Turns without a look there are to one with, where nothing comes
	unseenMax  = 15 // and at most, where the hot one has something each time
)

// read reads what has come, and says from how many sockets.
func (l *Loop) read(look bool) (n int) {
	if look || l.hot == nil || len(l.ready) > 0 {
		l.look()
		l.unseen = 0
	} else {
		l.list(l.hot)
		l.unseen++
	}
	all := l.ready
	l.ready = l.readyRoom[:0]
	for _, s := range all {
		s.listed = false
		if s.conn.receive() {
			l.hot = s
			n++
		}
	}
	clear(all)
	l.readyRoom = all
	if l.idly++; n > 0 {
		l.idly = 0
	}
	return n
}

// enter has l drive s from now on. Any goroutine but the holder.
func (l *Loop) enter(s *member) (err error) {
	l.do(func() {
		if err = l.begin(); err == nil {
			err = l.sockets.add(s)
		}
		if err == nil {
			l.conns++
		}
	})
	return err
}

// leave is the end of that. The socket is closed, or given away, afterwards.
func (l *Loop) leave(s *member) {
	l.sockets.remove(s)
	l.conns--
	if l.hot == s {
		l.hot = nil
	}
}

// segments are those to be filled next.
func (l *Loop) segments() *segments {
	if l.out == nil {
		n := len(l.spare) - 1
		if n < 0 {
			l.out = newSegments()
		} else {
			l.out, l.spare = l.spare[n], l.spare[:n]
		}
	}
	return l.out
}

// keep has w be filled again, if there are not enough.
func (l *Loop) keep(w *segments) {
	if len(l.spare) < spareMax {
		l.spare = append(l.spare, w)
	}
}

// activate has s send what it has, or end, in this Turn or the next.
func (l *Loop) activate(s *member) {
	if !s.active {
		s.active = true
		l.active = append(l.active, s)
	}
}

// look lists the connections of which something has come, and makes those active that can send
// again.
func (l *Loop) look() {
	events, is := l.sockets.wait()
	if !is {
		l.reopen()
		return
	}
	for _, ev := range events {
		s := l.sockets.all[ev.Fd]
		if s == nil {
			continue
		}
		if ev.Events&unix.EPOLLOUT != 0 && s.blocked {
			l.activate(s)
		}
		if ev.Events&^unix.EPOLLOUT != 0 {
			s.partly = s.partly || ev.Events&^(unix.EPOLLIN|unix.EPOLLOUT) != 0
			l.list(s)
		}
	}
}

// reopen goes on where the program has closed the epoll by mistake, in this Turn or a later one.
func (l *Loop) reopen() {
	failed, err := l.sockets.reopen()
	if err != nil {
		return
	}
	for _, s := range failed { // their descriptors are gone, too: reading says so
		l.list(s)
	}
	l.rouser.Another()
}

// list has s be read from.
func (l *Loop) list(s *member) {
	if !s.listed {
		s.listed = true
		l.ready = append(l.ready, s)
	}
}

// loopRunner is what run goes by between Turns. It sleeps as soon as there is nothing to do: the
// kernel wakes a sleeper at once, and takes a core from a thread that computes for that, but not
// for one that spins or has yielded.
type loopRunner struct {
	*Loop
	shares bool // its thread is other goroutines', too
	beside waiting.Beside
	inTurn int64 // since when somebody else is in a Turn, as far as is known; 0: nobody is
	over   bool  // there is nothing left
	// both made once: each is an allocation
	stay func() bool
	look func() int
}

func newLoopRunner(l *Loop) *loopRunner {
	r := &loopRunner{Loop: l, shares: l.cfg.Bell == nil}
	r.stay = func() bool {
		r.hear()
		return r.waitsForTurn() || l.vain() != l.waited.Load() && !l.more.Load()
	}
	r.look = r.lastLook
	return r
}

// lastLook is the Turn before a sleep. Whoever called wake while it lasted has left it to us.
func (r *loopRunner) lastLook() int {
	work := r.turnOnce(false)
	if r.rang.Load() != nil {
		work++
	}
	return work
}

// longTurnNs is how long a Turn takes at most whose goroutine has a processor: one that takes
// longer may need ours.
const longTurnNs = 20_000

// waitsForTurn says that somebody else is in a Turn that takes long. It calls EndRest afterwards.
func (r *loopRunner) waitsForTurn() bool {
	return r.held.Load() != 0 && r.inTurn != 0 && r.clock()-r.inTurn >= longTurnNs
}

// hear calls Attend for threads that run no Go.
func (r *loopRunner) hear() {
	if r.cfg.Bell.Waited() {
		r.waited.Store(r.Loop.vain())
	}
}

// step is a Turn and a sleep after one in vain, or a rest beside those who drive.
func (r *loopRunner) step() {
	l := r.Loop
	r.hear()
	now, busy := l.clock(), l.held.Load() != 0
	switch {
	case !busy:
		r.inTurn = 0
	case r.inTurn == 0:
		r.inTurn = now
	}
	if ns := r.beside.Rest(now, l.vain(), l.waited.Load(), busy); ns > 0 {
		l.rouser.Rest(now, ns, r.shares, r.stay)
		return
	}
	work := r.turnOnce(true)
	r.beside.Turned(l.clock())
	if work == 0 && !r.over {
		l.rouser.Sleep(r.look, r.deadline, r.shares, 0)
	}
}

// turnOnce makes a Turn, and reads in that if read is set. Where somebody else is in one there is
// no time to sleep.
func (r *loopRunner) turnOnce(read bool) (work int) {
	l := r.Loop
	if !l.held.CompareAndSwap(0, 1) {
		return 1
	}
	defer l.release()
	work = l.turn(read, true)
	switch {
	case work > 0:
	case read:
		r.over = l.ends()
	case l.idle():
		work++ // and it does not end here: the sleep would use descriptors that are closed
	}
	return work
}

// deadline is for Rouser.Sleep: the loop has no timer of its own.
func (r *loopRunner) deadline(maxNs int64) (now, at int64) {
	now = r.Loop.clock()
	return now, now + maxNs
}
