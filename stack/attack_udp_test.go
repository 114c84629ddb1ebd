package stack

import (
	"encoding/binary"
	"net/netip"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// answering sends each datagram back, as a program may.
type answering struct {
	p             *Poller
	octets        int
	received, out uint64
}

func (*answering) Unreachable(*Datagram) {}

func (a *answering) Datagram(d *Datagram) {
	a.received++
	a.octets = max(a.octets, len(d.Octets))
	if a.p.SendUDP(d, [][]byte{d.Octets}) == SentOut {
		a.out++
	}
}

// udpPort is where the datagrams of udpFloods come to.
const udpPort = 4000

// answers has b answer what comes there.
func answers(s *siege) {
	s.mailbox = &answering{p: s.b.Poller}
	require.NoError(s.t, s.b.ListenUDP(udpPort, s.mailbox))
}

// datagram is one to b, of n octets.
func (s *siege) datagram(from netip.Addr, n int) []byte {
	src, dst := inet.AddrFrom(from), inet.AddrFrom(s.b.addr)
	b := make([]byte, inet.UDPLen+n)
	h := inet.UDP{SrcPort: s.port(), DstPort: udpPort, Length: len(b)}
	h.Put(b, &src, &dst)
	return packet(mallory, s.b.mac, from, s.b.addr, inet.ProtoUDP, b)
}

// elsewhere is a station that there is: what goes there leaves.
var elsewhere = netip.AddrFrom4([4]byte{10, 0, 0, 3})

var udpFloods = []flood{{
	name: "datagrams that are answered", begin: func(s *siege) {
		answers(s)
		s.b.neighbours.Learn(s.now, inet.AddrFrom(elsewhere), mallory, true)
	},
	frame: func(s *siege) []byte { return s.datagram(elsewhere, 1000) },
	check: func(s *siege, n, before Counters, sent uint64) {
		require.Equal(s.t, sent, s.mailbox.received)
		require.Equal(s.t, 1000, s.mailbox.octets)
		require.Equal(s.t, sent, s.mailbox.out)
	},
}, {
	name: "datagrams that are answered, from invented stations", begin: answers, tune: fewNeighbours,
	frame: func(s *siege) []byte { return s.datagram(s.anybody(), 1000) },
	check: func(s *siege, n, before Counters, sent uint64) {
		require.Equal(s.t, sent, s.mailbox.received)
		require.LessOrEqual(s.t, s.b.neighbours.Stats().Entries, 32)
	},
}, {
	name: "datagrams with a wrong checksum", begin: answers,
	frame: func(s *siege) []byte {
		f := s.datagram(s.anybody(), 10)
		f[len(f)-1] ^= 1
		return f
	},
	check: droppedInet(inet.DropChecksum),
}, {
	name: "datagrams longer, or shorter, than they say", begin: answers,
	frame: func(s *siege) []byte {
		f := s.datagram(s.anybody(), 10)
		f[tcpAt+4] = byte(s.r.Uint32())
		f[tcpAt+5] = byte([]int{0, inet.UDPLen - 1, inet.UDPLen + 11, 255}[s.r.IntN(4)])
		if f[tcpAt+4] == 0 && f[tcpAt+5] == 0 {
			f[tcpAt+5]++
		}
		return f
	},
	check: droppedInet(inet.DropTotalLen),
}, {
	name: "datagrams from stations that cannot be", begin: answers,
	frame: func(s *siege) []byte {
		return s.datagram([]netip.Addr{s.b.addr, netip.IPv4Unspecified(),
			netip.AddrFrom4([4]byte{255, 255, 255, 255}), netip.AddrFrom4([4]byte{10, 0, 0, 255}),
			netip.AddrFrom4([4]byte{224, 0, 0, 1}), netip.AddrFrom4([4]byte{127, 0, 0, 1}),
		}[s.r.IntN(6)], 10)
	},
	check: func(s *siege, n, before Counters, sent uint64) {
		droppedInet(inet.DropSource)(s, n, before, sent)
		require.Zero(s.t, s.mailbox.received)
	},
}, {
	name: "datagrams to groups that nobody wants", begin: answers,
	frame: func(s *siege) []byte {
		return s.toGroup(byte(s.r.Uint32()), inet.ProtoUDP, make([]byte, 64))
	},
	check: droppedInet(inet.DropNotOurs),
}, {
	name: "Queries for 64 groups, one by one and for all", begin: func(s *siege) {
		for i := range 64 {
			require.NoError(s.t, s.b.JoinGroup(inet.AddrFrom4([4]byte{239, 0, 0, byte(i)})))
		}
	},
	frame: func(s *siege) []byte {
		q := []byte{0x11, 0, 0, 0, 239, 0, 0, byte(s.r.IntN(64)), 2, 125, 0, 0}
		if s.r.IntN(2) == 0 {
			q = []byte{0x11, 0, 0, 0, 0, 0, 0, 0, 2, 125, 0, 0}
		}
		return s.toGroup(q[7], inet.ProtoIGMP, q)
	},
	check: func(s *siege, n, before Counters, sent uint64) {
		require.Equal(s.t, sent, n.Listener.Queries-before.Listener.Queries)
		require.LessOrEqual(s.t, n.Listener.Reports-before.Listener.Reports,
			uint64(siegeTicks*tickNs/(second/100)+4))
	},
}}

// toGroup is what mallory sends to 239.0.0.x; IGMP, of a Query, to where that belongs.
func (s *siege) toGroup(x byte, proto uint8, b []byte) []byte {
	dst := inet.AddrFrom4([4]byte{239, 0, 0, x})
	if proto == inet.ProtoUDP {
		return packet(mallory, dst.GroupMAC(), elsewhere, dst.Netip(), proto, b)
	}
	if b[4] == 0 {
		dst = inet.AllNodes4
	}
	binary.BigEndian.PutUint16(b[2:], inet.Checksum(b, 0))
	f := make([]byte, inet.EthernetLen+inet.IGMPHeaderLen)
	eth := inet.Ethernet{Dst: dst.GroupMAC(), Src: mallory, Type: inet.EtherTypeIPv4}
	eth.Put(f)
	inet.PutIGMPHeader(f[inet.EthernetLen:], inet.AddrFrom(elsewhere), dst, len(b))
	return append(f, b...)
}
