package stack

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// fragments4 cuts the IP datagram in frame into fragments of n octets of payload.
func fragments4(frame []byte, n int) (fs [][]byte) {
	payload := frame[tcpAt:]
	for off := 0; off < len(payload); off += n {
		piece := payload[off:min(off+n, len(payload))]
		f := append(append([]byte(nil), frame[:tcpAt]...), piece...)
		ip, _, _ := inet.ParseIPv4(frame[inet.EthernetLen:], true)
		ip.ID, ip.FragOff, ip.MF, ip.TotalLen = 77, off, off+len(piece) < len(payload),
			inet.IPv4Len+len(piece)
		ip.Put(f[inet.EthernetLen:])
		fs = append(fs, f)
	}
	return fs
}

// fragments6 is fragments4 for IPv6.
func fragments6(frame []byte, n int) (fs [][]byte) {
	const at = inet.EthernetLen + inet.IPv6Len
	payload := frame[at:]
	for off := 0; off < len(payload); off += n {
		piece := payload[off:min(off+n, len(payload))]
		f := append(append([]byte(nil), frame[:at]...), make([]byte, inet.Fragment6Len)...)
		h := inet.Fragment6{NextHeader: frame[inet.EthernetLen+6], Off: off,
			More: off+len(piece) < len(payload), ID: 77}
		h.Put(f[at:])
		f = append(f, piece...)
		f[inet.EthernetLen+6] = inet.ProtoFragment6
		binary.BigEndian.PutUint16(f[inet.EthernetLen+4:], uint16(inet.Fragment6Len+len(piece)))
		fs = append(fs, f)
	}
	return fs
}

// take has h handle a frame as if its queue had received it.
func (h *host) take(frame []byte) {
	b := h.pool.Alloc()
	h.pool.Desc(b).Len = uint32(len(frame))
	copy(h.pool.Data(b), frame)
	h.frame(b)
}

// belongingTo is a TCP segment to 10.0.0.2 whose connection is member's.
func belongingTo(l *lab, member int, flags tcp.Flags, payload []byte) []byte {
	tr := tcp.Transmit{Flags: flags, Seq: 5, Ack: 6, Window: 1000, Handle: tcp.NoHandle}
	tr.ID = tcp.ID{RemotePort: 7, Local: inet.AddrFrom(l.b.addr), Remote: inet.AddrFrom(l.a.addr)}
	for port := uint16(1000); ; port++ {
		if l.b.member.owner(&tcp.ID{Local: tr.ID.Local, Remote: tr.ID.Remote, LocalPort: 7,
			RemotePort: port}) == member {
			tr.ID.LocalPort = port
			return between(l.a, l.b, tr, payload)
		}
	}
}

// A segment that came in fragments to the wrong member crosses over as a packet: of a bare segment
// the other would take the first octets for an Ethernet header, and anybody could have it take a
// frame of his own making.
func TestFragmentsCrossAsPackets(t *testing.T) {
	l := groupLab(t, 2)
	for _, h := range l.hosts[1:] {
		l.listen(h, 7, 16)
	}
	segment := belongingTo(l, 1, tcp.ACK, make([]byte, 600))
	for _, f := range fragments4(segment, 320) {
		l.hosts[1].take(f)
	}
	require.Equal(t, uint64(1), l.hosts[1].counters().Reassembled)
	require.Equal(t, uint64(1), l.hosts[1].counters().Crossed)
	before := l.hosts[2].counters()
	l.hosts[2].Turn()
	n := l.hosts[2].counters()
	require.Equal(t, before.Inet, n.Inet, "nothing that could not be understood")
	require.Equal(t, uint64(1), n.TCP[tcp.DropNoConn])
	require.Equal(t, uint64(1), n.RSTSent, "it belongs to no connection")
	l.turns()
}

// newLabOfGroup6 is groupLab of two with an IPv6 address each.
func newLabOfGroup6(t *testing.T) *lab {
	l := groupLabTuned(t, 2, func(cfg *Config) {
		cfg.Addrs, cfg.NoDAD = []netip.Prefix{netip.PrefixFrom(addr6(1), 64)}, true
	})
	return l
}

