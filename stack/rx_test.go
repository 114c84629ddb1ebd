package stack

import (
	"encoding/binary"
	"encoding/hex"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// inject sends a frame as if the host's Poller had.
func (n *nic) inject(frame []byte) {
	b := n.pool.Alloc()
	d := n.pool.Desc(b)
	d.Len = uint32(len(frame))
	copy(n.pool.Data(b), frame)
	if n.Queue.Tx([]mem.Buf{b}) != 1 {
		panic("link is full")
	}
	n.pool.Free(b)
}

// answers returns the frames that h sends in reply to one that is injected at its other end.
func (l *lab) answers(from, h *host, frame []byte) [][]byte {
	var got [][]byte
	h.nic.onSend = func(f []byte) { got = append(got, append([]byte(nil), f...)) }
	from.nic.inject(frame)
	h.Turn()
	h.nic.onSend = nil
	return got
}

// packet builds Ethernet and IPv4 around octets.
func packet(src, dst inet.MAC, from, to netip.Addr, proto uint8, octets []byte) []byte {
	f := make([]byte, tcpAt+len(octets))
	eth := inet.Ethernet{Dst: dst, Src: src, Type: inet.EtherTypeIPv4}
	eth.Put(f)
	ip := inet.IPv4{TTL: 64, Proto: proto, Src: inet.AddrFrom(from), Dst: inet.AddrFrom(to),
		TotalLen: inet.IPv4Len + len(octets)}
	ip.Put(f[inet.EthernetLen:])
	copy(f[tcpAt:], octets)
	return f
}

// segment builds a whole frame with a good checksum.
func segmentFrame(src, dst inet.MAC, from, to netip.Addr, t tcp.Transmit, payload []byte) []byte {
	t.Options.WindowScale = -1
	b := make([]byte, t.HeaderLen()+len(payload))
	t.Put(b)
	copy(b[t.HeaderLen():], payload)
	binary.BigEndian.PutUint16(b[16:],
		inet.Checksum(b, inet.PseudoSum(inet.AddrFrom(from), inet.AddrFrom(to), inet.ProtoTCP, len(b))))
	return packet(src, dst, from, to, inet.ProtoTCP, b)
}

// between is segmentFrame from one host to another.
func between(from, to *host, t tcp.Transmit, payload []byte) []byte {
	return segmentFrame(from.mac, to.mac, from.addr, to.addr, t, payload)
}

// icmpErrorFrame quotes the IP packet in frame.
func icmpErrorFrame(from netip.Addr, to *host, typ, code uint8, mtu uint16, frame []byte) []byte {
	b := make([]byte, inet.ICMPLen+inet.IPv4Len+8)
	b[0], b[1] = typ, code
	binary.BigEndian.PutUint16(b[6:], mtu)
	copy(b[inet.ICMPLen:], frame[inet.EthernetLen:])
	binary.BigEndian.PutUint16(b[2:], inet.Checksum(b, 0))
	return packet(inet.MAC{2, 9, 9, 9, 9, 9}, to.mac, from, to.addr, inet.ProtoICMP, b)
}

func unhex(t *testing.T, s string) []byte {
	t.Helper()
	var clean []byte
	for _, c := range []byte(s) {
		if c > ' ' {
			clean = append(clean, c)
		}
	}
	b, err := hex.DecodeString(string(clean))
	require.NoError(t, err)
	return b
}

// req: 826-2, 826-3
func TestARPGolden(t *testing.T) {
	l := newLab(t, nil)
	request := unhex(t, `ffffffffffff 020000000001 0806
		0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002`)
	require.Equal(t, [][]byte{unhex(t, `020000000001 020000000002 0806
		0001 0800 06 04 0002 020000000002 0a000002 020000000001 0a000001`)}, l.answers(l.a, l.b, request))

	// Ours, when a dials b, is the same octets.
	var sent []byte
	l.a.nic.onSend = func(f []byte) {
		if sent == nil {
			sent = append(sent, f...)
		}
	}
	l.dial(l.a, l.b, 7)
	l.a.Turn()
	require.Equal(t, request, sent)
	l.turns()

	for name, change := range map[string]func(f []byte){
		"for another":     func(f []byte) { f[41] = 9 },
		"a reply":         func(f []byte) { f[21] = 2 },
		"bad hardware":    func(f []byte) { f[15] = 6 },
		"an echo of ours": func(f []byte) { f[27], f[31] = 2, 2 },
		"to another host": func(f []byte) { copy(f, []byte{2, 0, 0, 0, 0, 9}) },
	} {
		f := append([]byte(nil), request...)
		change(f)
		require.Empty(t, l.answers(l.a, l.b, f), name)
	}
	n := l.b.counters()
	require.Equal(t, uint64(2), n.ARPReplies)
	require.Equal(t, uint64(1), n.Inet[inet.DropSource])
	require.Equal(t, uint64(1), n.Inet[inet.DropBadARP])
	require.Equal(t, uint64(1), n.Inet[inet.DropNotOurs])
}

// req: 826-1
func TestARPLearnsFromARequestToUs(t *testing.T) {
	l := newLab(t, nil)
	l.answers(l.a, l.b, unhex(t, `ffffffffffff 020000000001 0806
		0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002`))
	l.dial(l.b, l.a, 7)
	l.b.Turn()
	require.Zero(t, l.b.counters().ARPRequests, "it was known already")
	l.stop()
}

func pingFrame(t *testing.T, l *lab, options string, data int) []byte {
	message := make([]byte, inet.ICMPLen+data)
	copy(message, unhex(t, "0800 0000 1234 0001"))
	for i := range data {
		message[inet.ICMPLen+i] = byte(i)
	}
	binary.BigEndian.PutUint16(message[2:], inet.Checksum(message, 0))
	f := packet(l.a.mac, l.b.mac, l.a.addr, l.b.addr, inet.ProtoICMP, message)
	if opt := unhex(t, options); len(opt) > 0 {
		g := append(append(append([]byte(nil), f[:tcpAt]...), opt...), message...)
		h := g[inet.EthernetLen:]
		h[0] += byte(len(opt) / 4)
		binary.BigEndian.PutUint16(h[2:], uint16(len(h)))
		h[10], h[11] = 0, 0
		binary.BigEndian.PutUint16(h[10:], inet.Checksum(h[:inet.IPv4Len+len(opt)], 0))
		return g
	}
	return f
}

// req: 1122-3.2.2.6-1, 792-2, 9293-MUST-50
func TestEcho(t *testing.T) {
	l := newLab(t, nil)
	for _, options := range []string{"", "01010101", "94040000 01010101"} {
		for _, data := range []int{0, 1, 56, 1472 - 8} {
			ping := pingFrame(t, l, options, data)
			got := l.answers(l.a, l.b, ping)
			require.Len(t, got, 1)
			eth, b, _ := inet.ParseEthernet(got[0])
			require.Equal(t, l.a.mac, eth.Dst)
			ip, b, d := inet.ParseIPv4(b, false)
			require.Equal(t, inet.DropNone, d)
			require.Equal(t, inet.AddrFrom(l.b.addr), ip.Src)
			require.Equal(t, inet.AddrFrom(l.a.addr), ip.Dst)
			require.Equal(t, inet.IPv4Len, ip.HdrLen)
			require.Zero(t, inet.Checksum(b, 0))
			require.Equal(t, unhex(t, "0000"), b[:2])
			require.Equal(t, ping[len(ping)-data-4:], b[4:],
				"identifier, sequence number and data unchanged")
		}
	}
	bad := pingFrame(t, l, "", 56)
	bad[60] ^= 1
	require.Empty(t, l.answers(l.a, l.b, bad))
	group := pingFrame(t, l, "", 56)
	copy(group, inet.Broadcast[:])
	require.Empty(t, l.answers(l.a, l.b, group), "came by broadcast")
	n := l.b.counters()
	require.Equal(t, uint64(12), n.EchoReplies)
	require.Equal(t, uint64(1), n.Inet[inet.DropBadICMP])
	require.Equal(t, uint64(1), n.Inet[inet.DropNotOurs])
	l.whole()
}

var unknownPeer = tcp.Transmit{
	ID:  tcp.ID{LocalPort: 1000, RemotePort: 2000},
	Seq: 100, Ack: 777, Window: 1000, Handle: tcp.NoHandle,
}

// req: 9293-3.5.2-1, 9293-3.10.7.2-1
func TestSegmentsWithoutAConnection(t *testing.T) {
	for _, test := range []struct {
		name     string
		flags    tcp.Flags
		listen   bool
		payload  int
		want     bool
		wantSeq  tcp.Seq
		wantAck  tcp.Seq
		wantFlag tcp.Flags
	}{
		{"SYN, nobody listens", tcp.SYN, false, 0, true, 0, 101, tcp.RST | tcp.ACK},
		{"SYN with octets", tcp.SYN, false, 10, true, 0, 111, tcp.RST | tcp.ACK},
		{"FIN without ACK", tcp.FIN, false, 3, true, 0, 104, tcp.RST | tcp.ACK},
		{"ACK", tcp.ACK, false, 5, true, 777, 0, tcp.RST},
		{"RST", tcp.RST, false, 0, false, 0, 0, 0},
		{"RST with ACK", tcp.RST | tcp.ACK, false, 0, false, 0, 0, 0},
		{"ACK to a listener", tcp.ACK, true, 0, true, 777, 0, tcp.RST},
		{"SYN,ACK to a listener", tcp.SYN | tcp.ACK, true, 0, true, 777, 0, tcp.RST},
		{"RST to a listener", tcp.RST, true, 0, false, 0, 0, 0},
		{"RST,ACK to a listener", tcp.RST | tcp.ACK, true, 0, false, 0, 0, 0},
		{"nothing to a listener", 0, true, 5, false, 0, 0, 0},
		{"FIN to a listener", tcp.FIN, true, 5, false, 0, 0, 0},
		{"SYN,FIN to a listener", tcp.SYN | tcp.FIN, true, 0, false, 0, 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t, nil)
			if test.listen {
				l.listen(l.b, 2000, 4)
			}
			tr := unknownPeer
			tr.Flags = test.flags
			got := l.answers(l.a, l.b, between(l.a, l.b, tr, make([]byte, test.payload)))
			require.Zero(t, l.b.counters().Conns)
			if !test.want {
				require.Empty(t, got)
				return
			}
			require.Len(t, got, 1)
			s, _, ok := segmentOf(got[0])
			require.True(t, ok)
			require.Equal(t, test.wantFlag, s.Flags)
			require.Equal(t, test.wantSeq, s.Seq)
			require.Equal(t, test.wantAck, s.Ack)
			require.Equal(t, []uint16{2000, 1000}, []uint16{s.SrcPort, s.DstPort})
			require.Equal(t, l.a.mac[:], got[0][:6])
			l.whole()
		})
	}
}

