package stack

// abort marks c; the first reason given stands.
func (c *Conn) abort(why reason) {
	if c.phase == phaseFree || c.marks&markAbort != 0 {
		return
	}
	c.fail(why)
	c.marks |= markAbort
	c.p.active.add(c)
}

// fail keeps the first reason.
func (c *Conn) fail(why reason) {
	if c.why == whyNothing {
		c.why = why
	}
}

// active are the connections that output serves next: those that were touched. Each stands there
// once (markActive).
type active struct {
	next    []connIndex
	serving []connIndex // the ones that output walks over; swapped with next
}

func newActive(connsMax int) active {
	return active{
		next:    make([]connIndex, 0, connsMax),
		serving: make([]connIndex, 0, connsMax),
	}
}

// add has c served, in this Turn if output has not begun.
func (a *active) add(c *Conn) {
	if c.marks&markActive == 0 && c.phase != phaseFree {
		c.marks |= markActive
		a.next = append(a.next, c.index)
	}
}

// take is what was added; what is added from now on is for the next Turn.
func (a *active) take() []connIndex {
	a.next, a.serving = a.serving[:0], a.next
	return a.serving
}
