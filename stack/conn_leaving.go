package stack

// The Upper of a connection that is over is told when the device has all of its frames: its program
// may end as soon as it knows, and the Poller with it. Until then, where the device is full, the
// connection stands in Poller.leaving, and keeps its slot.

// leavingMax connections may do so, for leavingNs each; the others are told at once.
const (
	leavingMax = 64
	leavingNs  = 1_000_000_000
)

type leaving struct {
	c     *Conn
	owes  bool // its last ACK has found no room
	until int64
}

// sayClosed tells c's Upper, now or when its frames have left; a slot that is free then is given
// back. owes: there was no room for its last frame.
func (p *Poller) sayClosed(c *Conn, owes bool) {
	for i := range p.leaving {
		if p.leaving[i].c == c { // its TIME-WAIT has ended
			p.leaving[i].owes = false
			return
		}
	}
	if c.upper != nil {
		p.flush()
		if (owes || p.hasFrames(c)) && len(p.leaving) < cap(p.leaving) {
			p.leaving = append(p.leaving, leaving{c, owes, p.now + leavingNs})
			return
		}
	}
	p.closed(c)
}

// tellLeft tells the Uppers of those whose frames have left, or of all.
func (p *Poller) tellLeft(all bool) {
	kept := p.leaving[:0]
	for _, l := range p.leaving {
		all := all || p.now >= l.until
		if l.owes && !all {
			p.tx.hopKnown, p.tx.express = false, true
			l.owes = p.sendControl(l.c)
			p.tx.express = false
			p.flush()
		}
		if !all && (l.owes || p.hasFrames(l.c)) {
			kept = append(kept, l)
			continue
		}
		p.closed(l.c)
	}
	p.leaving = kept
}

// hasFrames says whether the device has yet to take a frame of c's.
func (p *Poller) hasFrames(c *Conn) bool {
	for _, b := range p.tx.frames[:p.tx.n] {
		if m := &p.tx.meta[b]; m.conn == c.index && m.life == c.life {
			return true
		}
	}
	return false
}

// closed makes the last call to c's Upper, and gives back a slot that is free.
func (p *Poller) closed(c *Conn) {
	u, free := c.upper, c.phase == phaseFree
	c.upper = nil
	if u != nil {
		u.Closed(reasons[c.why])
	}
	if free {
		c.tcp.Forget()
		p.slab.put(c)
	}
}