// Neighbour discovery does not come in fragments, however they are cut (RFC 6980): what guards a
// link looks at the first.
// req: 4861-7.1-1
func TestNeighbourDiscoveryInFragments(t *testing.T) {
	for _, n := range []int{8, 16, 24} {
		l := newLab(t, sixes)
		to := addr6(1).As16()
		ns := icmp6(l.a.mac, l.b.mac, addr6(0), addr6(1), 255,
			unhex(t, fmt.Sprintf("87 00 0000 00000000 %x 0101 %x", to, [6]byte(l.a.mac))))
		fs := fragments6(ns, n)
		slices.Reverse(fs) // of 24 and 8 octets: the last one is as long as the whole would be
		for _, f := range fs {
			require.Empty(t, l.answers(l.a, l.b, f), "%d octets", n)
		}
		require.Equal(t, uint64(1), l.b.counters().Reassembled)
		require.Equal(t, uint64(1), l.b.counters().Inet[inet.DropBadND])
		require.Zero(t, l.b.neighbours.Stats().Entries)
		l.stop()
	}
}

// Of a message that came in fragments the other members are not shown the last one, which they
// would keep for a minute and then complain about.
func TestFragmentsAreNotOverheard(t *testing.T) {
	l := newLabOfGroup6(t)
	m := make([]byte, 64)
	m[0] = inet.ICMP6EchoReply
	fs := fragments6(icmp6(l.a.mac, l.b.mac, addr6(0), addr6(1), 64, m), 32)
	l.hosts[1].take(fs[1])
	l.hosts[1].take(fs[0])
	require.Equal(t, uint64(1), l.hosts[1].counters().Reassembled)
	l.hosts[2].Turn()
	require.Zero(t, l.hosts[2].counters().Fragments)
	l.pass(61 * second)
	require.Zero(t, l.hosts[2].counters().ICMPSent)
}

// A member that finds no Buf for a frame to overhear goes on answering its own.
func TestOverhearingEndsWithoutBufs(t *testing.T) {
	l := groupLab(t, 2)
	h := l.hosts[2]
	arp := unhex(t, "ffffffffffff 020000000009 0806 0001 0800 06 04 0001 020000000009 0a000009 "+
		"000000000000 0a000063")
	free := h.hoard(1)
	for range 2 {
		l.hosts[1].take(arp)
	}
	h.drainCrossings() // the second finds none
	require.Equal(t, uint64(1), h.counters().Own[DropNoBuf])
	free()
	arp[41] = 2 // who has 10.0.0.2
	h.take(arp)
	require.Equal(t, uint64(1), h.counters().ARPReplies)
	h.tx.flush(h.now)
	h.Turn()
	l.drain()
}

// A frame that crosses over to a member without Bufs is not lost: it waits in the ring.
func TestCrossingWaitsForABuf(t *testing.T) {
	l := groupLab(t, 2)
	h := l.hosts[2]
	free := h.hoard(0)
	l.hosts[1].take(belongingTo(l, 1, tcp.ACK, nil))
	h.Turn()
	require.Equal(t, uint64(1), h.counters().Own[DropNoBuf])
	require.Zero(t, h.counters().TCP[tcp.DropNoConn])
	free()
	h.Turn()
	require.Equal(t, uint64(1), h.counters().TCP[tcp.DropNoConn])
}

// What all members overhear does not drive out what belongs to one of them.
func TestNoiseDoesNotStopCrossing(t *testing.T) {
	l := groupLab(t, 2)
	arp := unhex(t, "ffffffffffff 020000000009 0806 0001 0800 06 04 0001 020000000009 0a000009 "+
		"000000000000 0a000063")
	for range 4 * crossingSlots {
		l.hosts[1].take(arp)
	}
	l.hosts[1].take(belongingTo(l, 1, tcp.ACK, nil))
	l.hosts[2].Turn()
	n := l.hosts[2].counters()
	require.Equal(t, uint64(1), n.TCP[tcp.DropNoConn])
	require.Equal(t, uint64(crossingSlots/2+1), l.hosts[1].counters().Crossed)
}

func discovering(i int, cfg *Config) {
	sixes(i, cfg)
	cfg.Discover = true
}

// Estimates of path MTUs end without a walk over all connections each: a peer with connections from
// many addresses could have as many end at once.
func TestPathsEndWithoutAWalk(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	for i := range 200 {
		l.a.host.LowerPath(l.now, inet.AddrFrom4([4]byte{192, 0, 2, byte(i)}), 1000)
	}
	l.a.host.LowerPath(l.now, inet.AddrFrom(l.b.addr), 1000)
	require.Equal(t, 1000-52, u.conn.EMSS())
	l.pass(11 * 60 * second)
	require.Equal(t, uint16(1000), u.conn.path.mtu, "nobody has looked at the connection")
	require.Equal(t, 1448, u.conn.EMSS(), "until somebody does")
}
