package stack

import (
	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// receive takes bursts from the device, one more while they come full, and returns how many frames there were.
func (p *Poller) receive() int {
	work := 0
	p.behind = true
	for range burstsPerTurnMax {
		n := p.queue.Rx(p.rx)
		p.preview(p.rx[:n])
		p.rxEnd = n
		for p.rxAt = 0; p.rxAt < n; p.rxAt++ { // which join moves, too
			b := p.rx[p.rxAt]
			p.n.RxFrames++
			if p.frame(b) {
				p.discard(b)
			}
		}
		work += n
		if n < len(p.rx) { // the last, whose Bufs the flush at the end of the Turn gives back
			p.behind = false
			break
		}
		p.freeDead()
	}
	return work
}

// frame handles one frame and returns whether b is done with: not when it was kept or became a reply.
func (p *Poller) frame(b mem.Buf) bool {
	data := p.pool.Data(b)
	p.n.RxOctets += uint64(len(data))
	eth, payload, drop := inet.ParseEthernet(data)
	if drop != inet.DropNone {
		p.n.Inet[drop]++
		return true
	}
	// RFC 9293 MUST-57, RFC 1122 section 3.2.2: what came by link broadcast is not answered, ARP excepted.
	group := eth.Dst.IsGroup()
	if !group && eth.Dst != p.mac {
		p.n.Inet[inet.DropNotOurs]++
		return true
	}
	if eth.Type == inet.EtherTypeVLAN || p.cfg.VLAN != 0 {
		if payload, drop = p.untag(&eth, payload); drop != inet.DropNone {
			p.n.Inet[drop]++
			return true
		}
	}
	switch {
	case eth.Type == inet.EtherTypeIPv4:
		if group {
			p.n.Inet[inet.DropNotOurs]++
			return true
		}
		return p.ipv4(b, eth.Src, payload, len(data)-len(payload))
	case eth.Type == inet.EtherTypeIPv6 && p.host.ip6:
		return p.ipv6(b, eth.Src, payload, group)
	case eth.Type == inet.EtherTypeARP:
		p.tellGroup(b)
		return p.arp(b, payload)
	}
	p.n.Inet[inet.DropEtherType]++
	return true
}

// untag takes the VLAN tag off: ours, or, where we are on no VLAN, that of a priority (IEEE 802.1Q section 6.8: VID 0).
// With a VLAN of ours, untagged frames, to which those with a priority alone belong (section 6.9.1), and those of other
// VLANs are not for us: who is outside a VLAN must not get in.
func (p *Poller) untag(eth *inet.Ethernet, payload []byte) ([]byte, inet.Drop) {
	if eth.Type != inet.EtherTypeVLAN {
		return nil, inet.DropVLAN
	}
	vid, typ, payload, drop := inet.ParseVLAN(payload)
	if drop == inet.DropNone && vid != p.cfg.VLAN {
		drop = inet.DropVLAN
	}
	eth.Type = typ
	return payload, drop
}

// ipv4 handles a datagram, which begins l3 octets into the frame.
func (p *Poller) ipv4(b mem.Buf, src inet.MAC, datagram []byte, l3 int) bool {
	flags := p.pool.Desc(b).Flags
	if flags&mem.RxChecksumBad != 0 {
		p.n.Inet[inet.DropChecksum]++
		return true
	}
	good := flags&mem.RxChecksumGood != 0
	ip, payload, drop := inet.ParseIPv4(datagram, good)
	fragment := drop == inet.DropFragment
	switch {
	case drop != inet.DropNone && !fragment:
	case !p.isLocal(&ip.Dst):
		drop = inet.DropNotOurs
	case p.isLocal(&ip.Src) || !p.possible(&ip.Src):
		drop = inet.DropSource // RFC 9293 MUST-63
	case fragment:
		p.fragment4(src, &ip, payload, datagram)
		return true
	case ip.Proto == inet.ProtoTCP:
		return p.tcp(b, src, &ip.Src, &ip.Dst, ip.TOS, payload, good)
	case ip.Proto == inet.ProtoICMP:
		return p.icmp(b, src, &ip, payload, l3)
	default:
		drop = inet.DropProto
		code := uint8(inet.ICMPProtoUnreachable)
		if ip.Proto == inet.ProtoUDP { // it is spoken of, but nobody listens
			code = inet.ICMPPortUnreachable
		}
		p.report4(&src, &ip.Dst, &ip.Src, inet.ICMPUnreachable, code, 0, datagram[:ip.TotalLen])
	}
	p.n.Inet[drop]++
	return true
}

// tcp checks and decodes a segment and finds its connection.
func (p *Poller) tcp(b mem.Buf, src inet.MAC, remote, local *inet.Addr, tos uint8, octets []byte, good bool) bool {
	if !good && inet.Checksum(octets, inet.PseudoSum(*remote, *local, inet.ProtoTCP, len(octets))) != 0 {
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
		if l := p.listeners[s.DstPort]; l != nil {
			return p.reopen(l, c, b, src, s)
		}
	}
	if good && p.rxAt+1 < p.rxEnd && p.join(c, b, octets) {
		return p.inputJoined(c, b, payload)
	}
	return p.input(c, b, payload)
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

// reopen lets a SYN take the place of a connection in TIME-WAIT. Our sequence numbers go on beyond the old ones (RFC
// 9293 section 3.6.1).
func (p *Poller) reopen(l *listener, c *Conn, b mem.Buf, src inet.MAC, s *tcp.Segment) bool {
	id, iss := c.id, p.initialSeq(&c.id)
	if beyond := c.tcp.SndNxt() + 1; iss.Less(beyond) {
		iss = beyond
	}
	p.n.TimeWaitCut++
	p.cutTimeWait(c)
	return p.passiveOpen(l, b, src, &id, s, iss)
}

// input gives the decoded segment to its connection: Input, Arrive, Commit, Edge, events, in this order, but for
// the handshake's end, which comes before the octets it may carry.
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
			c.fail(ErrUnread)
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
