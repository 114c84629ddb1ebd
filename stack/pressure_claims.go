package stack

// pressureState is where reclaim stands.
type pressureState struct {
	hand   int   // the next connection to look at
	lookAt int64 // when
	short  uint64
	wanted bool      // somebody did not get what there would be without such connections:
	by     connIndex // this one alone; noConn: several, or those that hold nothing
}

// want notes that connection i wants for memory.
func (s *pressureState) want(i connIndex) {
	if s.wanted && s.by != i {
		i = noConn
	}
	s.wanted, s.by = true, i
}

// floor is how many Bufs beyond the reserve c leaves to others.
func (p *Poller) floor(c *Conn) int {
	if c.acked == 0 {
		return p.tx.proven
	}
	return 0
}

// claimed says that others, who hold nothing, wait for one of the free Bufs.
func (p *Poller) claimed(free int) bool {
	return p.waiting.n > 0 || p.unproven.n > 0 && free >= p.tx.proven
}

// owe starts the clock: nothing was owed before.
func (c *Conn) owe() { c.owedTo, c.owedAt = c.tcp.PushedOffset(), c.p.now }

// keptUp turns the clock back if the peer has acknowledged all it is set for.
func (c *Conn) keptUp() {
	if c.acked >= c.owedTo {
		c.owe()
	}
}
