package iphost

import (
	"github.com/rnicd/rnicd/internal/inet"
)

// Reassemble adds a fragment of a datagram to us. whole, if not nil, is the datagram's payload, of
// the protocol, good until the next call.
func (h *Host) Reassemble(
	now int64, f *inet.Fragment,
) (whole []byte, proto uint8, drop inet.Drop) {
	h.n.Fragments++
	whole, proto, drop = h.fragments.Add(now, f)
	h.n.ReassemblyEvicted = h.fragments.Evicted()
	h.schedule(now)
	if drop != inet.DropNone {
		return nil, 0, drop
	}
	if whole != nil {
		h.n.Reassembled++
	}
	return whole, proto, inet.DropNone
}

// ReassembledTOS is that of the datagram that Reassemble has made whole.
func (h *Host) ReassembledTOS() uint8 { return h.fragments.TOS() }

// expireFragments gives up datagrams whose rest did not come, and tells their senders.
func (h *Host) expireFragments(now int64) (work int) {
	for {
		quote, condemned, ok := h.fragments.Expire(now)
		if !ok {
			return work
		}
		work++
		h.n.ReassemblyTimeouts++
		if quote != nil && !condemned {
			h.reassemblyExceeded(now, quote)
		}
	}
}

// reassemblyExceeded tells the sender of packet, a fragment at offset 0, that the rest did not
// come.
func (h *Host) reassemblyExceeded(now int64, packet []byte) {
	typ := uint8(inet.ICMPTimeExceeded)
	var src, dst inet.Addr
	if packet[0]>>4 == 4 {
		src, dst = inet.AddrFrom4([4]byte(packet[16:])), inet.AddrFrom4([4]byte(packet[12:]))
	} else {
		src, dst = inet.Addr(packet[24:40]), inet.Addr(packet[8:24])
		typ = inet.ICMP6TimeExceeded
	}
	h.Report(now, nil, &src, &dst, typ, inet.ICMPReassemblyExceeded, 0, packet)
}
