package stack

// output serves the connections touched so far, then those that have more to send, in their turn,
// while the device takes frames. It returns how many segments were made. Connections that are
// touched while it runs are served in the next Turn.
func (p *Poller) output() int {
	before := p.n.Segments
	serving := p.active.take()
	p.sched.begin(&p.cfg, len(serving), p.tx.chunk < p.tx.connMax)
	p.tx.begin(p.sched.waiting() <= 1)
	for todo := serving; len(todo) > 0; {
		burst := todo[:min(len(todo), p.cfg.BurstMax)]
		todo = todo[len(burst):]
		if p.table.n >= prefetchMin {
			p.ahead.conns(burst)
		}
		for _, i := range burst {
			p.serve(&p.slab.conns[i])
		}
	}
	p.serveQueued()
	return int(p.n.Segments - before)
}

// serve does all that a touched connection has waiting, except octets that wait for their turn.
func (p *Poller) serve(c *Conn) {
	c.marks &^= markActive
	if c.phase == phaseFree {
		return
	}
	c.applyMarks(p.now)
	p.paths.follow(c)
	p.pressure.gave(c, p.release(c))
	waits := false
	s := &p.sched
	queued, held := c.marks&markQueued != 0, p.tx.refused > 0 || p.tx.blocked
	switch {
	case !held && (s.waiting() == 0 || queued && s.waiting() == 1): // as if there were no schedule
		if queued {
			s.remove(c)
		}
		waits = p.serveOctets(c, s.quantum, s.quantum)
	case !queued && s.credit(c) > 0:
		waits = p.serveFirst(c, held)
	default:
		if p.tx.sendControl(p.now, c) {
			p.active.add(c)
		}
		if !queued && c.phase == phaseOpen {
			s.add(c)
		}
	}
	// what follows is bookkeeping: no other connection's frames are waited for
	if len(p.active.serving) == 1 && !p.tx.blocked {
		p.tx.flush(p.now)
	}
	p.settle(c, waits)
}

// serveFirst serves c, which has sent less than others in this round, before those, and, where the
// device has refused frames of theirs, before these. A connection that has little to send never
// waits for its turn.
func (p *Poller) serveFirst(c *Conn, held bool) (waits bool) {
	credit := p.sched.credit(c)
	allow := min(credit, max(p.sched.octets, 1))
	if held {
		allow = min(allow, expressFrames*p.cfg.MTU)
	}
	p.tx.express = held
	waits = p.serveOctets(c, credit, allow)
	p.tx.express = false
	return waits
}

// serveOctets lets c, which stands in no list and has credit, send allow octets of it or so. With
// more to send it then stands in one.
func (p *Poller) serveOctets(c *Conn, credit, allow int) (waits bool) {
	end, waits := p.sender.transmit(p.now, c, allow, p.segmentsMax())
	c.round, c.credit = p.sched.round, int32(credit-(allow-p.sender.allow))
	p.sched.octets -= allow - p.sender.allow
	if end == sentAll {
		return waits
	}
	if end == usedSegments {
		c.credit = min(c.credit, 0)
	}
	p.sched.add(c)
	if end == heldUp && p.tx.express { // the next Turn sends at least what goes before octets
		p.active.add(c)
	}
	return waits
}

// serveQueued serves the connections that have more to send, in their turn, as long as the device
// takes frames and the Turn is not too long.
func (p *Poller) serveQueued() {
	s := &p.sched
	for ; s.waiting() > 0 && s.due > 0 && s.octets > 0 && s.segments > 0; s.due-- {
		if p.tx.refused > 0 {
			p.tx.flush(p.now)
		}
		if p.tx.blocked {
			p.n.TxWaits++
			return
		}
		c := s.next(p.slab.conns)
		if c.phase == phaseFree {
			s.served(c, false)
			continue
		}
		p.paths.follow(c)
		allow, before := min(int(c.credit), s.octets), p.n.Segments
		end, waits := p.sender.transmit(p.now, c, allow, min(p.segmentsMax(), s.segments))
		used := allow - p.sender.allow
		s.octets, s.segments = s.octets-used, s.segments-int(p.n.Segments-before)
		c.credit -= int32(used)
		if end == usedSegments && s.segments > 0 {
			c.credit = min(c.credit, 0)
		}
		if end == sentAll || c.credit <= 0 {
			s.served(c, end != sentAll)
		} // else it goes on in the next Turn
		p.settle(c, waits)
		if end == heldUp {
			return
		}
	}
}

// segmentsMax is how many segments a connection may send at once.
func (p *Poller) segmentsMax() int {
	if p.cfg.SegmentsMax > 0 {
		return p.cfg.SegmentsMax
	}
	return burstsPerTurnMax * p.cfg.BurstMax
}

// settle ends the service of c.
func (p *Poller) settle(c *Conn, waits bool) {
	if ev := c.tcp.TakeEvents(); ev != 0 {
		p.events(c, ev)
	}
	if c.phase == phaseFree {
		return
	}
	if c.tcp.WaitsForMemory() {
		p.n.MemoryWaits++
		waits = true
	}
	if waits {
		p.peers.leaveSilent(c)
		p.pressure.await(c)
	}
	p.timers.arm(c.index, c.due())
}

// applyMarks does what was asked for by marks.
func (c *Conn) applyMarks(now int64) {
	if c.marks&markWindow != 0 {
		c.marks &^= markWindow
		c.tcp.SetReceiveWindow(int(c.window))
	}
	if c.marks&(markAbort|markAbortDone) == markAbort {
		c.marks |= markAbortDone
		c.tcp.Abort(now)
		return
	}
	if c.marks&(markFin|markFinDone) == markFin && c.phase == phaseOpen {
		c.marks |= markFinDone
		c.tcp.CloseSend(now)
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
