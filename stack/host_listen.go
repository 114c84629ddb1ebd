package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// Switches that snoop pass a multicast frame only to ports that asked for its group, so neighbours
// reach us, and find our addresses taken, only if routers and switches are told of our
// solicited-node groups: inet.Listener does that. Of the Pollers of a Group one speaks for all.
// docs/adr/0034-multicast-listener.md says why it is so.

// listened handles a message of multicast listener discovery. alert: it came with the Router Alert
// option.
func (p *Poller) listened(ip *inet.IPv6, message []byte, alert bool) {
	m := &p.host.mld
	if drop := inet.ParseMLD(message, ip.Src, ip.Dst, ip.HopLimit, alert, m); drop != inet.DropNone {
		p.n.Inet[drop]++
		return
	}
	if p.speaks() {
		p.host.listener.Input(p.now, m)
		p.schedule()
	}
}

// tellListening sends the messages that are due, of which there are at most two for each group.
func (p *Poller) tellListening() int {
	h := &p.host
	h.listener.SetSource(p.now, p.linkLocal())
	work := 0
	for max(h.listener.Deadline(), h.listenAt) <= p.now {
		b := p.pool.Alloc()
		if b == mem.NoBuf {
			p.n.Own[DropNoBuf]++
			h.listenAt = p.now + claimRetryNs
			break
		}
		room := p.pool.Slot(b)[p.pool.Headroom():]
		to, n := h.listener.Output(p.now, room[:min(len(room), inet.IPv6MTUMin-inet.IPv6Len)])
		if n == 0 {
			p.discard(b)
			break
		}
		work++
		src := h.listener.Source()
		p.putPacket(b, &src, &to, inet.ProtoHopByHop, 0, inet.MLDHopLimit, n)
		if !p.reply(b, to.GroupMAC()) { // lost, as on a link: Reports of a change are repeated
			p.discard(b)
		}
	}
	return work
}

// linkLocal is our link-local address that may be used, or ::.
func (p *Poller) linkLocal() inet.Addr {
	for i := range p.host.local {
		if l := &p.host.local[i]; l.state == AddrUsable && l.addr.IsLinkLocal() {
			return l.addr
		}
	}
	return inet.Addr{}
}
