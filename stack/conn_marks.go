package stack

// abort marks c; the first reason given stands.
func (p *Poller) abort(c *Conn, why reason) {
	if c.phase == phaseFree || c.marks&markAbort != 0 {
		return
	}
	c.fail(why)
	c.marks |= markAbort
	p.touch(c)
}

// fail keeps the first reason.
func (c *Conn) fail(why reason) {
	if c.why == whyNothing {
		c.why = why
	}
}

// touch puts c on the list that output serves, once.
func (p *Poller) touch(c *Conn) {
	if c.marks&markActive == 0 && c.phase != phaseFree {
		c.marks |= markActive
		p.active = append(p.active, c.index)
	}
}
