package stack

import (
	"bytes"
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
	h.nic.onSend = func(f []byte) { got = append(got, bytes.Clone(f)) }
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

// segmentFrame builds a whole frame with a good checksum, and no window scale.
func segmentFrame(src, dst inet.MAC, from, to netip.Addr, t tcp.Transmit, payload []byte) []byte {
	t.Options.WindowScale = -1
	return optionsFrame(src, dst, from, to, t, payload)
}

// optionsFrame is segmentFrame with the options that t has, of either family.
func optionsFrame(src, dst inet.MAC, from, to netip.Addr, t tcp.Transmit, payload []byte) []byte {
	b := append(make([]byte, t.HeaderLen()), payload...)
	t.Put(b)
	binary.BigEndian.PutUint16(b[16:],
		inet.Checksum(b, inet.PseudoSum(inet.AddrFrom(from), inet.AddrFrom(to), inet.ProtoTCP, len(b))))
	if to.Is6() {
		return packet6(src, dst, from, to, inet.ProtoTCP, 64, b)
	}
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
	return must(hex.DecodeString(string(clean)))(t)
}

// req: 826-1, 826-2, 826-3
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
		f := bytes.Clone(request)
		change(f)
		require.Empty(t, l.answers(l.a, l.b, f), name)
	}
	n := l.b.counters()
	require.Equal(t, uint64(2), n.ARPReplies)
	require.Equal(t, uint64(1), n.Inet[inet.DropSource])
	require.Equal(t, uint64(1), n.Inet[inet.DropBadARP])
	require.Equal(t, uint64(1), n.Inet[inet.DropNotOurs])
	l.dial(l.b, l.a, 7)
	l.b.Turn()
	require.Zero(t, l.b.counters().ARPRequests, "the request said it already")
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

