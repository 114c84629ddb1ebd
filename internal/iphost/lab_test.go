package iphost

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"hash/fnv"
	"math"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// station is a Host in virtual time, alone on its link or with others: the test language of this
// package.
//
//	s := newStation(t, nil)             // 10.0.0.2 and, where tune says so, more
//	s.hear(arp(...))                    // a frame comes
//	s.pass(3 * second)                  // time, with what becomes due
//	s.said("10.0.0.2")                  // "probe probe probe announce announce"
//	link(s, t)                          // each hears what the other sends
type station struct {
	*Host
	t          testing.TB
	now        int64
	neighbours *inet.Neighbours[int]
	told       News // by TakeNews, since the test last cleared it

	full  bool // there is no room
	cut   bool // from its link
	room  [1600]byte
	peers []*station
	in    [][]byte

	words  []saying // about addresses and routers
	frames [][]byte // all
}

// saying is a frame that a station sent.
type saying struct {
	at    int64
	what  string // probe, announce, request, reply; ns, na, rs; report
	about string // an address, or what is reported
	frame []byte
}

const begin = 1000 * second

var (
	ourMAC   = inet.MAC{2, 0, 0, 0, 0, 2}
	rivalMAC = inet.MAC{2, 0, 0, 0, 0, 0x77}
	ours     = addr("10.0.0.2")
	ours6    = addr("fd00::2")
	other    = addr("10.0.0.9")
	nobody   = addr("0.0.0.0")
)

func addr(s string) inet.Addr { return inet.AddrFrom(netip.MustParseAddr(s)) }

