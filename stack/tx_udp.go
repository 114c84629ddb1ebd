package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
)

// Sent is what became of a datagram that was to be sent.
type Sent uint8

const (
	SentOut  Sent = iota // it is on its way; it may get lost
	SentBusy             // not now: there was no room, or no packet buffer to spare
	// never: no address of ours, no way to the remote end, whose next hop may have failed to answer a
	// moment ago, or longer than the link's MTU
	SentNever
	// not now: the next hop is not known yet, and as many frames wait for it as may. It is known, or
	// given up, when Poller.Resolved has changed
	SentUnresolved
)

// SendUDP sends one datagram, whose octets are those of parts; d.Octets is not looked at. Poller
// goroutine, for Config.OnTurn: it leaves in this Turn. It is not fragmented, and the remote end is
// not an address of ours. To a group it goes with a TTL of 1, and does not come back here.
func (p *Poller) SendUDP(d *Datagram, parts [][]byte) Sent {
	n := inet.UDPLen
	for _, b := range parts {
		n += len(b)
	}
	group := d.Remote.IsMulticast()
	hop, ok := d.Remote, true
	if !group {
		hop, ok = p.host.Route(p.now, d.Remote)
	}
	if !ok || p.stopped || n+iphost.IPLen(&d.Remote) > p.host.LinkMTU(&d.Remote) ||
		d.Local.Is4() != d.Remote.Is4() || !p.host.IsLocal(&d.Local) || p.host.IsLocal(&d.Remote) ||
		!group && !p.host.Possible(&d.Remote) {
		return SentNever
	}
	if known, full := p.neighbours.Knows(&hop); !known && !group {
		switch {
		case p.lost.has(p.now, &hop):
			return SentNever
		case full:
			return SentUnresolved
		}
	}
	x := &p.tx
	if p.pool.Available() <= p.pressure.budget.Reserve || x.n >= x.connMax || x.blocked {
		return SentBusy
	}
	b := p.pool.Alloc()
	if b == mem.NoBuf {
		return SentBusy
	}
	payload := p.pool.Slot(b)[p.pool.Headroom():][:n]
	for at, rest := inet.UDPLen, parts; len(rest) > 0; rest = rest[1:] {
		at += copy(payload[at:], rest[0])
	}
	h := inet.UDP{SrcPort: d.LocalPort, DstPort: d.RemotePort, Length: n}
	h.Put(payload, &d.Local, &d.Remote)
	ttl := uint8(groupTTL)
	if !group {
		ttl = p.host.HopLimit(&d.Remote)
	}
	x.putPacket(b, &d.Local, &d.Remote, inet.ProtoUDP, d.TOS, ttl, n)
	x.meta[b] = bufMeta{conn: noConn, freeAfter: true, queued: group}
	if group {
		x.batch(b, d.Remote.GroupMAC())
		return SentOut
	}
	x.forgetHop()
	x.send(p.now, b, hop)
	return SentOut
}

// IsLocal says whether a is an address of ours that is in use. Poller goroutine.
func (p *Poller) IsLocal(a *Addr) bool { return p.host.IsLocal(a) }

// lostHops are the next hops that did not answer lately. A sender of many datagrams would else wait
// again and again.
type lostHops struct {
	hops [lostHopsMax]inet.Addr
	at   [lostHopsMax]int64
	next int
}

const (
	lostHopsMax = 8
	lostNs      = 1_000_000_000 // until a hop is asked for again
)

func (l *lostHops) add(now int64, hop inet.Addr) {
	l.hops[l.next], l.at[l.next] = hop, now
	l.next = (l.next + 1) % lostHopsMax
}

// has says whether hop was lost a moment ago.
func (l *lostHops) has(now int64, hop *inet.Addr) bool {
	for i := range l.hops {
		if l.hops[i] == *hop && now-l.at[i] < lostNs {
			return true
		}
	}
	return false
}
