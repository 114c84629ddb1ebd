package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// input gives the decoded segment to its connection. The order is Input, Arrive, Commit, Edge,
// events, except that the end of the handshake comes before the octets of its segment.
func (p *Poller) input(c *Conn, b mem.Buf, payload []byte) bool {
	if c.marks&markAbort != 0 {
		p.n.Own[DropAborting]++
		return true
	}
	p.touch(c)
	a := c.tcp.Input(p.now, &p.seg)
	ev := c.tcp.TakeEvents()
	if ev&tcp.EvEstablished != 0 {
		p.established(c)
		ev &^= tcp.EvEstablished
	}
	if a.Drop != tcp.DropNone {
		p.n.TCP[a.Drop]++
		if a.Drop == tcp.DropOrphaned {
			c.fail(whyUnread)
		}
	}
	done, refused := true, false
	if a.Len > 0 {
		p.arrivals++
		verdict := Refused
		if c.upper != nil && c.marks&markAbort == 0 {
			verdict = c.upper.Arrive(c, a.Offset, b, payload[a.Skip:a.Skip+a.Len])
		}
		done, refused = verdict != Kept, verdict == Refused
		if refused {
			p.n.TCP[tcp.DropRefused]++
		}
	}
	p.commit(c, &a, refused)
	if ev |= c.tcp.TakeEvents(); ev != 0 {
		p.events(c, ev)
	}
	return done
}

// inputCoalesced is input of a segment that stands for b, whose octets are payload, and for the
// frames after it whose octets are in p.runData. It ends where the Upper refuses a frame: the
// frames after that one are given to TCP one by one, like frames after a gap.
func (p *Poller) inputCoalesced(c *Conn, b mem.Buf, payload []byte) bool {
	data := p.runData
	bufs := p.rx[p.rxAt:][:len(data)]
	data[0] = payload
	p.touch(c)
	a := c.tcp.Input(p.now, &p.seg)
	if a.Drop != tcp.DropNone {
		p.n.TCP[a.Drop] += uint64(len(data))
	}
	done, verdict, at := true, Taken, 0
	for at < len(data) && verdict != Refused {
		n := len(data) - at
		if a.Len > 0 {
			n, verdict = p.offer(c, &a, bufs[at:], data[at:])
		}
		last := at + n - 1
		for i := max(at, 1); i < last; i++ {
			p.discard(bufs[i])
		}
		switch {
		case last == 0:
			done = verdict != Kept
		case verdict != Kept:
			p.discard(bufs[last])
		}
		at = last + 1
	}
	p.countCoalesced(data[1:at], p.seg.HdrLen+p.l4Plain(&c.tcp.ID().Remote))
	if ev := c.tcp.TakeEvents(); ev != 0 {
		p.events(c, ev)
	}
	return done
}

// countCoalesced says that frames after the one in hand, whose octets are data and whose headers
// have head octets, have been looked at with it.
func (p *Poller) countCoalesced(data [][]byte, head int) {
	n := len(data)
	p.rxAt += n
	p.n.Coalesced += uint64(n)
	p.n.RxFrames += uint64(n)
	for _, octets := range data {
		p.n.RxOctets += uint64(len(octets) + head)
	}
}

// l4Plain is where the TCP header begins in a frame without options or extensions of IP.
func (p *Poller) l4Plain(remote *inet.Addr) int { return p.host.l2 + ipLen(remote) }

// offer gives the octets of coalesced frames, which are a, to the Upper and commits them: as many
// as it has looked at, the last of them with verdict.
func (p *Poller) offer(c *Conn, a *tcp.Arrival, bufs []mem.Buf, data [][]byte) (n int, verdict Verdict) {
	p.arrivals++
	n, verdict = 1, Refused
	if c.upper != nil && c.marks&markAbort == 0 {
		if bulk, ok := c.ahead.(Bulk); ok && len(data) > 1 {
			if n, verdict = bulk.ArriveRun(c, a.Offset, bufs, data); n < 1 || n > len(data) {
				panic("stack: ArriveRun looked at no segment, or at more than it was given")
			}
		} else {
			verdict = c.upper.Arrive(c, a.Offset, bufs[0], data[0])
		}
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
			c.upper.Edge(c, e)
		}
	}
}
