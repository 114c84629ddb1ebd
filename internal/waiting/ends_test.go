package waiting

// end is one host of an exchange: an engine, which is a Poller, and a program.
type end struct {
	m      *machine
	peer   *end
	poller *Poller
	engine *thread
	prog   *thread // nil: the program is a goroutine on the engine's thread
	app    func(t *thread) bool

	dozing  bool // the device is to interrupt
	bell    bool // and so is the bell
	posted  int  // by the program, and not seen by the engine
	wire    int  // from the peer, and not seen by the engine
	here    int  // what the program may see
	taken   int
	counted Turned
	crowded bool
	waiting bool // the program waits for completions
}

// turn is a Turn of the engine.
func (e *end) turn(t *thread) (work bool) {
	posted, wire := e.posted, e.wire
	e.posted, e.wire = 0, 0
	if posted+wire == 0 {
		t.run(turnNs)
		return false
	}
	t.run(workNs + int64(posted+wire)*100)
	if posted > 0 {
		e.counted.Asked++
		e.peer.wire += posted
		if e.peer.dozing {
			e.peer.dozing = false
			e.peer.engine.wake(t)
		}
	}
	if wire > 0 {
		e.counted.Arrivals++
		e.counted.Frames++
		e.here += wire
		if e.waiting && e.prog != nil {
			e.waiting = false
			e.prog.wake(t)
		}
	}
	return true
}

// run is the engine's thread.
func (e *end) run(t *thread) {
	for {
		e.counted.Now = e.m.now + 1
		e.counted.Work = e.turn(t)
		next := e.poller.After(e.counted)
		e.crowded = e.poller.Crowded(e.counted.Now)
		switch next.Step {
		case Relax:
			t.run(1000)
		case Let:
			for e.app != nil && e.app(t) {
			}
			t.run(100)
		case Yield:
			t.yield()
		case Nap:
			t.sleep(next.Ns)
		case Doze:
			e.doze(t, next.Ns)
		}
	}
}

func (e *end) doze(t *thread, deafNs int64) {
	until := e.m.now + 100_000_000
	e.dozing, e.bell = true, deafNs == 0
	if deafNs != 0 {
		until = e.m.now + deafNs
	}
	slept := !e.turn(t)
	if slept {
		t.block(until)
	}
	e.poller.Dozed(slept, deafNs == 0 && !e.bell)
	e.dozing, e.bell = false, false
}

// post is called by the program.
func (e *end) post(t *thread) {
	t.run(200)
	e.posted++
	if e.bell {
		e.bell, e.dozing = false, false
		e.engine.wake(t)
	}
}

// take is what the program does to look for one from the peer.
func (e *end) take(t *thread) bool {
	t.run(100)
	if e.here == e.taken {
		return false
	}
	e.taken++
	return true
}

// await is how a program waits for the next one.
type await func(e *end, t *thread)

// looks at memory, and never calls anything.
func looks(e *end, t *thread) {
	for !e.take(t) {
	}
}

// waits for an event.
func waits(e *end, t *thread) {
	for !e.take(t) {
		e.waiting = true
		t.run(300)
		if e.here == e.taken {
			t.block(never)
		}
		e.waiting = false
	}
}

// polls a completion queue, as verbs/shim/poll.c does.
func (g *givesWay) polls(e *end, t *thread) {
	for vain := 0; !e.take(t); {
		if vain++; vain > VainMax {
			g.giveWay(e, t)
		}
	}
	g.shared = 0
}

type givesWay struct {
	shared, doublings int
	from              int64
}

func (g *givesWay) giveWay(e *end, t *thread) {
	before := e.m.now
	if before < g.from || g.shared >= SharedMax {
		g.shared = SharedMax - 1
		e.waiting = true
		t.run(timerNs)
		if e.here == e.taken && !t.block(e.m.now+AwaitNs<<g.doublings) {
			g.doublings = min(g.doublings+1, AwaitDoublings)
		} else {
			g.doublings = max(g.doublings-1, 0)
		}
		e.waiting = false
		return
	}
	t.yield()
	switch took := e.m.now - before; {
	case took > YieldLongNs:
		g.from = before + took*YieldShare
	case took < YieldSharedNs && !e.crowded:
		g.shared = 0
	default:
		g.shared++
	}
}
