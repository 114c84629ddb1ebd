package stack

import "github.com/rnicd/rnicd/tcp"

// expireTimers serves the timers of connections, but not while the device has frames that have not
// been read: an ACK among them is not overdue, it has come. That is the rule after this core did
// something else for a while; without this, each connection would then probe for a loss.
func (p *Poller) expireTimers() int {
	if p.rx.more && p.waited < timersWaitMax {
		p.waited++
		return 0
	}
	p.waited = 0
	return p.expire() + p.syns.expire(p.now)
}

// expire serves due timers and returns how many there were.
func (p *Poller) expire() int {
	p.timers.advance(p.now)
	work := 0
	for range timersPerTurnMax {
		i := p.timers.soonest(p.now)
		if i == noConn {
			break
		}
		if p.timers.early(i) {
			continue
		}
		c := &p.slab.conns[i]
		p.timers.remove(i)
		if p.away >= awayMin {
			c.tcp.Excuse(p.now, p.away)
			c.putOffTimer()
		}
		if h, ok := c.tcp.Timed(p.now); ok && h != tcp.NoHandle {
			if from := p.tx.meta[h].left(p.now); from != 0 {
				p.n.TimersPutOff++
				c.tcp.PutOff(from, p.now)
			}
		}
		if at := c.due(); at > p.now {
			p.timers.arm(i, at)
			continue
		}
		work++
		p.n.Timers++
		p.active.add(c) // output sends what is due and arms again
		if c.tcp.Deadline() <= p.now {
			before := c.tcp.Timeouts()
			if c.tcp.Expire(p.now); c.tcp.Timeouts() != before {
				p.paths.timedOut(p.now, c)
			}
		}
		if c.timerAt != 0 && c.timerAt <= p.now {
			c.timerAt = 0
			if c.upper != nil && c.marks&markAbort == 0 {
				c.upper.Timer(p.now)
			}
		}
		if ev := c.tcp.TakeEvents(); ev != 0 {
			p.events(c, ev)
		}
	}
	return work
}

// putOffTimer puts an Upper's timer off, once, that came due while the Poller was away for long, by
// as much, up to a bound. A Poller that chose to sleep until then may have been stopped meanwhile.
func (c *Conn) putOffTimer() {
	p := c.p
	if p.away < awayLongMin || c.timerAt == 0 || c.timerAt > p.now || c.timerAt < p.now-p.away ||
		c.marks&markPutOff != 0 {
		return
	}
	c.marks |= markPutOff
	c.timerAt = p.now + min(p.away, timerPutOffMax)
}
