package vswitch

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
)

// answer tells the station that asked where a shared address is: at the MAC that all of its
// programs have.
func (c *Core) answer(in *port, h *headers, s *station) {
	if c.reply(in, h, s.mac) {
		c.stats.Answers++
	}
}

// refuse tells a program that looks whether an address is free that it is not: the address, or the
// MAC that it has with it, is none of the program's, and all that it sends would be dropped. A
// program with a wrong configuration so hears of it at its start.
func (c *Core) refuse(in *port, h *headers) { c.reply(in, h, inet.SwitchMAC) }

// probe says whether a frame asks if an address is free (RFC 5227, 2.1.1; RFC 4862, 5.4.2).
func (h *headers) probe() bool {
	if h.kind == kindARP {
		return h.arp.Op == inet.ARPRequest && h.arp.SenderIP.IsUnspecified()
	}
	typ, _ := h.nd()
	if typ != inet.NDNeighbourSolicitation || !h.from.IsUnspecified() {
		return false
	}
	_, ok := h.target()
	return ok
}

// reply has the station that asked for an address find it at a MAC.
func (c *Core) reply(in *port, h *headers, mac inet.MAC) bool {
	b := c.pool.Alloc()
	if b == mem.NoBuf {
		in.stats.Drops[NoBuffer]++
		return false
	}
	d := c.pool.Desc(b)
	frame := c.pool.Slot(b)[d.Off:]
	e := inet.Ethernet{Dst: h.src, Src: mac, Type: inet.EtherTypeARP}
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
		reply := h.arp.Reply(mac)
		reply.Put(frame[n:])
		n += inet.ARPLen
	} else {
		n += advertise(frame, n, h, mac)
	}
	for ; n < inet.FrameMin; n++ {
		frame[n] = 0
	}
	d.Len = uint32(n)
	c.send(in, in, b) // the question came from this port
	return true
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
