package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
	"github.com/rnicd/rnicd/mem"
)

// putPacket makes the n octets at b's headroom the payload of an IP packet, and of a frame without
// its destination.
func (x *transmitter) putPacket(b mem.Buf, src, dst *inet.Addr, proto, tos, ttl uint8, n int) {
	l3 := iphost.IPLen(dst)
	h := x.pool.Headroom()
	off := h - l3 - x.l2
	frame := x.pool.Slot(b)[off : h+n]
	if l3 == inet.IPv4Len {
		x.putEthernet(frame, inet.EtherTypeIPv4)
		ip := inet.IPv4{TOS: tos, DF: true, TTL: ttl, Proto: proto, Src: *src, Dst: *dst,
			TotalLen: inet.IPv4Len + n}
		ip.Put(frame[x.l2:])
	} else {
		x.putEthernet(frame, inet.EtherTypeIPv6)
		ip := inet.IPv6{TrafficClass: tos, PayloadLen: n, NextHeader: proto, HopLimit: ttl,
			Src: *src, Dst: *dst}
		ip.Put(frame[x.l2:])
	}
	d := x.pool.Desc(b)
	d.Off, d.Len, d.Flags = uint32(off), uint32(len(frame)), 0
}

// putEthernet writes the link header of a frame of ours, all but the destination.
func (x *transmitter) putEthernet(frame []byte, typ uint16) {
	eth := inet.Ethernet{Src: x.cfg.MAC, Type: typ}
	if x.cfg.VLAN != 0 {
		eth.PutVLAN(frame, x.cfg.VLAN)
		return
	}
	eth.Put(frame)
}
