package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// takeConn returns a slot for a new connection, or nil when all are in use. home has counted the
// connection. When no slot is free, the connection that has been in TIME-WAIT longest gives way,
// and is counted: RFC 9293 asks for the wait, but a listener without slots serves no client. The
// caller starts its tcp, with the same id, at once.
func (p *Poller) takeConn(id *tcp.ID, nextHop inet.Addr, home *iphost.SharedAddr) *Conn {
	s := &p.slab
	if s.n == 0 && s.lingering.first != noConn {
		p.n.TimeWaitCut++
		p.cutTimeWait(&s.conns[s.lingering.first])
	}
	if s.n == 0 {
		home.Leave()
		return nil
	}
	c := s.take()
	c.nextHop, c.home = nextHop, home
	c.upper, c.listener, c.why, c.advice = nil, nil, whyNothing, whyNothing
	c.acked, c.timerAt, c.credit = 0, 0, 0
	c.life++
	c.phase = phaseOpening
	p.paths.begin(c, &id.Remote)
	p.table.insert(c.index, id)
	p.n.Opened++
	return c
}

// events acts on what TCP reports. c may be free when it returns.
func (p *Poller) events(c *Conn, ev tcp.Events) {
	if ev&tcp.EvEstablished != 0 {
		p.established(c)
	}
	if ev&tcp.EvFinAcked != 0 && c.upper != nil && c.marks&markAbort == 0 {
		c.upper.FinAcked()
	}
	if ev&tcp.EvPeerClosed != 0 && c.upper != nil && c.marks&markAbort == 0 {
		c.upper.PeerClosed()
	}
	if ev&tcp.EvRefused != 0 {
		c.fail(whyRefused)
	}
	if ev&tcp.EvReset != 0 {
		c.fail(whyReset)
	}
	if ev&tcp.EvSuspect != 0 {
		p.stalled(c)
	}
	if ev&tcp.EvTimeout != 0 {
		if c.advice != whyNothing && c.advice != whyStalled {
			c.fail(c.advice)
		}
		c.fail(whyTimeout)
	}
	if ev&tcp.EvClosed != 0 {
		p.finish(c)
	} else if c.phase == phaseOpen && c.tcp.State() == tcp.TimeWait {
		p.linger(c)
	}
}

// established gives c its Upper.
func (p *Poller) established(c *Conn) {
	if c.phase != phaseOpening {
		return
	}
	c.phase = phaseOpen
	if l := c.listener; l != nil {
		c.listener = nil
		c.upper = l.accept(c)
		p.n.Accepted++
	} else {
		p.n.Connected++
	}
	if c.upper == nil {
		c.abort(whyAborted)
		return
	}
	if c.marks&markAbort == 0 {
		c.upper.Established()
	}
	if c.marks&(markWoken|markAbort) == markWoken {
		c.upper.Woken()
	}
}

// stalled is tcp's EvSuspect, negative advice about the next hop (RFC 9293 section 3.8.3): it is
// asked whether it is still there, and one that does not answer is replaced where there is another.
func (p *Poller) stalled(c *Conn) {
	p.n.Stalled++
	p.advise(c, whyStalled)
	p.neighbours.Suspect(p.now, c.nextHop)
}

// advise keeps a soft error and tells the Upper.
func (p *Poller) advise(c *Conn, why reason) {
	c.advice = why
	if c.upper != nil && c.marks&markAbort == 0 {
		c.upper.Advice(reasons[why])
	}
}

// linger ends the Upper's part while TIME-WAIT goes on. Both FINs are acknowledged, so the Upper
// has nothing left to do. The ACK of the peer's leaves first: the Upper's program may end as soon
// as it knows that the connection has, and the Poller with it, and nobody would answer the peer.
func (p *Poller) linger(c *Conn) {
	p.tx.forgetHop()
	owes := p.tx.sendControl(p.now, c)
	p.release(c)
	p.pressure.stopWaiting(c)
	p.peers.leaveSilent(c)
	p.peers.remove(c)
	c.leaveAddr()
	c.phase = phaseLingering
	c.timerAt = 0
	p.slab.lingering.pushBack(p.slab.conns, c.index)
	p.leavers.sayClosed(p.now, c, owes)
}

// cutTimeWait ends TIME-WAIT now. Nothing is sent and no Upper is told: there is none any more (RFC
// 9293 section 3.10.5, ABORT in TIME-WAIT).
func (p *Poller) cutTimeWait(c *Conn) {
	c.tcp.Abort(p.now)
	c.tcp.TakeEvents()
	p.finish(c)
}

// finish recycles c after its Upper has been told.
func (p *Poller) finish(c *Conn) {
	p.release(c)
	p.table.remove(c.index)
	p.timers.remove(c.index)
	if c.phase == phaseLingering {
		p.slab.lingering.remove(p.slab.conns, c.index)
	}
	c.listener = nil
	p.pressure.forget(c)
	p.peers.leaveSilent(c)
	p.peers.remove(c)
	c.leaveAddr()
	c.phase = phaseFree
	p.n.Closed++
	p.leavers.sayClosed(p.now, c, false)
}

// release frees what the peer has acknowledged (all, once the connection is closed) and tells the
// Upper. It returns how many Bufs that were.
func (p *Poller) release(c *Conn) (n int) {
	longest := uint16(0)
	for {
		h, ok := c.tcp.Release()
		if !ok {
			break
		}
		longest = max(longest, p.tx.meta[h].length)
		p.tx.dropOwner(mem.Buf(h))
		n++
	}
	if n > 0 {
		c.path.arrived(int(longest))
	}
	if a := c.tcp.AckedOffset(); a != c.acked {
		c.acked = a
		c.advice = whyNothing
		p.paths.progressed(p.now, c)
		if c.upper != nil {
			c.upper.Acked(a)
		}
	}
	return n
}

// leaveAddr is called when c needs its address no more.
func (c *Conn) leaveAddr() {
	if c.home != nil {
		c.home.Leave()
		c.home = nil
	}
}
