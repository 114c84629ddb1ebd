package stack

// The Upper of a connection that is over is told when the device has all of its frames: its program
// may end as soon as it knows, and the Poller with it. Until then, where the device is full, the
// connection stands in leavers, and keeps its slot.

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

// leavers are the connections that are over, and whose frames have not left. They make the last
// call to an Upper.
type leavers struct {
	all  []leaving
	tx   *transmitter
	slab *slab
}

func newLeavers(p *Poller) leavers {
	return leavers{all: make([]leaving, 0, leavingMax), tx: &p.tx, slab: &p.slab}
}

// sayClosed tells c's Upper, now or when its frames have left; a slot that is free then is given
// back. owes: there was no room for its last frame.
func (l *leavers) sayClosed(now int64, c *Conn, owes bool) {
	for i := range l.all {
		if l.all[i].c == c { // its TIME-WAIT has ended
			l.all[i].owes = false
			return
		}
	}
	if c.upper != nil {
		l.tx.flush(now)
		if (owes || l.tx.hasFrames(c)) && len(l.all) < cap(l.all) {
			l.all = append(l.all, leaving{c, owes, now + leavingNs})
			return
		}
	}
	l.closed(c)
}

// tellLeft tells the Uppers of those whose frames have left, or of all.
func (l *leavers) tellLeft(now int64, all bool) {
	kept := l.all[:0]
	for _, v := range l.all {
		all := all || now >= v.until
		if v.owes && !all {
			l.tx.forgetHop()
			v.owes = l.tx.sendControl(now, v.c)
			l.tx.flush(now)
		}
		if !all && (v.owes || l.tx.hasFrames(v.c)) {
			kept = append(kept, v)
			continue
		}
		l.closed(v.c)
	}
	l.all = kept
}

// closed makes the last call to c's Upper, and gives back a slot that is free.
func (l *leavers) closed(c *Conn) {
	u, free := c.upper, c.phase == phaseFree
	c.upper = nil
	if u != nil {
		u.Closed(reasons[c.why])
	}
	if free {
		c.tcp.Forget()
		l.slab.put(c)
	}
}
