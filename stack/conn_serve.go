package stack

// output serves the connections touched so far, and returns how many segments were made.
// Connections that are touched while it runs, or that have more to send, are served in the next
// Turn.
func (p *Poller) output() int {
	p.tx.hopKnown = false
	before := p.n.Segments
	p.active, p.serving = p.serving[:0], p.active
	p.tx.last.octets = 0
	p.tx.share = p.shareOf(len(p.serving))
	for todo := p.serving; len(todo) > 0; {
		burst := todo[:min(len(todo), p.cfg.BurstMax)]
		todo = todo[len(burst):]
		if p.table.n >= prefetchMin {
			p.prefetch(burst)
		}
		for _, i := range burst {
			p.serve(&p.slab.conns[i])
		}
	}
	return int(p.n.Segments - before)
}

// shareOf is how many segments each of n connections may send in one Turn.
func (p *Poller) shareOf(n int) int {
	if p.cfg.SegmentsMax > 0 {
		return p.cfg.SegmentsMax
	}
	all := min(burstsPerTurnMax*p.cfg.BurstMax, turnOctetsMax/p.cfg.MTU)
	return max(p.cfg.BurstMax, all/max(1, n))
}

// serve does all that one connection has waiting.
func (p *Poller) serve(c *Conn) {
	c.marks &^= markActive
	if c.phase == phaseFree {
		return
	}
	p.applyMarks(c)
	p.followPath(c)
	more, waits := p.transmit(c, p.release(c))
	if len(p.serving) == 1 && !p.tx.blocked { // what follows is bookkeeping: no other connection's frames are waited for
		p.flush()
	}
	if ev := c.tcp.TakeEvents(); ev != 0 {
		p.events(c, ev)
	}
	if c.phase == phaseFree {
		return
	}
	if more {
		p.touch(c)
	}
	if c.tcp.WaitsForMemory() {
		p.n.MemoryWaits++
		waits = true
	}
	if waits {
		p.awaitBufs(c)
	}
	p.timers.arm(c.index, c.due())
}

// applyMarks does what was asked for by marks.
func (p *Poller) applyMarks(c *Conn) {
	if c.marks&markWindow != 0 {
		c.marks &^= markWindow
		c.tcp.SetReceiveWindow(int(c.window))
	}
	if c.marks&(markAbort|markAbortDone) == markAbort {
		c.marks |= markAbortDone
		c.tcp.Abort(p.now)
		return
	}
	if c.marks&(markFin|markFinDone) == markFin && c.phase == phaseOpen {
		c.marks |= markFinDone
		c.tcp.CloseSend(p.now)
	}
}

// due is when c next wants to be called: tcp's deadline or the Upper's timer.
func (c *Conn) due() int64 {
	at := c.tcp.Deadline()
	if c.timerAt != 0 && c.timerAt < at {
		at = c.timerAt
	}
	return at
}
