// Package inet holds the codecs and tables below TCP: Ethernet, ARP, IPv4, ICMP, checksums, neighbours.
package inet

import "net/netip"

// MAC is an Ethernet address.
type MAC [6]byte

var Broadcast = MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}

func (m MAC) String() string { panic("skeleton") }

// Addr is an IP address without pointers: 16 octets, IPv4 in its v4-mapped form.
type Addr [16]byte

func AddrFrom(a netip.Addr) Addr   { panic("skeleton") }
func AddrFrom4(b [4]byte) Addr     { panic("skeleton") }
func (a Addr) Is4() bool           { panic("skeleton") }
func (a Addr) As4() [4]byte        { panic("skeleton") }
func (a Addr) Netip() netip.Addr   { panic("skeleton") } // unmapped
func (a Addr) IsUnspecified() bool { panic("skeleton") }
func (a Addr) IsMulticast() bool   { panic("skeleton") }
func (a Addr) IsBroadcast() bool   { panic("skeleton") } // 255.255.255.255
func (a Addr) String() string      { panic("skeleton") }
