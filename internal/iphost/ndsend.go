package iphost

import "github.com/rnicd/rnicd/internal/inet"

// solicit sends a Neighbour Solicitation from src for target: to its group when mac is Broadcast,
// else to the neighbour itself. False: there was no room.
func (h *Host) solicit(now int64, src, target inet.Addr, mac inet.MAC) bool {
	h.claims(now, &src)
	to := target
	if mac == inet.Broadcast {
		to = target.SolicitedNode()
		mac = to.GroupMAC()
	}
	f, ok := h.frame(&to)
	if !ok {
		return false
	}
	n := inet.PutNeighbourSolicitation(f.payload, h.cfg.MAC, src, to, target)
	if !f.sendND(n, &src, &to, mac) {
		return false
	}
	h.n.NDRequests++
	return true
}

// advertise sends a Neighbour Advertisement for target, which is ours: an answer, or to all nodes.
// False: there was no room.
func (h *Host) advertise(now int64, target, to inet.Addr, mac inet.MAC) bool {
	h.claims(now, &target)
	f, ok := h.frame(&to)
	if !ok {
		return false
	}
	n := inet.PutNeighbourAdvertisement(f.payload, h.cfg.MAC, target, to, target)
	return f.sendND(n, &target, &to, mac)
}
