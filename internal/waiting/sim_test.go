package waiting

import (
	"iter"
	"slices"
)

// A machine in virtual time: cores that run threads, as Linux 6.18 runs them, by what
// docs/results/verbs.md measured. A thread is a function that calls run, yield, sleep, block and
// wake; between these calls it takes no time.
const (
	turnNs    = 150       // a Turn without work
	workNs    = 700       // one with
	yieldNs   = 250       // where no other thread wants the core
	switchNs  = 1200      // from one thread to another
	wakeNs    = 1300      // waking a thread of the same core
	wakeFarNs = 8000      // of another one: an interrupt between processors
	farNs     = 6000      // until that one runs
	timerNs   = 6000      // a sleep with a timeout of its own: into it, and out of it
	tickNs    = 4_000_000 // after which a thread that computes gives way
)

type machine struct {
	now   int64
	cores []*core
	all   []*thread
}

type core struct {
	m       *machine
	running *thread
	ready   []*thread
	free    int64 // when the running thread's operation is over
	slice   int64 // since when it runs
}

type thread struct {
	c       *core
	resume  func()
	stop    func()
	yielded func(struct{}) bool
	at      int64 // if it sleeps: until when
	asleep  bool
	pending bool  // a wake-up that came before block
	left    int64 // of an operation that was interrupted
	used    int64 // of its core
	patient bool  // does not preempt when it wakes up
}

const never = int64(1) << 62

func newMachine(cores int) *machine {
	m := &machine{}
	for range cores {
		m.cores = append(m.cores, &core{m: m, free: never})
	}
	return m
}

// start makes a thread of body on a core.
func (m *machine) start(at int, body func(t *thread)) *thread {
	t := &thread{c: m.cores[at], at: never}
	next, stop := iter.Pull(func(yield func(struct{}) bool) {
		t.yielded = yield
		defer func() {
			if r := recover(); r != nil && r != any(t) {
				panic(r)
			}
		}()
		body(t)
		t.c.leave()
	})
	t.resume, t.stop = func() { _, _ = next() }, stop
	t.c.ready, m.all = append(t.c.ready, t), append(m.all, t)
	return t
}

// pause hands the processor's time on to the machine.
func (t *thread) pause() {
	if !t.yielded(struct{}{}) {
		panic(t) // the end of the machine
	}
}

// run takes so much of the core.
func (t *thread) run(ns int64) {
	t.c.free = t.c.m.now + ns
	t.pause()
}

func (t *thread) yield() {
	c := t.c
	if len(c.ready) == 0 {
		t.run(yieldNs)
		return
	}
	c.ready = append(c.ready, t)
	c.leave()
	t.pause()
}

// sleep lasts for ns.
func (t *thread) sleep(ns int64) {
	t.run(timerNs)
	t.suspend(t.c.m.now + ns)
	t.run(timerNs)
}

// block lasts until a wake-up, or the time; it says whether it was the first.
func (t *thread) block(until int64) (woken bool) {
	if !t.pending {
		t.suspend(until)
	}
	woken, t.pending = t.pending, false
	return woken
}

func (t *thread) suspend(until int64) {
	t.asleep, t.at = true, max(until, t.c.m.now+1)
	t.c.leave()
	t.pause()
}

// wake is called by thread by.
func (t *thread) wake(by *thread) {
	if t.pending {
		return
	}
	t.pending = true
	if !t.asleep {
		return
	}
	if t.c == by.c {
		t.at = by.c.m.now + wakeNs
		by.run(wakeNs)
		return
	}
	t.at = min(t.at, by.c.m.now+wakeFarNs+farNs)
	by.run(wakeFarNs)
}

// leave has the next thread run.
func (c *core) leave() {
	c.account()
	c.running, c.free = nil, never
}

func (c *core) account() {
	if c.running != nil {
		c.running.used += c.m.now - c.slice
	}
	c.slice = c.m.now
}

// pick begins or goes on with a thread that is ready.
func (c *core) pick() {
	t := c.ready[0]
	c.ready = c.ready[1:]
	c.running, c.slice = t, c.m.now
	c.free = c.m.now + switchNs + t.left
	t.left = 0
}

// preempt makes the running thread ready again: the next one, or after the others if its slice is
// over.
func (c *core) preempt(over bool) {
	c.running.left = c.free - c.m.now
	if over {
		c.ready = append(c.ready, c.running)
	} else {
		c.ready = slices.Insert(c.ready, 0, c.running)
	}
	c.leave()
}

// until runs the machine for so long.
func (m *machine) until(end int64, done func() bool) {
	for m.now < end && !done() {
		m.step(end)
	}
}

// end ends all threads.
func (m *machine) end() {
	for _, t := range m.all {
		t.stop()
	}
}

func (m *machine) step(end int64) {
	for _, c := range m.cores {
		if c.running == nil && len(c.ready) > 0 {
			c.pick()
		}
	}
	next, which := end, (*core)(nil)
	for _, c := range m.cores {
		if c.running != nil && c.free < next {
			next, which = c.free, c
		}
		if c.running != nil && len(c.ready) > 0 && c.slice+tickNs < next {
			next, which = c.slice+tickNs, c
		}
	}
	var sleeper *thread
	for _, t := range m.all {
		if t.asleep && t.at < next {
			next, sleeper = t.at, t
		}
	}
	m.now = max(m.now, next)
	switch {
	case sleeper != nil:
		m.rouse(sleeper)
	case which == nil:
	case which.free > m.now:
		which.preempt(true)
	default:
		which.running.resume()
	}
}

// rouse makes a sleeper ready: it comes first, as it has slept.
func (m *machine) rouse(t *thread) {
	t.asleep, t.at = false, never
	c := t.c
	if t.patient {
		c.ready = append(c.ready, t)
		return
	}
	if c.running != nil {
		c.preempt(false)
	}
	c.ready = slices.Insert(c.ready, 0, t)
}