func TestRSTsAreLimited(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.RSTPerSec = 10 })
	tr := unknownPeer
	tr.Flags = tcp.ACK
	frame := between(l.a, l.b, tr, nil)
	n := 0
	for range 50 {
		n += len(l.answers(l.a, l.b, frame))
	}
	require.Equal(t, 10, n)
	require.Equal(t, uint64(40), l.b.counters().Own[DropRSTLimited])
	l.now += second / 2
	for range 50 {
		n += len(l.answers(l.a, l.b, frame))
	}
	require.Equal(t, 15, n)
	l.whole()
}

// What must be dropped is dropped without an answer and counted under its reason.
// req: 9293-MUST-3, 9293-MUST-57, 9293-MUST-63, 1122-3.2.1.3-1
func TestDropsByReason(t *testing.T) {
	tr := unknownPeer
	tr.Flags = tcp.ACK
	flip := func(at int) func(*lab, []byte) []byte {
		return func(_ *lab, f []byte) []byte { f[at] ^= 0x55; return f }
	}
	from := func(src string) func(*lab, []byte) []byte {
		return func(l *lab, _ []byte) []byte {
			return segmentFrame(l.a.mac, l.b.mac, netip.MustParseAddr(src), l.b.addr, tr, nil)
		}
	}
	to := func(dst string) func(*lab, []byte) []byte {
		return func(l *lab, _ []byte) []byte {
			return segmentFrame(l.a.mac, l.b.mac, l.a.addr, netip.MustParseAddr(dst), tr, nil)
		}
	}
	for _, test := range []struct {
		name  string
		spoil func(l *lab, f []byte) []byte
		count func(n *Counters) uint64
	}{
		{"TCP checksum", flip(tcpAt + 5), func(n *Counters) uint64 { return n.TCP[tcp.DropChecksum] }},
		{"IP checksum", flip(20), func(n *Counters) uint64 { return n.Inet[inet.DropChecksum] }},
		{"EtherType", func(_ *lab, f []byte) []byte {
			f[12] = 0x86
			f[13] = 0xdd
			return f
		}, func(n *Counters) uint64 { return n.Inet[inet.DropEtherType] }},
		{"other MAC", func(_ *lab, f []byte) []byte {
			f[5] = 77
			return f
		}, func(n *Counters) uint64 { return n.Inet[inet.DropNotOurs] }},
		{"group MAC", func(_ *lab, f []byte) []byte {
			f[0] = 1
			return f
		}, func(n *Counters) uint64 { return n.Inet[inet.DropNotOurs] }},
		{"other address", to("10.0.0.9"), func(n *Counters) uint64 { return n.Inet[inet.DropNotOurs] }},
		{"broadcast address", to("10.0.0.255"), func(n *Counters) uint64 {
			return n.Inet[inet.DropNotOurs]
		}},
		{"multicast address", to("224.0.0.1"), func(n *Counters) uint64 {
			return n.Inet[inet.DropNotOurs]
		}},
		{"from multicast", from("224.0.0.1"), func(n *Counters) uint64 {
			return n.Inet[inet.DropSource]
		}},
		{"from broadcast", from("255.255.255.255"), func(n *Counters) uint64 {
			return n.Inet[inet.DropSource]
		}},
		{"from our broadcast", from("10.0.0.255"), func(n *Counters) uint64 {
			return n.Inet[inet.DropSource]
		}},
		{"from loopback", from("127.0.0.1"), func(n *Counters) uint64 { return n.Inet[inet.DropSource] }},
		{"from nobody", from("0.0.0.0"), func(n *Counters) uint64 { return n.Inet[inet.DropSource] }},
		{"from us", from("10.0.0.2"), func(n *Counters) uint64 { return n.Inet[inet.DropSource] }},
		{"fragment", func(l *lab, f []byte) []byte {
			ip, b, _ := inet.ParseIPv4(f[inet.EthernetLen:], false)
			ip.MF = true
			ip.Put(f[inet.EthernetLen:])
			_ = b
			return f
		}, func(n *Counters) uint64 { return n.Inet[inet.DropFragment] }},
		{"cut TCP header", func(l *lab, f []byte) []byte {
			return packet(l.a.mac, l.b.mac, l.a.addr, l.b.addr, inet.ProtoTCP, shortSegment(l))
		}, func(n *Counters) uint64 { return n.TCP[tcp.DropShort] }},
	} {
		t.Run(test.name, func(t *testing.T) {
			l := newLab(t, nil)
			frame := test.spoil(l, between(l.a, l.b, tr, nil))
			require.Empty(t, l.answers(l.a, l.b, frame))
			n := l.b.counters()
			require.Equal(t, uint64(1), test.count(&n))
			total := uint64(0)
			n.Each(func(_, _ string, v uint64) { total += v })
			require.Equal(t, uint64(1), total, "one reason only")
			l.whole()
		})
	}
}

