package stack

import (
	"encoding/binary"

	"github.com/rnicd/rnicd/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
)

// Codes of inet.ICMPUnreachable that are hard errors (RFC 9293 section 3.9.2.2); inet.ICMPFragNeeded is path MTU
// discovery's.
const (
	icmpProtocol = 2
	icmpPort     = 3
)

// icmp handles an ICMP message and returns whether b is done with.
func (p *Poller) icmp(b mem.Buf, src inet.MAC, ip *inet.IPv4, message []byte) bool {
	// The device's verdict covers IP and TCP checksums, not ICMP's: it is always checked here.
	if len(message) > 0 && message[0] == inet.ICMPEcho {
		return p.echo(b, src, ip, message)
	}
	e, ok := inet.ParseICMPError(message)
	if !ok {
		p.n.Inet[inet.DropBadICMP]++
		return true
	}
	p.icmpError(&e)
	return true
}

// echo answers a ping in its own Buf. IP options are not returned: the header becomes 20 octets, put right in front
// of the message.
func (p *Poller) echo(b mem.Buf, src inet.MAC, ip *inet.IPv4, message []byte) bool {
	if !inet.EchoReply(message, false) {
		p.n.Inet[inet.DropBadICMP]++
		return true
	}
	d := p.pool.Desc(b)
	d.Off += uint32(ip.HdrLen - inet.IPv4Len)
	d.Len = uint32(tcpAt + len(message))
	d.Flags = 0
	frame := p.pool.Data(b)
	eth := inet.Ethernet{Src: p.mac, Type: inet.EtherTypeIPv4}
	eth.Put(frame)
	out := inet.IPv4{
		TOS: ip.TOS, ID: ip.ID, DF: true, TTL: p.cfg.TTL, Proto: inet.ProtoICMP, Src: ip.Dst, Dst: ip.Src,
		HdrLen: inet.IPv4Len, TotalLen: inet.IPv4Len + len(message),
	}
	out.Put(frame[inet.EthernetLen:])
	if !p.reply(b, src) {
		return true
	}
	p.n.EchoReplies++
	return false
}

// icmpError acts on an error about a segment of ours that is still unacknowledged (RFC 5927 section 4.1: the quoted
// sequence number proves the router saw it). Hard errors end only a connection that is being opened (section 5.2), a
// path MTU lowers the EMSS of any, the rest is advice.
func (p *Poller) icmpError(e *inet.ICMPError) {
	if e.Proto != inet.ProtoTCP || e.Src != p.addr || len(e.Quoted) < 8 {
		p.n.ICMPIgnored++
		return
	}
	id := tcp.ID{
		Local: e.Src, Remote: e.Dst,
		LocalPort: binary.BigEndian.Uint16(e.Quoted), RemotePort: binary.BigEndian.Uint16(e.Quoted[2:]),
	}
	i := p.table.find(&id)
	if i == noConn {
		p.n.ICMPIgnored++
		return
	}
	c := &p.slab.conns[i]
	opening := c.tcp.State() == tcp.SynSent
	seq := tcp.Seq(binary.BigEndian.Uint32(e.Quoted[4:]))
	switch {
	case opening && seq != c.iss, !opening && !c.inFlight(seq):
		p.n.ICMPIgnored++
	case e.Type == inet.ICMPUnreachable && e.Code == inet.ICMPFragNeeded:
		p.pathMTU(c, int(e.MTU))
	case opening && e.Type == inet.ICMPUnreachable && (e.Code == icmpProtocol || e.Code == icmpPort):
		p.n.ICMPHard++
		p.abort(c, ErrRefused)
	default:
		p.n.ICMPSoft++
		if e.Type == inet.ICMPUnreachable {
			p.advise(c, ErrNoRoute)
		}
	}
}

// inFlight says whether seq is of an octet pulled and not acknowledged.
func (c *Conn) inFlight(seq tcp.Seq) bool {
	acked := c.tcp.AckedOffset()
	return uint64(uint32(seq-(c.iss+1+tcp.Seq(acked)))) < c.tcp.PushedOffset()-acked
}

// pathMTU lowers c's EMSS (RFC 1191 section 3). A router older than that RFC says 0: then the least that every path
// carries. Nothing raises it again while the connection lives.
func (p *Poller) pathMTU(c *Conn, mtu int) {
	mtu = max(mtu, mtuMin)
	if mtu >= p.cfg.MTU {
		p.n.ICMPIgnored++
		return
	}
	p.n.PathMTU++
	c.tcp.SetEMSSLimit(mtu - inet.IPv4Len - tcpHeaderLen)
	p.touch(c)
}
