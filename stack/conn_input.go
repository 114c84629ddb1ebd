package stack

import (
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// input gives the decoded segment to its connection: p.rx.bufs are its Bufs and p.rx.data its
// octets, several where it stands for frames that continue each other (coalesce). It returns
// whether the first Buf is done with; the others are its own affair. The order is Input, Arrive,
// Commit, Edge, events, except that the end of the handshake comes before the octets of its
// segment. It ends where the Upper refuses a frame: the frames after that one are given to TCP one
// by one, like frames after a gap.
func (p *Poller) input(c *Conn) (done bool) {
	bufs, data := p.rx.bufs, p.rx.data
	if c.marks&markAbort != 0 {
		p.n.Own[DropAborting]++
		return true
	}
	p.active.add(c)
	a := c.tcp.Input(p.now, &p.rx.seg)
	ev := c.tcp.TakeEvents()
	if ev&tcp.EvEstablished != 0 {
		p.established(c)
		ev &^= tcp.EvEstablished
	}
	if a.Drop != tcp.DropNone {
		p.n.TCP[a.Drop] += uint64(len(data))
		if a.Drop == tcp.DropOrphaned {
			c.fail(whyUnread)
		}
	}
	done = true
	at := len(data)
	if a.Len == 0 {
		p.commit(c, &a, false)
		for _, b := range bufs[1:] {
			p.dead.add(b)
		}
	} else {
		if len(data) == 1 {
			data[0] = data[0][a.Skip : a.Skip+a.Len]
		}
		at, done = p.offerAll(c, &a, bufs, data)
	}
	if at > 1 {
		p.rx.coalesced(c, data[1:at])
	}
	if ev |= c.tcp.TakeEvents(); ev != 0 {
		p.events(c, ev)
	}
	return done
}

// offerAll offers the octets of a until all are taken or some refused, and discards the Bufs that
// are done with, except for the first. n is how many were looked at.
func (p *Poller) offerAll(c *Conn, a *tcp.Arrival, bufs []mem.Buf,
	data [][]byte) (n int, done bool) {
	done = true
	for verdict := Taken; n < len(data) && verdict != Refused; {
		var k int
		k, verdict = p.offer(c, a, bufs[n:], data[n:])
		last := n + k - 1
		for i := max(n, 1); i < last; i++ {
			p.dead.add(bufs[i])
		}
		switch {
		case last == 0:
			done = verdict != Kept
		case verdict != Kept:
			p.dead.add(bufs[last])
		}
		n = last + 1
	}
	return n, done
}

// offer gives the octets of a, which are data, to the Upper and commits them: as many segments as
// it has looked at, the last of them with verdict.
func (p *Poller) offer(c *Conn, a *tcp.Arrival, bufs []mem.Buf,
	data [][]byte) (n int, verdict Verdict) {
	p.rx.arrivals++
	n, verdict = 1, Refused
	if c.upper != nil && c.marks&markAbort == 0 {
		if n, verdict = c.upper.Arrive(a.Offset, bufs, data); n < 1 || n > len(data) {
			panic("stack: Arrive looked at no segment, or at more than it was given")
		}
	}
	if p.rx.seg.Part == 0 {
		if verdict == Refused {
			p.n.TCP[tcp.DropRefused]++
		}
		p.commit(c, a, verdict == Refused)
		return n, verdict
	}
	var part tcp.Arrival
	taken := n
	if verdict == Refused {
		taken--
	}
	if taken > 0 {
		c.tcp.Part(&part, a, taken, len(data[0]), len(data[taken-1]))
		p.commit(c, &part, false)
	}
	if verdict == Refused {
		p.n.TCP[tcp.DropRefused]++
		c.tcp.Part(&part, a, 1, 0, len(data[taken]))
		p.commit(c, &part, true)
	}
	return n, verdict
}

// commit ends what Input began, and tells the Upper where the left edge stands.
func (p *Poller) commit(c *Conn, a *tcp.Arrival, refused bool) {
	before := c.tcp.Edge()
	c.tcp.Commit(p.now, a, refused)
	if e := c.tcp.Edge(); e != before {
		if c.upper != nil && c.marks&markAbort == 0 {
			c.upper.Edge(e)
		}
	}
}
