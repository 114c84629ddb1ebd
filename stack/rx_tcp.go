package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/tcp"
	"github.com/rnicd/rnicd/mem"
)

// tcp checks and decodes a segment and finds its connection.
func (p *Poller) tcp(b mem.Buf, src inet.MAC, remote, local *inet.Addr, tos uint8, octets []byte,
	good bool) bool {
	if !good &&
		inet.Checksum(octets, inet.PseudoSum(*remote, *local, inet.ProtoTCP, len(octets))) != 0 {
		p.n.TCP[tcp.DropChecksum]++
		return true
	}
	s := &p.seg
	if drop := tcp.Parse(octets, s); drop != tcp.DropNone {
		p.n.TCP[drop]++
		return true
	}
	s.TOS = tos
	id := tcp.ID{Local: *local, Remote: *remote, LocalPort: s.DstPort, RemotePort: s.SrcPort}
	payload := octets[s.HdrLen : s.HdrLen+s.Len]
	i := p.table.find(&id)
	if i == noConn {
		if to := p.owner(&id); to != p.cfg.Member {
			p.n.Strays++
			p.cross(b, to, false)
			return true
		}
	}
	if s.Flags&(tcp.SYN|tcp.URG) != 0 {
		p.countOdd(s)
	}
	if i == noConn {
		return p.stray(b, src, &id, s, payload)
	}
	c := &p.slab.conns[i]
	if c.phase == phaseLingering && c.tcp.Reusable(s) {
		if l := p.listenerOf(&id.Local, s.DstPort); l != nil {
			return p.reopen(l, c, b, src, s)
		}
	}
	p.segment(b, payload)
	if good && p.rxAt+1 < p.rxEnd {
		p.coalesce(c, b, octets)
	}
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
	id, iss := *c.tcp.ID(), p.initialSeq(c.tcp.ID())
	if beyond := c.tcp.SndNxt() + 1; iss.Less(beyond) {
		iss = beyond
	}
	p.n.TimeWaitCut++
	p.cutTimeWait(c)
	return p.passiveOpen(l, b, src, &id, s, iss)
}
