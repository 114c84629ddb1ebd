package stack

import (
	"encoding/binary"
	"math/rand/v2"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// The catalogue of attacks, as docs/reference/attacks.md lists them. Each is mounted on host b
// while a healthy connection between a and b carries octets both ways, in virtual time, through
// one device queue: a hostile frame takes the place of an honest one. What must hold: the healthy
// connection keeps its goodput, octet for octet right; memory is what the Config says; a counter
// names what happened.
//
// attack_flood_test.go has those that need no connection, attack_udp_test.go their datagrams,
// attack_peer_test.go those by peers that complete the handshake.

// siege is a lab under attack.
type siege struct {
	*lab
	r    *rand.Rand
	u, v *peer // the healthy connection, a's end and b's

	mailbox *answering // of udpFloods
}

const (
	tickNs      = int64(50_000)
	hostileRate = 64 // frames per tick: 1.28 Mpps
)

// mallory is the station hostile frames come from; what goes there is seen by siege.crowd only.
var mallory = inet.MAC{2, 0x66, 0, 0, 0, 0x66}

func newSiege(t testing.TB, tune func(cfg *Config)) *siege {
	s := &siege{r: rand.New(rand.NewPCG(5, 9))}
	s.lab = newLab(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		cfg.TCP.ReceiveWindow = 32 << 10
		cfg.TCP.PTOMinNs = 2 * tickNs // a round trip; with the default a lost tail would wait for ten
		cfg.SegmentsMax = 8
		if i == 1 && tune != nil {
			tune(cfg)
		}
	})
	s.b.nic.lose = func(f []byte) bool { return inet.MAC(f[:6]) == mallory }
	const endless = 1 << 40
	s.listen(s.b, 7, 16, endless)
	s.u = s.dial(s.a, s.b, 7, endless)
	s.until("established", func() bool { return s.u.opened && len(s.accepted) == 1 })
	s.v = s.accepted[0]
	s.run(50, nil) // slow start
	return s
}

// run lets ticks pass, with hostile frames in each, and returns the octets of the healthy
// connection that arrived.
func (s *siege) run(ticks int, hostile func()) int {
	before := s.u.edge + s.v.edge
	for range ticks {
		s.a.Turn()
		if hostile != nil {
			hostile()
		}
		s.b.Turn()
		s.now += tickNs
	}
	return int(s.u.edge + s.v.edge - before)
}

// undisturbed is what siege.run gives without an attack.
func undisturbed(t testing.TB, tune func(cfg *Config), ticks int) int {
	s := newSiege(t, tune)
	n := s.run(ticks, nil)
	s.end()
	return n
}

// end takes the healthy connection down and checks that nothing is lost.
func (s *siege) end() {
	s.t.Helper()
	require.Zero(s.t, s.u.closed+s.v.closed, "the healthy connection: %v %v", s.u.err, s.v.err)
	s.b.nic.onSend = nil
	s.stop()
}

// hostile sends a frame to b.
func (s *siege) hostile(frame []byte) { s.a.nic.inject(frame) }

// spoofed is a segment to b that claims to come from addr.
func (s *siege) spoofed(addr netip.Addr, from, to uint16, flags tcp.Flags, seq, ack tcp.Seq,
	payload ...byte) []byte {
	tr := tcp.Transmit{ID: tcp.ID{LocalPort: from, RemotePort: to}, Flags: flags, Seq: seq, Ack: ack,
		Window: 500, Handle: tcp.NoHandle}
	return segmentFrame(mallory, s.b.mac, addr, s.b.addr, tr, payload)
}

// frameOf is a segment to b with the options that t has.
func (s *siege) frameOf(from netip.Addr, t tcp.Transmit, payload []byte) []byte {
	return optionsFrame(mallory, s.b.mac, from, s.b.addr, t, payload)
}

