package stack

import (
	"github.com/rnicd/rnicd/inet"
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

// inputCoalesced is input of a segment that stands for b and for p.coalesced. It ends where the
// Upper refuses a frame: the frames after that one are given to TCP one by one, like frames after a
// gap.
func (p *Poller) inputCoalesced(c *Conn, b mem.Buf, payload []byte) bool {
	rest := p.coalesced
	p.coalesced = nil
	end := p.seg.HdrLen + p.l4Plain(&c.tcp.ID().Remote)
	p.touch(c)
	a := c.tcp.Input(p.now, &p.seg)
	if a.Drop != tcp.DropNone {
		p.n.TCP[a.Drop] += uint64(1 + len(rest))
	}
	done := true
	for i := 0; ; i++ {
		verdict := Taken
		if a.Len > 0 {
			verdict = p.offer(c, &a, b, payload)
		}
		if i == 0 {
			done = verdict != Kept
		} else if verdict != Kept {
			p.discard(b)
		}
		if i == len(rest) || verdict == Refused {
			break
		}
		p.rxAt++
		b = rest[i]
		frame := p.pool.Data(b)
		p.n.Coalesced++
		p.n.RxFrames++
		p.n.RxOctets += uint64(len(frame))
		payload = frame[end:]
	}
	if ev := c.tcp.TakeEvents(); ev != 0 {
		p.events(c, ev)
	}
	return done
}

// l4Plain is where the TCP header begins in a frame without options or extensions of IP.
func (p *Poller) l4Plain(remote *inet.Addr) int { return p.host.l2 + ipLen(remote) }

// offer gives the octets of one of several coalesced frames to the Upper, and commits them.
func (p *Poller) offer(c *Conn, a *tcp.Arrival, b mem.Buf, payload []byte) Verdict {
	var part tcp.Arrival
	c.tcp.Part(&part, a, len(payload))
	verdict := Refused
	if c.upper != nil && c.marks&markAbort == 0 {
		verdict = c.upper.Arrive(c, part.Offset, b, payload)
	}
	if verdict == Refused {
		p.n.TCP[tcp.DropRefused]++
	}
	p.commit(c, &part, verdict == Refused)
	return verdict
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