// stranger is a segment of no connection from port 1000 to another.
func stranger(flags tcp.Flags, port uint16) tcp.Transmit {
	return tcp.Transmit{ID: tcp.ID{LocalPort: 1000, RemotePort: port}, Seq: 100, Ack: 777,
		Window: 1000, Flags: flags, Handle: tcp.NoHandle}
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
			got := l.answers(l.a, l.b,
				between(l.a, l.b, stranger(test.flags, 2000), make([]byte, test.payload)))
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
	frame, n := between(l.a, l.b, stranger(tcp.ACK, 2000), nil), 0
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
	put := func(at int, b ...byte) func(*lab, []byte) []byte {
		return func(_ *lab, f []byte) []byte { copy(f[at:], b); return f }
	}
	between := func(src, dst string) func(*lab, []byte) []byte {
		return func(l *lab, _ []byte) []byte {
			return segmentFrame(l.a.mac, l.b.mac, netip.MustParseAddr(src), netip.MustParseAddr(dst),
				stranger(tcp.ACK, 2000), nil)
		}
	}
	short := func(l *lab, _ []byte) []byte { // its checksum is right
		b := make([]byte, 12)
		sum := inet.PseudoSum(inet.AddrFrom(l.a.addr), theirs, inet.ProtoTCP, len(b))
		binary.BigEndian.PutUint16(b[10:], inet.Checksum(b, sum))
		return packet(l.a.mac, l.b.mac, l.a.addr, l.b.addr, inet.ProtoTCP, b)
	}
	piece := func(_ *lab, f []byte) []byte {
		ip, _, _ := inet.ParseIPv4(f[inet.EthernetLen:], false)
		ip.MF = true // though its length is no multiple of 8
		ip.Put(f[inet.EthernetLen:])
		return f
	}
	between6 := func(src, dst string, proto uint8, octets []byte) func(*lab, []byte) []byte {
		return func(l *lab, _ []byte) []byte {
			from, to := netip.MustParseAddr(src), netip.MustParseAddr(dst)
			if proto == inet.ProtoICMPv6 {
				return icmp6(l.a.mac, l.b.mac, from, to, 255, octets)
			}
			return packet6(l.a.mac, l.b.mac, from, to, proto, 64, octets)
		}
	}
	redirect := append([]byte{137}, make([]byte, 39)...)
	for name, x := range map[string]struct {
		spoil func(l *lab, f []byte) []byte
		drop  string
	}{
		"TCP checksum":            {put(tcpAt+5, 0x55), "tcp checksum"},
		"IP checksum":             {put(20, 0x55), "inet checksum"},
		"EtherType":               {put(12, 0x88, 0xcc), "inet ether_type"},
		"other MAC":               {put(5, 77), "inet not_ours"},
		"group MAC":               {put(0, 1), "inet not_ours"},
		"other address":           {between("10.0.0.1", "10.0.0.9"), "inet not_ours"},
		"broadcast address":       {between("10.0.0.1", "10.0.0.255"), "inet not_ours"},
		"multicast address":       {between("10.0.0.1", "224.0.0.1"), "inet not_ours"},
		"from multicast":          {between("224.0.0.1", "10.0.0.2"), "inet source"},
		"from broadcast":          {between("255.255.255.255", "10.0.0.2"), "inet source"},
		"from our broadcast":      {between("10.0.0.255", "10.0.0.2"), "inet source"},
		"from loopback":           {between("127.0.0.1", "10.0.0.2"), "inet source"},
		"from nobody":             {between("0.0.0.0", "10.0.0.2"), "inet source"},
		"from us":                 {between("10.0.0.2", "10.0.0.2"), "inet source"},
		"from this network":       {between("0.1.2.3", "10.0.0.2"), "inet source"},
		"another net's broadcast": {between("10.5.255.255", "10.0.0.2"), "inet source"},
		"other address 6":         {between6("fd00::1", "fd00::3", 6, nil), "inet not_ours"},
		"another's link-local 6":  {between6("fd00::1", "fe80::1", 6, nil), "inet not_ours"},
		"from us 6":               {between6("fd00::2", "fd00::2", 17, nil), "inet source"},
		"advertised by no router": {between6("fd00::1", "fd00::2", inet.ProtoICMPv6,
			raFrameBody()), "inet bad_nd"},
		"redirected":     {between6("fe80::9", "fd00::2", inet.ProtoICMPv6, redirect), "inet bad_nd"},
		"fragment":       {piece, "inet fragment"},
		"cut TCP header": {short, "tcp short"},
	} {
		l := newLab(t, func(i int, cfg *Config) {
			discovering(i, cfg)
			cfg.Addrs = append(cfg.Addrs, netip.MustParsePrefix("10.5.0.7/16"))
		})
		frame := segmentFrame(l.a.mac, l.b.mac, l.a.addr, l.b.addr, stranger(tcp.ACK, 2000), nil)
		require.Empty(t, l.answers(l.a, l.b, x.spoil(l, frame)), name)
		got := map[string]uint64{}
		n := l.b.counters()
		n.Each(func(layer, reason string, v uint64) {
			if v > 0 {
				got[layer+" "+reason] = v
			}
		})
		require.Equal(t, map[string]uint64{x.drop: 1}, got, name)
		l.stop()
	}
	l := newLab(t, nil) // without an address of IPv6
	require.Empty(t, l.answers(l.a, l.b, between6("fd00::1", "fd00::2", 6, nil)(l, nil)))
	require.Equal(t, uint64(1), l.b.counters().Inet[inet.DropEtherType])
}

// A device's verdict is trusted; without one we check.
// req: 9293-MUST-3
func TestChecksumOffloadVerdicts(t *testing.T) {
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
		frame := between(l.a, l.b, stranger(tcp.ACK, 2000), nil)
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
	syn := between(l.a, l.b, stranger(tcp.SYN, 2000), make([]byte, 20))
	arp := arpFrame(inet.RequestARP(l.a.mac, inet.AddrFrom(l.a.addr), theirs))
	for _, good := range [][]byte{syn, arp, pingFrame(t, l, "01010101", 30)} {
		for n := inet.EthernetLen; n < len(good); n++ {
			l.answers(l.a, l.b, good[:n])
		}
		for at := range good {
			for _, x := range []byte{1, 0x80, 0xff} {
				f := bytes.Clone(good)
				f[at] ^= x
				l.answers(l.a, l.b, f)
			}
		}
	}
}

