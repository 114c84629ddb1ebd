package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// deliver finds the connection of the segment that was received. It returns whether the Buf is done
// with: not when it was kept, or became the answer.
func (p *Poller) deliver() (done bool) {
	r := &p.rx
	s, b := &r.seg, r.buf
	i := p.table.find(&r.id)
	if i == noConn {
		if to := p.member.owner(&r.id); to != p.cfg.Member {
			p.n.Strays++
			p.member.cross(b, to, false)
			return true
		}
	}
	if s.Flags&(tcp.SYN|tcp.URG) != 0 {
		p.countOdd(s)
	}
	if i == noConn {
		return p.stray(b, r.src, &r.id, s, r.payload())
	}
	c := &p.slab.conns[i]
	if c.phase == phaseLingering && c.tcp.Reusable(s) {
		if l := p.ports.listener(&r.id.Local, s.DstPort); l != nil {
			return p.reopen(l, c, b, r.src, s)
		}
	}
	r.segment(b, r.payload())
	r.coalesce(c)
	return p.input(c)
}

// countOdd counts what peers should not send, or hardly any does, and which changes nothing.
func (p *Poller) countOdd(s *tcp.Segment) {
	if s.Flags&tcp.SYN != 0 && s.Options.ScaleTooLarge {
		p.n.ScalesTooLarge++
	}
	if s.Flags&tcp.URG != 0 {
		p.n.UrgentIn++
	}
}

// reopen lets a SYN take the place of a connection in TIME-WAIT. Our sequence numbers go on beyond
// the old ones (RFC 9293 section 3.6.1).
func (p *Poller) reopen(l *listener, c *Conn, b mem.Buf, src inet.MAC, s *tcp.Segment) bool {
	id, iss := *c.tcp.ID(), p.secret.initialSeq(p.now, c.tcp.ID())
	if beyond := c.tcp.SndNxt() + 1; iss.Less(beyond) {
		iss = beyond
	}
	p.n.TimeWaitCut++
	p.cutTimeWait(c)
	return p.passiveOpen(l, b, src, &id, s, iss)
}
