package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// Octets of a TCP header that join looks at.
const (
	tcpFlagsAt  = 13
	tcpWindowAt = 14
	tcpUrgentAt = 18
)

// join looks for the frames of this burst that go on where s, in b, ends, and leaves them in p.joined; s then stands for
// all of them. It is generic receive offload (after tcp_gro_receive, net/ipv4/tcp_offload.c) without its merging: each
// frame stays in its Buf and is offered by itself, at its own boundaries, but the headers, the connection and TCP's
// acceptance are looked at once for all. They differ in nothing that TCP would act upon: same headers but for lengths,
// identification, sequence number, checksums and PSH; all of the same payload length but the last, which may be shorter.
//
// The device must have found the checksums good, b's too (who calls has seen that), and there are neither options nor
// extensions of IP. octets is the TCP part of b.
func (p *Poller) join(c *Conn, b mem.Buf, octets []byte) bool {
	s := &p.seg
	head := p.pool.Data(b)
	l4 := p.l4Plain(&c.id.Remote)
	if cap(head)-cap(octets) != l4 || len(head) != l4+len(octets) || c.phase != phaseOpen || c.marks&markAbort != 0 {
		return false
	}
	room := c.tcp.Joinable(s)
	end := l4 + s.HdrLen
	part, total := s.Len, s.Len
	n := 0
	for _, next := range p.rx[p.rxAt+1 : p.rxEnd] {
		if p.pool.Desc(next).Flags&mem.RxChecksumGood == 0 {
			break
		}
		frame := p.pool.Data(next)
		k := len(frame) - end
		if k <= 0 || k > part || k > room-total || !p.follows(head, frame, l4, end, uint32(s.Seq)+uint32(total)) {
			break
		}
		total += k
		n++
		if k < part {
			break
		}
	}
	if n == 0 {
		return false
	}
	p.joined = p.rx[p.rxAt+1:][:n]
	s.Part, s.Len = part, total
	return true
}

// follows says whether the headers of f, which end at end and whose TCP header begins at l4, are those of head but for what
// join says may differ, with sequence number seq.
func (p *Poller) follows(head, f []byte, l4, end int, seq uint32) bool {
	head, h := head[:end], f[:end]
	be := binary.BigEndian
	l3 := p.host.l2
	if head[l3]>>4 == 4 {
		if string(h[:l3+2]) != string(head[:l3+2]) || int(be.Uint16(h[l3+2:])) != len(f)-l3 ||
			be.Uint32(h[l3+6:]) != be.Uint32(head[l3+6:]) {
			return false
		}
	} else if string(h[:l3+4]) != string(head[:l3+4]) || int(be.Uint16(h[l3+4:])) != len(f)-l4 ||
		string(h[l3+6:l4-8]) != string(head[l3+6:l4-8]) {
		return false
	}
	// The last eight octets of either IP header are addresses or their end, and then come the ports.
	if be.Uint64(h[l4-8:]) != be.Uint64(head[l4-8:]) || be.Uint32(h[l4:]) != be.Uint32(head[l4:]) {
		return false
	}
	t, u := (*[tcp.HeaderLenMin]byte)(h[l4:]), (*[tcp.HeaderLenMin]byte)(head[l4:])
	return be.Uint32(t[4:]) == seq && be.Uint32(t[8:]) == be.Uint32(u[8:]) && t[12] == u[12] &&
		(t[tcpFlagsAt]^u[tcpFlagsAt])&^byte(tcp.PSH) == 0 &&
		be.Uint16(t[tcpWindowAt:]) == be.Uint16(u[tcpWindowAt:]) && string(h[l4+tcpUrgentAt:]) == string(head[l4+tcpUrgentAt:])
}

// l4Plain is where the TCP header begins in a frame without options or extensions of IP.
func (p *Poller) l4Plain(remote *inet.Addr) int { return p.host.l2 + ipLen(remote) }

// inputJoined is input of a segment that stands for b and p.joined. What an Upper refuses ends it: the frames behind that
// are then given to TCP one by one, as those behind a gap are.
func (p *Poller) inputJoined(c *Conn, b mem.Buf, payload []byte) bool {
	joined := p.joined
	p.joined = nil
	end := p.seg.HdrLen + p.l4Plain(&c.id.Remote)
	p.touch(c)
	a := c.tcp.Input(p.now, &p.seg)
	if a.Drop != tcp.DropNone {
		p.n.TCP[a.Drop] += uint64(1 + len(joined))
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
		if i == len(joined) || verdict == Refused {
			break
		}
		p.rxAt++
		b = joined[i]
		frame := p.pool.Data(b)
		p.n.Joined++
		p.n.RxFrames++
		p.n.RxOctets += uint64(len(frame))
		payload = frame[end:]
	}
	if ev := c.tcp.TakeEvents(); ev != 0 {
		p.events(c, ev)
	}
	return done
}

// offer gives the octets of one frame of several joined to the Upper and commits them.
func (p *Poller) offer(c *Conn, a *tcp.Arrival, b mem.Buf, payload []byte) Verdict {
	part := c.tcp.Part(a, len(payload))
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
	c.tcp.Commit(p.now, a, refused)
	if e := c.tcp.Edge(); e != c.edge {
		c.edge = e
		if c.upper != nil && c.marks&markAbort == 0 {
			c.upper.Edge(c, e)
		}
	}
}