// shortSegment is 12 octets whose checksum is right.
func shortSegment(l *lab) []byte {
	b := make([]byte, 12)
	binary.BigEndian.PutUint16(b[10:],
		inet.Checksum(b, inet.PseudoSum(inet.AddrFrom(l.a.addr), inet.AddrFrom(l.b.addr),
			inet.ProtoTCP, len(b))))
	return b
}

// A device's verdict is trusted; without one we check.
// req: 9293-MUST-3
func TestChecksumOffloadVerdicts(t *testing.T) {
	tr := unknownPeer
	tr.Flags = tcp.ACK
	for _, test := range []struct {
		flags   mem.DescFlags
		spoil   bool
		answers int
	}{
		{0, false, 1}, {0, true, 0},
		{mem.RxChecksumGood, true, 1},
		{mem.RxChecksumBad, false, 0},
	} {
		l := newLab(t, nil)
		frame := between(l.a, l.b, tr, nil)
		if test.spoil {
			frame[tcpAt+17] ^= 1
		}
		b := l.b.pool.Alloc()
		d := l.b.pool.Desc(b)
		d.Len, d.Flags = uint32(len(frame)), test.flags
		copy(l.b.pool.Data(b), frame)
		l.b.frame(b)
		l.b.tx.flush(l.b.now)
		require.Equal(t, test.answers, l.b.nic.sent, "%v", test)
		l.whole()
	}
}

