package stack

import (
	"fmt"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// groupTTL is that of datagrams to a group, which no router is to pass on (RFC 1112 section 6.1).
const groupTTL = 1

// JoinGroup has datagrams received that are sent to a group, an address of multicast, at the ports
// of ListenUDP; routers and switches are told (IGMP, MLD). Poller goroutine; in a Group, of Member
// 0. An address of the group's family must be in use: ErrNotLocal. Other errors: a group joined
// already, 64 of them, ErrStopped.
func (p *Poller) JoinGroup(group Addr) error {
	switch {
	case p.stopped || p.control.stopping.Load():
		return ErrStopped
	case !group.IsMulticast() || p.cfg.Member != 0 || p.host.Joined(&group):
		return fmt.Errorf("stack: group %v cannot be joined here, or is already", group)
	case !p.host.Speaks(group.Is4()):
		return fmt.Errorf("stack: group %v: %w", group, ErrNotLocal)
	case !p.host.Join(p.now, group):
		return fmt.Errorf("stack: group %v: too many", group)
	}
	return nil
}

// LeaveGroup undoes a JoinGroup. Poller goroutine.
func (p *Poller) LeaveGroup(group Addr) { p.host.Leave(p.now, group) }

// group4 handles an IPv4 datagram that came by link multicast or broadcast: IGMP, and UDP to a
// group that was joined.
func (r *receiver) group4(now int64, b mem.Buf, eth *inet.Ethernet, datagram []byte) found {
	flags := r.pool.Desc(b).Flags
	if flags&mem.RxChecksumBad != 0 {
		return r.drop(inet.DropChecksum)
	}
	good := flags&mem.RxChecksumGood != 0
	ip, payload, drop := inet.ParseIPv4(datagram, good)
	switch {
	case drop != inet.DropNone: // fragments, too: nothing we take by multicast may come in them
	case !ip.Dst.IsMulticast() || eth.Dst != ip.Dst.GroupMAC():
		drop = inet.DropNotOurs
	case r.host.IsLocal(&ip.Src):
		drop = inet.DropSource
	case ip.Proto == inet.ProtoIGMP:
		r.member.tell(b)
		drop = r.host.IGMP(now, &ip, datagram[inet.IPv4Len:ip.HdrLen], payload)
	case ip.Proto != inet.ProtoUDP:
		drop = inet.DropNotOurs
	default:
		return r.groupDatagram(b, &ip.Src, &ip.Dst, ip.TOS, payload, good)
	}
	return r.drop(drop)
}

// groupDatagram is udp for a datagram to a group. Nobody is told of one that nobody wants (RFC 1122
// section 3.2.2).
func (r *receiver) groupDatagram(b mem.Buf, remote, group *inet.Addr, tos uint8, octets []byte,
	good bool) found {
	drop := inet.DropNotOurs
	switch {
	case r.host.IsLocal(remote) || !r.host.Possible(remote):
		drop = inet.DropSource
	case len(octets) >= inet.UDPLen &&
		(r.udpPorts[inet.UDPPort(octets)] == nil || r.host.Joined(group)): // nil: another member's
		var f found
		if f, drop = r.udp(b, remote, group, tos, octets, good); f != foundNothing {
			return f
		}
		if drop == inet.DropProto {
			drop = inet.DropNotOurs
		}
	}
	return r.drop(drop)
}
