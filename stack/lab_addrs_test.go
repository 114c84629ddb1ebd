package stack

import (
	"slices"

	"github.com/rnicd/rnicd/internal/inet"
)

// said is a frame of a host that is about addresses, and when it was sent.
type said struct {
	at    int64
	what  string // probe, announce, request, reply; ns, na
	addr  string // the target
	frame []byte
}

// aboutAddrs reads a frame; ok is false when it is about something else.
func aboutAddrs(f []byte) (s said, ok bool) {
	eth, b, _ := inet.ParseEthernet(f)
	switch eth.Type {
	case inet.EtherTypeARP:
		a, d := inet.ParseARP(b)
		s = said{what: "request", addr: a.TargetIP.String()}
		switch {
		case d != inet.DropNone:
			return s, false
		case a.Op == inet.ARPReply:
			s.what = "reply"
		case a.SenderIP.IsUnspecified():
			s.what = "probe"
		case a.SenderIP == a.TargetIP:
			s.what = "announce"
		}
		return s, true
	case inet.EtherTypeIPv6:
		ip, m, _ := inet.ParseIPv6(b)
		if ip.NextHeader != inet.ProtoICMPv6 || m[0] != inet.NDNeighbourSolicitation &&
			m[0] != inet.NDNeighbourAdvert {
			return s, false
		}
		s = said{what: map[byte]string{inet.NDNeighbourSolicitation: "ns",
			inet.NDNeighbourAdvert: "na"}[m[0]]}
		if ip.Src.IsUnspecified() {
			s.what = "probe"
		}
		if ip.Dst == inet.AllNodes {
			s.what = "announce"
		}
		s.addr = inet.Addr(m[8:24]).String()
		return s, true
	}
	return s, false
}

// listenTo collects what h says about addresses, from now on.
func (l *lab) listenTo(h *host) *[]said {
	all := &[]said{}
	begin := l.now
	h.nic.onSend = func(f []byte) {
		if s, ok := aboutAddrs(f); ok {
			s.at, s.frame = l.now-begin, slices.Clone(f)
			*all = append(*all, s)
		}
	}
	return all
}

// of selects what was said about addr, in words.
func of(all []said, addr string) (words []string, at []int64) {
	for _, s := range all {
		if s.addr == addr {
			words, at = append(words, s.what), append(at, s.at)
		}
	}
	return words, at
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