func prefixes(all ...string) (p []netip.Prefix) {
	for _, s := range all {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// newStation makes one that checks and announces 10.0.0.2; tune changes its Config.
func newStation(t testing.TB, tune func(cfg *Config)) *station {
	t.Helper()
	return newSeeded(t, 1, tune)
}

func newSeeded(t testing.TB, seed byte, tune func(cfg *Config)) *station {
	t.Helper()
	s := &station{t: t, now: begin, neighbours: inet.NewNeighbours[int](inet.NeighbourConfig{})}
	cfg := Config{
		MAC: ourMAC, Addrs: prefixes("10.0.0.2/24"), MTU: 1500, TTL: 64, ErrorsMax: 10,
		Random: func(octets []byte) uint64 {
			h := fnv.New64a()
			_, _ = h.Write(append([]byte{seed}, octets...))
			return h.Sum64() * 0x9e3779b97f4a7c15 >> 8
		},
	}
	if tune != nil {
		tune(&cfg)
	}
	cfg.Addrs = WithLinkLocal(cfg.Addrs, cfg.MAC)
	require.NoError(t, cfg.Check())
	s.Host = New(cfg, s.now, s, s.neighbours)
	return s
}

// with6 gives a station fd00::2 as well.
func with6(cfg *Config) { cfg.Addrs = prefixes("10.0.0.2/24", "fd00::2/64") }

// unchecked has a station use its addresses at once, and say nothing of them.
func unchecked(cfg *Config) { cfg.NoDAD, cfg.NoAnnounce = true, true }

// link has each of all hear what the others send.
func link(all ...*station) {
	for _, s := range all {
		for _, o := range all {
			if o != s {
				s.peers = append(s.peers, o)
			}
		}
	}
}

func (s *station) Room() []byte {
	if s.full {
		return nil
	}
	return s.room[:]
}

func (s *station) SendBy(n int, hop inet.Addr) { s.Send(n) }

func (s *station) Send(n int) bool {
	if n == 0 {
		return true
	}
	f := append([]byte(nil), s.room[:n]...)
	s.frames = append(s.frames, f)
	if w, ok := aboutAddrs(f); ok {
		w.at = s.now - begin
		s.words = append(s.words, w)
	}
	for _, o := range s.peers {
		if !s.cut && !o.cut {
			o.in = append(o.in, f)
		}
	}
	return true
}

// aboutAddrs reads a frame; ok is false when it is about something else.
func aboutAddrs(f []byte) (s saying, ok bool) {
	s.frame = f
	eth, b, _ := inet.ParseEthernet(f)
	if eth.Type == inet.EtherTypeARP {
		a, _ := inet.ParseARP(b)
		s.what, s.about = "request", a.TargetIP.String()
		switch {
		case a.Op == inet.ARPReply:
			s.what = "reply"
		case a.SenderIP.IsUnspecified():
			s.what = "probe"
		case a.SenderIP == a.TargetIP:
			s.what = "announce"
		}
		return s, true
	}
	if ip, m, drop := inet.ParseIPv4(b, false); drop == inet.DropNone && ip.Proto == inet.ProtoIGMP {
		s.what, s.about = "report", ip.Src.String()+reported4(m)
		return s, true
	}
	ip, m, drop := inet.ParseIPv6(b)
	if eth.Type != inet.EtherTypeIPv6 || drop != inet.DropNone {
		return s, false
	}
	if ip.NextHeader == inet.ProtoHopByHop {
		s.what, s.about = "report", ip.Src.String()+reported(m)
		return s, true
	}
	if ip.NextHeader != inet.ProtoICMPv6 {
		return s, false
	}
	switch m[0] {
	case inet.NDRouterSolicitation:
		s.what = "rs"
		return s, true
	case inet.NDNeighbourSolicitation:
		s.what = "ns"
	case inet.NDNeighbourAdvert:
		s.what = "na"
	default:
		return s, false
	}
	if ip.Src.IsUnspecified() {
		s.what = "probe"
	}
	if ip.Dst == inet.AllNodes {
		s.what = "announce"
	}
	s.about = inet.Addr(m[8:24]).String()
	return s, true
}

// reported is what an MLDv2 Report says, after its Router Alert: " to 00:2" for each record.
func reported(b []byte) (text string) {
	b = b[8:]
	if b[0] != 143 {
		return fmt.Sprintf(" v1 %d %s", b[0], shortGroup(inet.Addr(b[8:24])))
	}
	for i := range int(binary.BigEndian.Uint16(b[6:8])) {
		r := b[8+20*i:]
		text += map[byte]string{2: " is ", 3: " not ", 4: " to "}[r[0]]
		text += shortGroup(inet.Addr(r[4:20]))
	}
	return text
}

// reported4 is the same of IGMP.
func reported4(b []byte) (text string) {
	if b[0] != 0x22 {
		return fmt.Sprintf(" v2 %x %s", b[0], inet.AddrFrom4([4]byte(b[4:8])))
	}
	for i := range int(binary.BigEndian.Uint16(b[6:8])) {
		r := b[8+8*i:]
		text += map[byte]string{2: " is ", 3: " not ", 4: " to "}[r[0]]
		text += inet.AddrFrom4([4]byte(r[4:8])).String()
	}
	return text
}

func shortGroup(a inet.Addr) string { return strings.TrimPrefix(a.String(), "ff02::1:ff") }

// said is what was said about an address, and when since the beginning.
func (s *station) said(about string) (words string, at []int64) {
	var all []string
	for _, w := range s.words {
		if w.about == about {
			all, at = append(all, w.what), append(at, w.at)
		}
	}
	return strings.Join(all, " "), at
}

func (s *station) heardSay(t *testing.T, about, want string) {
	t.Helper()
	words, _ := s.said(about)
	require.Equal(t, want, words)
}

// forget forgets what was said.
func (s *station) forget() { s.words, s.frames = nil, nil }

// hear takes a frame in, as a receive path does.
func (s *station) hear(f []byte) inet.Drop {
	eth, b, drop := inet.ParseEthernet(f)
	if drop != inet.DropNone || !eth.Dst.IsGroup() && eth.Dst != s.cfg.MAC {
		return inet.DropNotOurs
	}
	defer func() { s.told |= s.TakeNews() }()
	if eth.Type == inet.EtherTypeARP {
		return s.ARP(s.now, b)
	}
	if eth.Type == inet.EtherTypeIPv4 {
		ip, m, drop := inet.ParseIPv4(b, false)
		if drop == inet.DropNone {
			drop = s.IGMP(s.now, &ip, b[inet.IPv4Len:ip.HdrLen], m)
		}
		return drop
	}
	ip, m, drop := inet.ParseIPv6(b)
	if drop != inet.DropNone || !s.IsMember(&ip.Dst) && !s.IsLocal(&ip.Dst) {
		return inet.DropNotOurs
	}
	if s.IsLocal(&ip.Src) {
		s.Impostor(s.now, eth.Src, &ip, m)
		return inet.DropSource
	}
	plain, alert := ip.NextHeader == inet.ProtoICMPv6, false
	if !plain {
		c, drop := inet.WalkIPv6(m, ip.NextHeader, inet.IPv6Len, false)
		if drop != inet.DropNone {
			return drop
		}
		m, alert = m[c.Off:], c.Alert
	}
	_, drop = s.ICMP6(s.now, eth.Src, &ip, m, plain, alert)
	return drop
}

// turn takes what the others have sent, and does what is due.
func (s *station) turn() (work int) {
	for len(s.in) > 0 {
		f := s.in[0]
		s.in = s.in[1:]
		s.hear(f)
		work++
	}
	if s.Heed(s.now) > 0 {
		work++
	}
	if s.Deadline() <= s.now {
		work += s.Expire(s.now)
	}
	s.told |= s.TakeNews()
	return work
}

// all are s and those on its link.
func (s *station) all() []*station { return append([]*station{s}, s.peers...) }

func (s *station) turns() {
	for work := 1; work > 0; {
		work = 0
		for _, o := range s.all() {
			work += o.turn()
		}
	}
}

// pass lets d nanoseconds pass.
func (s *station) pass(d int64) {
	s.t.Helper()
	end := s.now + d
	s.until(func() bool { return s.now >= end }, end)
	s.turns()
}

// until lets time pass until cond holds, up to most at the latest.
func (s *station) until(cond func() bool, most ...int64) {
	s.t.Helper()
	end := s.now + 4000*second
	if len(most) > 0 {
		end = most[0]
	}
	for {
		s.turns()
		if cond() {
			return
		}
		next := int64(math.MaxInt64)
		for _, o := range s.all() {
			next = min(next, o.Deadline())
		}
		next = min(max(next, s.now+1), end)
		require.True(s.t, s.now < end, "waited in vain")
		for _, o := range s.all() {
			o.now = next
		}
	}
}

// state is that of an address.
func (s *station) state(about string) Address {
	for _, a := range s.Addrs() {
		if a.Addr == addr(about) {
			return Address{Addr: a.Addr, State: a.State, Conflicts: a.Conflicts, Rival: a.Rival}
		}
	}
	return Address{}
}

// arp is a frame for all.
func arp(a inet.ARP) []byte {
	f := make([]byte, inet.EthernetLen+inet.ARPLen)
	eth := inet.Ethernet{Dst: inet.Broadcast, Src: a.SenderMAC, Type: inet.EtherTypeARP}
	eth.Put(f)
	a.Put(f[inet.EthernetLen:])
	return f
}

// frame6 is Ethernet and IPv6 around octets, to all nodes or a group of them.
func frame6(src inet.MAC, from, to inet.Addr, next, hopLimit uint8, octets []byte) []byte {
	f := make([]byte, inet.EthernetLen+inet.IPv6Len, 1500)
	eth := inet.Ethernet{Dst: to.GroupMAC(), Src: src, Type: inet.EtherTypeIPv6}
	eth.Put(f)
	ip := inet.IPv6{
		PayloadLen: len(octets), NextHeader: next, HopLimit: hopLimit, Src: from, Dst: to,
	}
	ip.Put(f[inet.EthernetLen:])
	return append(f, octets...)
}

// icmp6 is a frame with an ICMPv6 message, whose checksum it makes right. format is in hex.
func icmp6(
	t testing.TB, src inet.MAC, from, to inet.Addr, hopLimit uint8, format string, args ...any,
) []byte {
	m := unhex(t, fmt.Sprintf(format, args...))
	sum := inet.Checksum(m, inet.PseudoSum(from, to, inet.ProtoICMPv6, len(m)))
	binary.BigEndian.PutUint16(m[2:], sum)
	return frame6(src, from, to, inet.ProtoICMPv6, hopLimit, m)
}

// advert is an advertisement of target to all nodes by the station at mac.
func advert(t testing.TB, mac inet.MAC, target inet.Addr) []byte {
	return icmp6(t, mac, target, inet.AllNodes, 255,
		"88 00 0000 20000000 %x 0201 %x", [16]byte(target), [6]byte(mac))
}

// question is a solicitation for target by the station at mac.
func question(t testing.TB, mac inet.MAC, from, target inet.Addr) []byte {
	option := fmt.Sprintf("01 01 %x", [6]byte(mac))
	if from.IsUnspecified() {
		option = ""
	}
	return icmp6(t, mac, from, target.SolicitedNode(), 255,
		"87 00 0000 00000000 %x %s", [16]byte(target), option)
}

func unhex(t testing.TB, s string) []byte {
	t.Helper()
	b, err := hex.DecodeString(strings.Join(strings.Fields(s), ""))
	require.NoError(t, err)
	return b
}