// req: 9293-MUST-54, 5927-4.1-1, 5927-5.2-1, 9293-SHLD-26, 9293-MUST-56
func TestICMPErrors(t *testing.T) {
	const port, host = inet.ICMPPortUnreachable, 1
	ignored := func(n *Counters) uint64 { return n.ICMPIgnored }
	for name, x := range map[string]struct {
		code  uint8
		at    int // of the quoted frame, where it is changed
		count func(n *Counters) uint64
		err   error // of the dial
	}{
		"hard ends a dial":        {port, 0, func(n *Counters) uint64 { return n.ICMPHard }, ErrRefused},
		"soft is advice":          {host, 0, func(n *Counters) uint64 { return n.ICMPSoft }, ErrNoRoute},
		"another sequence":        {port, tcpAt + 7, ignored, nil},
		"another port":            {port, tcpAt + 1, ignored, nil},
		"another protocol":        {port, 23, ignored, nil},
		"another host":            {port, 29, ignored, nil},
		"a path as large as ours": {inet.ICMPFragNeeded, 0, ignored, nil},
	} {
		t.Run(name, func(t *testing.T) {
			l := newLab(t, func(i int, cfg *Config) { cfg.TCP.SynRetries = 1 })
			var frame []byte
			l.b.nic.lose = func(f []byte) bool { return !isARP(f) } // b itself is silent
			l.a.nic.onSend = func(f []byte) { frame = bytes.Clone(f) }
			u := l.dial(l.a, l.b, 7)
			l.turns()
			l.a.nic.onSend = nil
			frame[x.at] ^= byte(min(x.at, 1)) * 4
			l.b.nic.inject(icmpErrorFrame(l.b.addr, l.a, inet.ICMPUnreachable, x.code, 1500, frame))
			l.turns()
			n := l.a.counters()
			require.Equal(t, uint64(1), x.count(&n))
			require.Zero(t, n.PathMTU)
			require.Equal(t, x.err == ErrRefused, u.closed == 1)
			if x.err != nil {
				l.until("given up", func() bool { return u.closed == 1 })
				require.ErrorIs(t, u.err, x.err)
			}
		})
	}
}

// Errors about what is in flight, and Source Quench, which is dropped, do not change a connection
// that flows.
// req: 9293-MUST-55, 9293-MUST-56
func TestErrorsAboutWhatFlows(t *testing.T) {
	for _, x := range []struct {
		typ, code uint8
		count     func(n *Counters) uint64
	}{
		{inet.ICMPUnreachable, inet.ICMPPortUnreachable,
			func(n *Counters) uint64 { return n.ICMPSoft }},
		{4, 0, func(n *Counters) uint64 { return n.Inet[inet.DropBadICMP] }},
	} {
		l, u, v := newLab(t, nil).opened()
		u.send(100_000)
		l.until("under way", func() bool { return v.edge > 20_000 })
		before := u.conn.Stats()
		l.a.nic.onSend = func(f []byte) {
			if s, _, ok := segmentOf(f); ok && s.Len > 0 {
				l.b.nic.inject(icmpErrorFrame(l.b.addr, l.a, x.typ, x.code, 0, f))
			}
		}
		u.send(100_000)
		l.until("there", func() bool { return v.edge == 200_000 })
		require.GreaterOrEqual(t, u.conn.Stats().Cwnd, before.Cwnd)
		require.Equal(t, before.Ssthresh, u.conn.Stats().Ssthresh)
		require.Zero(t, u.closed)
		l.turns()
		n := l.a.counters()
		require.NotZero(t, x.count(&n))
		require.Zero(t, n.ICMPHard)
	}
}
