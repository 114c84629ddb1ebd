package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// receive takes bursts from the device, one more while they come full and are not many octets, and
// returns how many frames there were.
func (p *Poller) receive() int {
	work := 0
	p.moreFrames = true
	enough := p.n.RxOctets + receivedOctetsMax
	for range burstsPerTurnMax {
		n := p.queue.Rx(p.rx)
		p.prefetchFrames(p.rx[:n])
		p.prefetchBurst(p.rx[:n])
		p.rxEnd = n
		for p.rxAt = 0; p.rxAt < n; p.rxAt++ { // which coalesce moves, too
			b := p.rx[p.rxAt]
			p.n.RxFrames++
			if p.frame(b) {
				p.discard(b)
			}
		}
		work += n
		if n < len(p.rx) { // the last, whose Bufs the flush at the end of the Turn gives back
			p.moreFrames = false
			break
		}
		if p.n.RxOctets >= enough {
			break
		}
		p.freeDead()
	}
	return work
}

// frame handles one frame and returns whether b is done with: not when it was kept or became a
// reply.
func (p *Poller) frame(b mem.Buf) bool {
	data := p.pool.Data(b)
	p.n.RxOctets += uint64(len(data))
	eth, payload, drop := inet.ParseEthernet(data)
	if drop != inet.DropNone {
		p.n.Inet[drop]++
		return true
	}
	// RFC 9293 MUST-57, RFC 1122 section 3.2.2: what came by link broadcast is not answered, ARP
	// excepted.
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
		return p.ipv4(b, eth.Src, payload)
	case eth.Type == inet.EtherTypeIPv6 && p.host.HasIPv6():
		return p.ipv6(b, eth.Src, payload, group)
	case eth.Type == inet.EtherTypeARP:
		p.tellGroup(b)
		p.dropped(p.host.ARP(p.now, payload))
		return true
	}
	p.n.Inet[inet.DropEtherType]++
	return true
}

// untag takes the VLAN tag off. It must be ours, or, where we are on no VLAN, one that has a
// priority alone (IEEE 802.1Q section 6.8: VID 0). Where we are on a VLAN, untagged frames are not
// for us, nor those with a priority alone, which count as untagged (section 6.9.1), nor those of
// other VLANs: a station outside a VLAN must not get in.
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