// healthy is spoofed with the healthy connection's 4-tuple.
func (s *siege) healthy(flags tcp.Flags, seq, ack tcp.Seq, payload ...byte) []byte {
	return s.spoofed(s.a.addr, s.u.conn.tcp.ID().LocalPort, 7, flags, seq, ack, payload...)
}

// rcvNxt is what b expects next of the healthy connection; sndUna what a has acknowledged, as b
// knows it.
func (s *siege) rcvNxt() tcp.Seq { return s.u.conn.tcp.ISS() + 1 + tcp.Seq(s.v.edge) }
func (s *siege) sndUna() tcp.Seq { return s.v.conn.tcp.ISS() + 1 + tcp.Seq(s.v.acked) }

// inWindow is a sequence number in b's window, and beyond what a has sent in this tick.
func (s *siege) inWindow() tcp.Seq { return s.rcvNxt() + 12_000 + tcp.Seq(s.r.IntN(8_000)) }

// anybody is an address of the subnet that is neither a's nor b's, outsider one that is not of the
// subnet.
func (s *siege) anybody() netip.Addr {
	return netip.AddrFrom4([4]byte{10, 0, 0, byte(3 + s.r.IntN(250))})
}
func (s *siege) outsider() netip.Addr {
	return netip.AddrFrom4([4]byte{198, 51, byte(s.r.Uint32()), byte(1 + s.r.IntN(250))})
}
func (s *siege) seq() tcp.Seq { return tcp.Seq(s.r.Uint32()) }
func (s *siege) port() uint16 { return uint16(1 + s.r.IntN(65535)) }

// quoting is an ICMP error to b about a segment of the healthy connection with sequence number seq.
func (s *siege) quoting(typ, code uint8, mtu uint16, seq tcp.Seq) []byte {
	tr := tcp.Transmit{ID: *s.v.conn.tcp.ID(), Seq: seq, Flags: tcp.ACK, Handle: tcp.NoHandle}
	quote := segmentFrame(s.b.mac, s.a.mac, s.b.addr, s.a.addr, tr, make([]byte, 1448))
	f := icmpErrorFrame(s.anybody(), s.b, typ, code, mtu, quote)
	copy(f[6:], mallory[:])
	return f
}

// fragment is one of an IPv4 datagram to b.
func (s *siege) fragment(from netip.Addr, id uint16, off, n int, more bool) []byte {
	f := packet(mallory, s.b.mac, from, s.b.addr, inet.ProtoTCP, make([]byte, n))
	ip := inet.IPv4{
		TTL: 64, Proto: inet.ProtoTCP, Src: inet.AddrFrom(from), Dst: inet.AddrFrom(s.b.addr),
		TotalLen: inet.IPv4Len + n, ID: id, FragOff: off, MF: more,
	}
	ip.Put(f[inet.EthernetLen:])
	for i := range n {
		f[tcpAt+i] = byte(s.r.Uint32())
	}
	return f
}

// arpFrame is an ARP packet to b from a station that claims to be ip.
func (s *siege) arpFrame(op uint16, ip, target netip.Addr) []byte {
	f := make([]byte, inet.EthernetLen+inet.ARPLen)
	eth := inet.Ethernet{Dst: s.b.mac, Src: mallory, Type: inet.EtherTypeARP}
	eth.Put(f)
	a := inet.ARP{Op: op, SenderMAC: mallory, SenderIP: inet.AddrFrom(ip), TargetMAC: s.b.mac,
		TargetIP: inet.AddrFrom(target)}
	a.Put(f[inet.EthernetLen:])
	return f
}

// ping is an echo request with n octets.
func (s *siege) ping(n int) []byte {
	m := make([]byte, inet.ICMPLen+n)
	m[0] = inet.ICMPEcho
	binary.BigEndian.PutUint16(m[2:], inet.Checksum(m, 0))
	return packet(mallory, s.b.mac, s.anybody(), s.b.addr, inet.ProtoICMP, m)
}