// Every truncation and every single-octet change of a good frame is survived, with every Buf
// accounted for.
func TestDamagedFrames(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.RSTPerSec = 1 << 30 })
	l.listen(l.b, 2000, 4)
	tr := unknownPeer
	tr.Flags = tcp.SYN
	syn := between(l.a, l.b, tr, make([]byte, 20))
	arp := unhex(
		t,
		`ffffffffffff 020000000001 0806 0001 0800 06 04 0001 020000000001 0a000001 000000000000 0a000002`)
	for _, good := range [][]byte{syn, arp, pingFrame(t, l, "01010101", 30)} {
		for n := inet.EthernetLen; n < len(good); n++ {
			l.answers(l.a, l.b, good[:n])
		}
		for at := range good {
			for _, x := range []byte{1, 0x80, 0xff} {
				f := append([]byte(nil), good...)
				f[at] ^= x
				l.answers(l.a, l.b, f)
			}
		}
	}
	l.stop()
}

// req: 9293-MUST-54, 5927-4.1-1, 5927-5.2-1, 9293-SHLD-26, 9293-MUST-56
func TestICMPErrors(t *testing.T) {
	router := netip.MustParseAddr("10.0.0.2")
	syn := func(t *testing.T, l *lab) (u *peer, frame []byte) {
		l.b.nic.lose = func(f []byte) bool { return !isARP(f) } // b itself is silent
		l.a.nic.onSend = func(f []byte) {
			if !isARP(f) && frame == nil {
				frame = append([]byte(nil), f...)
			}
		}
		u = l.dial(l.a, l.b, 7)
		l.turns()
		l.a.nic.onSend = nil
		require.NotNil(t, frame)
		l.a.nic.lose = nil
		return u, frame
	}
	t.Run("hard ends a dial", func(t *testing.T) {
		l := newLab(t, nil)
		u, frame := syn(t, l)
		l.b.nic.inject(
			icmpErrorFrame(router, l.a, inet.ICMPUnreachable, inet.ICMPPortUnreachable, 0, frame))
		l.turns()
		require.ErrorIs(t, u.err, ErrRefused)
		require.Equal(t, uint64(1), l.a.counters().ICMPHard)
	})
	t.Run("a guess does not", func(t *testing.T) {
		l := newLab(t, nil)
		u, frame := syn(t, l)
		frame[tcpAt+7] ^= 1 // the quoted sequence number
		l.b.nic.inject(
			icmpErrorFrame(router, l.a, inet.ICMPUnreachable, inet.ICMPPortUnreachable, 0, frame))
		l.turns()
		require.Zero(t, u.closed)
		require.Equal(t, uint64(1), l.a.counters().ICMPIgnored)
	})
	t.Run("soft is advice", func(t *testing.T) {
		l := newLab(t, func(i int, cfg *Config) { cfg.TCP.SynRetries = 1 })
		u, frame := syn(t, l)
		l.b.nic.inject(icmpErrorFrame(router, l.a, inet.ICMPUnreachable, 1, 0, frame))
		l.turns()
		require.Zero(t, u.closed)
		l.until("gives up", func() bool { return u.closed == 1 })
		require.ErrorIs(t, u.err, ErrNoRoute)
	})
	t.Run("others are none of ours", func(t *testing.T) {
		l := newLab(t, nil)
		u, frame := syn(t, l)
		for name, spoil := range map[string]func(quote []byte) []byte{
			"another port": func(q []byte) []byte { q[tcpAt+1] ^= 1; return q },
			"UDP":          func(q []byte) []byte { q[23] = 17; return q },
			"another host": func(q []byte) []byte { q[29] ^= 4; return q },
		} {
			quote := spoil(append([]byte(nil), frame...))
			before := l.a.counters().ICMPIgnored
			l.b.nic.inject(
				icmpErrorFrame(router, l.a, inet.ICMPUnreachable, inet.ICMPPortUnreachable, 0, quote))
			l.turns()
			require.Equal(t, before+1, l.a.counters().ICMPIgnored, name)
		}
		// A path MTU that is no smaller than ours changes nothing.
		l.b.nic.inject(icmpErrorFrame(router, l.a, inet.ICMPUnreachable, inet.ICMPFragNeeded,
			1500, frame))
		l.turns()
		require.Zero(t, l.a.counters().PathMTU)
		require.Zero(t, u.closed)
	})
	t.Run("established ones stand", func(t *testing.T) {
		l := newLab(t, nil)
		u, v := l.open()
		l.a.nic.onSend = func(f []byte) {
			if s, _, ok := segmentOf(f); ok && s.Len > 0 {
				l.b.nic.inject(
					icmpErrorFrame(router, l.a, inet.ICMPUnreachable, inet.ICMPPortUnreachable, 0, f))
			}
		}
		u.send(10_000)
		l.until("there", func() bool { return v.edge == 10_000 })
		require.Zero(t, u.closed)
		l.turns()
		require.NotZero(t, l.a.counters().ICMPSoft)
		require.Zero(t, l.a.counters().ICMPHard)
	})
}

