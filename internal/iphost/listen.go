package iphost

import (
	"slices"

	"github.com/rnicd/rnicd/internal/inet"
)

// Switches that snoop pass a multicast frame only to ports that asked for its group, so neighbours
// reach us, and find our addresses taken, only if routers and switches are told of our
// solicited-node groups, and so it is with groups that the caller joins: inet.Listener does that,
// of IPv6 by MLD and of IPv4 by IGMP. Of the Hosts of a Shared one speaks for all.
// docs/adr/0034-multicast-listener.md says why it is so.

// GroupsMax is how many groups a caller joins at most.
const GroupsMax = 64

// Join takes packets to a group in until Leave, with which it alternates. False: there are
// GroupsMax. Of the Hosts of a Shared it is Member 0's to call.
func (h *Host) Join(now int64, group inet.Addr) bool {
	if len(h.groups) == GroupsMax {
		return false
	}
	h.groups = append(h.groups, group)
	if told(&group) {
		h.listenerOf(&group).Join(now, group)
		h.schedule(now)
	}
	return true
}

// Leave undoes a Join.
func (h *Host) Leave(now int64, group inet.Addr) {
	i := slices.Index(h.groups, group)
	if i < 0 {
		return
	}
	h.groups = slices.Delete(h.groups, i, i+1)
	if told(&group) {
		h.listenerOf(&group).Leave(now, group)
		h.schedule(now)
	}
}

// LeaveAll is Leave of each group, at the end: what is to be said is said at once.
func (h *Host) LeaveAll(now int64) {
	for len(h.groups) > 0 {
		h.Leave(now, h.groups[0])
	}
	h.tellListening(now)
}

// Joined says whether a group was joined.
func (h *Host) Joined(group *inet.Addr) bool { return slices.Contains(h.groups, *group) }

func (h *Host) listenerOf(group *inet.Addr) *inet.Listener {
	if group.Is4() {
		return h.listener4
	}
	return h.listener
}

// told says whether routers are told of a group: not of that of all nodes, nor of those that stay
// within a host (RFC 3376 section 6, RFC 3810 section 6).
func told(group *inet.Addr) bool {
	return *group != inet.AllNodes4 && *group != inet.AllNodes && (group.Is4() || group[1]&0xf > 1)
}

// renew reports all groups of the caller as if they were new.
func (h *Host) renew(now int64) {
	for i := range h.groups {
		h.listenerOf(&h.groups[i]).Renew(now, h.groups[i])
	}
}

// IGMP handles a message that came in the packet ip with those options.
func (h *Host) IGMP(now int64, ip *inet.IPv4, options, message []byte) inet.Drop {
	m := &h.mld
	drop := inet.ParseIGMP(ip, options, message, m)
	if drop == inet.DropNone && h.speaks() {
		h.listener4.Input(now, m)
		h.schedule(now)
	}
	return drop
}

// listen wants the solicited-node group of l, or, where it is wanted already, has it reported as if
// it were new.
func (h *Host) listen(now int64, l *Address) {
	switch group := l.Addr.SolicitedNode(); {
	case l.Addr.Is4() || !h.speaks():
	case l.listening:
		h.listener.Renew(now, group)
	default:
		l.listening = true
		h.listener.Join(now, group)
	}
}

// unlisten is called when l is not ours any more.
func (h *Host) unlisten(now int64, l *Address) {
	if l.listening {
		l.listening = false
		h.listener.Leave(now, l.Addr.SolicitedNode())
	}
}

// listened handles a message of multicast listener discovery. alert: it came with the Router Alert
// option.
func (h *Host) listened(now int64, ip *inet.IPv6, message []byte, alert bool) inet.Drop {
	m := &h.mld
	drop := inet.ParseMLD(message, ip.Src, ip.Dst, ip.HopLimit, alert, m)
	if drop == inet.DropNone && h.speaks() {
		h.listener.Input(now, m)
		h.schedule(now)
	}
	return drop
}

// tellListening sends the messages that are due, of which there are at most two for each group.
func (h *Host) tellListening(now int64) (work int) {
	h.listener.SetSource(now, h.linkLocal())
	h.listener4.SetSource(now, h.first4())
	for h.listenDeadline() <= now {
		l := h.listener
		if h.listener4.Deadline() <= now {
			l = h.listener4
		}
		if !h.tell(now, l) {
			break
		}
		work++
	}
	return work
}

// tell sends the message of a Listener that is due.
func (h *Host) tell(now int64, l *inet.Listener) bool {
	room := h.link.Room()
	if room == nil {
		h.listenAt = now + retryNs
		return false
	}
	headers := h.LinkLen() + inet.IPv6Len
	if l == h.listener4 {
		headers = h.LinkLen() + inet.IGMPHeaderLen
	}
	payload := room[headers:]
	to, n := l.Output(now, payload[:min(len(payload), inet.IPv6MTUMin-inet.IPv6Len)])
	if n == 0 {
		h.link.Send(0)
		return false
	}
	if src := l.Source(); l == h.listener4 {
		h.putEthernet(room, to.GroupMAC(), inet.EtherTypeIPv4)
		inet.PutIGMPHeader(room[h.LinkLen():], src, to, n)
	} else {
		h.putEthernet(room, to.GroupMAC(), inet.EtherTypeIPv6)
		ip := inet.IPv6{PayloadLen: n, NextHeader: inet.ProtoHopByHop, HopLimit: inet.MLDHopLimit,
			Src: src, Dst: to}
		ip.Put(room[h.LinkLen():])
	}
	// Lost, as on a link, if there is no room: Reports of a change are repeated.
	h.link.Send(headers + n)
	return true
}

// first4 is our first IPv4 address that may be used, or 0.0.0.0.
func (h *Host) first4() inet.Addr {
	for i := range h.addrs {
		if l := &h.addrs[i]; l.State == Usable && l.Addr.Is4() {
			return l.Addr
		}
	}
	return inet.AddrFrom4([4]byte{})
}
