package stack

import (
	"slices"

	"github.com/rnicd/rnicd/internal/inet"
)

// aboutAddrs reads a frame: probe, announce, request, reply, ns or na, and its target. ok is false
// when it is about something else.
func aboutAddrs(f []byte) (what, addr string, ok bool) {
	eth, b, _ := inet.ParseEthernet(f)
	switch eth.Type {
	case inet.EtherTypeARP:
		a, d := inet.ParseARP(b)
		what = "request"
		switch {
		case a.Op == inet.ARPReply:
			what = "reply"
		case a.SenderIP.IsUnspecified():
			what = "probe"
		case a.SenderIP == a.TargetIP:
			what = "announce"
		}
		return what, a.TargetIP.String(), d == inet.DropNone
	case inet.EtherTypeIPv6:
		ip, m, _ := inet.ParseIPv6(b)
		if ip.NextHeader != inet.ProtoICMPv6 || m[0] != inet.NDNeighbourSolicitation &&
			m[0] != inet.NDNeighbourAdvert {
			return "", "", false
		}
		what = map[byte]string{inet.NDNeighbourSolicitation: "ns", inet.NDNeighbourAdvert: "na"}[m[0]]
		if ip.Src.IsUnspecified() {
			what = "probe"
		}
		if ip.Dst == inet.AllNodes {
			what = "announce"
		}
		return what, inet.Addr(m[8:24]).String(), true
	}
	return "", "", false
}

// listenTo collects what hosts say about addresses, from now on: after each address, in words.
func (l *lab) listenTo(hosts ...*host) map[string]string {
	all := map[string]string{}
	for _, h := range hosts {
		h.nic.onSend = func(f []byte) {
			if what, addr, ok := aboutAddrs(f); ok {
				all[addr] += " " + what
			}
		}
	}
	return all
}

// claiming has host b check and announce its addresses.
func claiming(i int, cfg *Config) {
	if i == 1 {
		cfg.NoDAD, cfg.NoAnnounce = false, false
	}
}

var (
	rivalMAC = inet.MAC{2, 0, 0, 0, 0, 0x77}
	theirs   = inet.AddrFrom4([4]byte{10, 0, 0, 2}) // which is host b's
)

// arpFrame is an ARP packet to all.
func arpFrame(a inet.ARP) []byte {
	f := make([]byte, inet.EthernetLen+inet.ARPLen)
	eth := inet.Ethernet{Dst: inet.Broadcast, Src: a.SenderMAC, Type: inet.EtherTypeARP}
	eth.Put(f)
	a.Put(f[inet.EthernetLen:])
	return f
}

func (h *host) status(addr string) AddrStatus {
	i := slices.IndexFunc(h.addrs(), func(s AddrStatus) bool { return s.Addr.String() == addr })
	return h.addrs()[i]
}