// req: 9293-MAY-2
func TestSYNReopensFromTimeWait(t *testing.T) {
	l := newLab(t, nil)
	u, v := l.open()
	v.closeSend() // b closes first: b spends TIME-WAIT
	l.until("b closed its half", func() bool { return u.peerFin })
	u.closeSend()
	l.until("closed", func() bool { return u.closed == 1 && v.closed == 1 })
	require.Equal(t, 1, l.b.counters().Conns)
	id := l.b.slab.conns[l.b.slab.lingering.first].tcp.ID()
	old := u.conn.tcp.ISS()
	syn := tcp.Transmit{ID: tcp.ID{LocalPort: id.RemotePort, RemotePort: id.LocalPort}, Window: 1000,
		Flags: tcp.SYN, Handle: tcp.NoHandle}

	syn.Seq = old // not beyond the old octets
	l.answers(l.a, l.b, between(l.a, l.b, syn, nil))
	require.Equal(t, 1, l.b.counters().Conns)
	require.Zero(t, l.b.counters().TimeWaitCut)

	syn.Seq = old + 100_000
	got := l.answers(l.a, l.b, between(l.a, l.b, syn, nil))
	require.Len(t, got, 1)
	s, _, _ := segmentOf(got[0])
	require.Equal(t, tcp.SYN|tcp.ACK, s.Flags)
	require.Equal(t, syn.Seq+1, s.Ack)
	require.Equal(t, uint64(1), l.b.counters().TimeWaitCut)
	l.stop()
}
