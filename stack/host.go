package stack

import (
	"net/netip"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
)

// What the Poller has on its link that belongs to no connection is an iphost.Host's. Here is what
// lies between: frames that the Host sends, and news of it that connections have to hear.

// hostConfig is what cfg says of the Host.
func (cfg *Config) hostConfig() iphost.Config {
	h := iphost.Config{
		MAC: cfg.MAC, Routes: cfg.Routes, VLAN: cfg.VLAN, MTU: cfg.MTU,
		TTL: cfg.TTL, KeepTTL: cfg.ttlGiven,
		QuickDAD: cfg.QuickDAD, NoDAD: cfg.NoDAD, NoAnnounce: cfg.NoAnnounce, Discover: cfg.Discover,
		ErrorsMax: cfg.ICMPPerSec, Member: cfg.Member,
		Reassembly: cfg.Reassembly, PathMTU: cfg.PathMTU,
	}
	all := append([]netip.Prefix{cfg.Addr}, cfg.Addrs...)
	h.Addrs = iphost.WithLinkLocal(all, cfg.MAC)
	if cfg.Gateway.IsValid() {
		to := netip.PrefixFrom(netip.IPv4Unspecified(), 0)
		if cfg.Gateway.Is6() {
			to = netip.PrefixFrom(netip.IPv6Unspecified(), 0)
		}
		h.Routes = append([]inet.Route{{Prefix: to, Gateway: cfg.Gateway}}, cfg.Routes...)
	}
	if cfg.Group != nil {
		h.Shared = cfg.Group.addrs
	}
	return h
}

// CheckHost says what New would refuse of addresses, routes, VLAN and MTU. Any goroutine.
func (cfg *Config) CheckHost() error {
	h := cfg.hostConfig()
	return h.Check()
}

// newHost makes p's Host.
func (p *Poller) newHost() *iphost.Host {
	h := p.cfg.hostConfig()
	h.Seed = p.secret.prf(useListener, nil)
	h.Random = func(octets []byte) uint64 { return p.secret.prf(useDelay, octets) }
	p.link = hostLink{tx: &p.tx, now: &p.now, b: mem.NoBuf}
	return iphost.New(h, p.now, &p.link, p.neighbours)
}

// hostLink is how the Host sends: an iphost.Link.
type hostLink struct {
	tx  *transmitter
	now *int64  // the Poller's
	b   mem.Buf // of Room
}

// room is where the frame begins in its Buf's slot: as far in front of the headroom as the headers
// of a packet without octets of TCP are long.
func (l *hostLink) room() int { return l.tx.pool.Headroom() - hostHeadersMax }

const hostHeadersMax = inet.EthernetLen + inet.VLANLen + inet.IPv6Len

// Room implements iphost.Link. What came to another member of the Group that one answers.
func (l *hostLink) Room() []byte {
	if l.tx.mute {
		return nil
	}
	if l.b = l.tx.pool.Alloc(); l.b == mem.NoBuf {
		l.tx.counters.Own[DropNoBuf]++
		return nil
	}
	return l.tx.pool.Slot(l.b)[l.room():]
}

// take is the Buf of Room, with a frame of n octets.
func (l *hostLink) take(n int) mem.Buf {
	d := l.tx.pool.Desc(l.b)
	d.Off, d.Len, d.Flags = uint32(l.room()), uint32(n), 0
	return l.b
}

// Send implements iphost.Link.
func (l *hostLink) Send(n int) bool {
	b := l.take(n)
	if n == 0 || !l.tx.reply(b, inet.MAC(l.tx.pool.Data(b))) {
		l.tx.dead.add(b)
		return n == 0
	}
	return true
}

// SendBy implements iphost.Link.
func (l *hostLink) SendBy(n int, hop inet.Addr) {
	b := l.take(n)
	l.tx.meta[b] = bufMeta{conn: noConn, freeAfter: true, ahead: true}
	l.tx.forgetHop()
	l.tx.send(*l.now, b, hop)
}

// heedHost acts on what has changed at the Host.
func (p *Poller) heedHost() {
	news := p.host.TakeNews()
	if news&iphost.NeighbourLearned != 0 {
		p.learned = true
	}
	if news&iphost.AddrGivenUp != 0 {
		p.cfg.Group.rouseAll()
	}
	if news&iphost.AddrChanged != 0 {
		for i := range p.host.Addrs() {
			if a := &p.host.Addrs()[i]; a.State == AddrDuplicate {
				p.syns.dropOf(p.now, &a.Addr)
			}
		}
		p.addrWaiters.tell()
	}
	if news&iphost.RoutesChanged != 0 {
		p.reroute()
	}
}

// expireHost does what is due at the Host.
func (p *Poller) expireHost() int {
	if p.host.Deadline() > p.now {
		return 0
	}
	return p.host.Expire(p.now)
}

// hostDeadline is when expireHost and heedHost have something to do.
func (p *Poller) hostDeadline() int64 {
	if p.host.HasNews() || p.host.MustHeed() {
		return p.now
	}
	return p.host.Deadline()
}

// reroute asks the routes again for every connection.
func (p *Poller) reroute() {
	for i := range p.slab.conns {
		c := &p.slab.conns[i]
		if c.phase == phaseFree {
			continue
		}
		if hop, ok := p.host.Route(p.now, c.tcp.ID().Remote); ok && hop != c.nextHop {
			c.nextHop = hop
			p.n.Rerouted++
		}
	}
}

// countHost adds what the Host has counted.
func countHost(dst *Counters, now int64, host *iphost.Host) {
	h := host.Counters()
	dst.ARPRequests, dst.ARPReplies, dst.ARPProbes = h.ARPRequests, h.ARPReplies, h.ARPProbes
	dst.NDRequests, dst.NDReplies, dst.RouterAdverts = h.NDRequests, h.NDReplies, h.RouterAdverts
	dst.EchoReplies, dst.ICMPSent = h.EchoReplies, h.ErrorsSent
	dst.Fragments, dst.Reassembled = h.Fragments, h.Reassembled
	dst.AddrDuplicate, dst.AddrConflicts = h.AddrDuplicate, h.AddrConflicts
	dst.AddrDefended, dst.Announcements, dst.LinkUps = h.AddrDefended, h.Announcements, h.LinkUps
	dst.Own[DropDefenceLimited], dst.Own[DropAnnounceLimited] = h.DefenceLimited, h.AnnounceLimited
	dst.Own[DropICMPLimited] = h.ErrorsLimited
	dst.Own[DropNoRoute] += h.NoSource
	dst.Inet[inet.DropReassemblyTimeout] = h.ReassemblyTimeouts
	dst.Inet[inet.DropReassemblyFull] = h.ReassemblyEvicted
	dst.AddrTentative = host.Tentatives()
	dst.Listener = host.Listener(now)
}
