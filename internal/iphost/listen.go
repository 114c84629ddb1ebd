package iphost

import (
	"github.com/rnicd/rnicd/internal/inet"
)

// Switches that snoop pass a multicast frame only to ports that asked for its group, so neighbours
// reach us, and find our addresses taken, only if routers and switches are told of our
// solicited-node groups: inet.Listener does that. Of the Hosts of a Shared one speaks for all.
// docs/adr/0034-multicast-listener.md says why it is so.

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
	for max(h.listener.Deadline(), h.listenAt) <= now {
		f, ok := h.frame(&inet.AllNodes)
		if !ok {
			h.listenAt = now + retryNs
			break
		}
		to, n := h.listener.Output(now, f.payload[:min(len(f.payload), inet.IPv6MTUMin-inet.IPv6Len)])
		if n == 0 {
			h.link.Send(0)
			break
		}
		work++
		src := h.listener.Source()
		// Lost, as on a link, if there is no room: Reports of a change are repeated.
		f.send(n, &packet{
			src: &src, dst: &to, proto: inet.ProtoHopByHop, ttl: inet.MLDHopLimit,
		}, to.GroupMAC())
	}
	return work
}
