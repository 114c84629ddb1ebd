package vswitch

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// answer tells the station that asked where a shared address is: at the MAC that all of its
// programs have.
func (c *Core) answer(in *port, h *headers, s *station) {
	b := c.pool.Alloc()
	if b == mem.NoBuf {
		in.stats.Drops[NoBuffer]++
		return
	}
	d := c.pool.Desc(b)
	frame := c.pool.Slot(b)[d.Off:]
	e := inet.Ethernet{Dst: h.src, Src: s.mac, Type: inet.EtherTypeARP}
	if h.kind == kindIPv6 {
		e.Type = etherTypeIPv6
	}
	n := inet.EthernetLen
	if h.vid != 0 {
		e.PutVLAN(frame, h.vid)
		n += inet.VLANLen
	} else {
		e.Put(frame)
	}
	if h.kind == kindARP {
		reply := h.arp.Reply(s.mac)
		reply.Put(frame[n:])
		n += inet.ARPLen
	} else {
		n += advertise(frame, n, h, s.mac)
	}
	for ; n < inet.FrameMin; n++ {
		frame[n] = 0
	}
	d.Len = uint32(n)
	c.stats.Answers++
	c.send(in, in, b) // the question came from this port
}

// advertise puts a Neighbour Advertisement at frame[n:] and returns its length. One that asks
// from :: hears it with all nodes.
func advertise(frame []byte, n int, h *headers, mac inet.MAC) int {
	target, _ := h.target()
	to := h.from
	if to.IsUnspecified() {
		to = inet.AllNodes
		group := to.GroupMAC()
		copy(frame, group[:])
	}
	length := inet.PutNeighbourAdvertisement(frame[n+inet.IPv6Len:], mac, target, to, target)
	ip := inet.IPv6{HopLimit: 255, NextHeader: inet.ProtoICMPv6, Src: target, Dst: to,
		PayloadLen: length}
	ip.Put(frame[n:])
	return inet.IPv6Len + length
}
