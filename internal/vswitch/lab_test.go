package vswitch

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
	"github.com/rnicd/rnicd/pmd/wire"
)

const patience = 30 * time.Second

// lab is a switch that the test turns by hand, in virtual time, with programs that are ports of
// this process.
type lab struct {
	t      testing.TB
	cfg    Config
	sw     *Switch
	now    int64
	sides  map[string]*side
	uplink *side // the other end of the uplink's wire
}

// side is what a program, or the outside, has.
type side struct {
	l    *lab
	port pmd.Port
	pool *mem.Pool
	q    pmd.Queue
	all  []pmd.Queue
}

// The stations: one and two have addresses of their own, left and right share one, tagged is on a
// VLAN, and out is somebody beyond the uplink.
var (
	macOne, macTwo, macShared, macTagged, macOut = inet.MAC{2, 5: 1}, inet.MAC{2, 5: 2},
		inet.MAC{2, 5: 9}, inet.MAC{2, 5: 7}, inet.MAC{4, 5: 1}
	ipOne, ipTwo, ipShared, ipTagged, ipOut = addr("10.9.0.1"), addr("10.9.0.2"),
		addr("10.9.0.9"), addr("10.9.0.7"), addr("10.9.0.254")
	ip6One, ip6Two, ip6Shared, ip6Out = addr("fd09::1"), addr("fd09::2"), addr("fd09::9"),
		addr("fd09::fe")
)

func addr(s string) inet.Addr { return inet.AddrFrom(netip.MustParseAddr(s)) }

func programs(socket string) []Program {
	all := []Program{
		{Name: "one", MAC: macOne, Addrs: []inet.Addr{ipOne, ip6One}},
		{Name: "two", MAC: macTwo, Addrs: []inet.Addr{ipTwo, ip6Two}},
		{Name: "left", MAC: macShared, Addrs: []inet.Addr{ipShared, ip6Shared},
			Ports: []PortRange{{1000, 1999}}},
		{Name: "right", MAC: macShared, Addrs: []inet.Addr{ip6Shared, ipShared},
			Ports: []PortRange{{2000, 2000}, {3000, 3999}}},
		{Name: "tagged", MAC: macTagged, Addrs: []inet.Addr{ipTagged}, VLAN: 5},
	}
	for i := range all {
		all[i].Socket, all[i].ID = socket, uint32(i)
	}
	return all
}

// newLab has all programs attached. change may be nil.
func newLab(t testing.TB, change func(*Config)) *lab {
	t.Helper()
	l := &lab{t: t, now: 1, sides: map[string]*side{}}
	socket := filepath.Join(t.TempDir(), "s.sock")
	link := must(wire.New(wire.Config{Slots: 1024}))(t)
	l.cfg = Config{Uplinks: []Uplink{{Port: link.Port(0)}}, Programs: programs(socket)}
	if change != nil {
		change(&l.cfg)
	}
	l.cfg.Arena = hugepages.Heap(int(l.cfg.MemoryBytes(0)) + 1<<20)
	l.sw = must(New(l.cfg))(t)
	t.Cleanup(func() { require.NoError(t, l.sw.Close()) })
	l.uplink = l.open(link.Port(1), nil, 1)
	for i := range l.cfg.Programs {
		l.attach(&l.cfg.Programs[i])
	}
	l.turn()
	return l
}

func (l *lab) open(p pmd.Port, arena *hugepages.Arena, queues int) *side {
	l.t.Helper()
	cfg := mem.PoolConfig{Bufs: 2048, Stride: 2048}
	if arena == nil {
		arena = hugepages.Heap(cfg.Bytes() + 4096)
	}
	s := &side{l: l, port: p}
	s.pool = must(mem.NewPool(arena, cfg))(l.t)
	for i := range queues {
		q := must(p.Open(i, s.pool))(l.t)
		s.all = append(s.all, q)
	}
	s.q = s.all[0]
	return s
}

// attach has a program attach, with memory that it does not lend.
func (l *lab) attach(p *Program) *side {
	l.t.Helper()
	shm, err := memif.Dial(memif.Config{Socket: p.Socket, ID: p.ID, Secret: p.Secret, MAC: p.MAC,
		Queues: max(p.Queues, 1), RingLog2: 8})
	require.NoError(l.t, err)
	l.t.Cleanup(func() { require.NoError(l.t, shm.Close()) })
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(l.t, shm.AwaitLink(ctx, true), p.Name)
	s := l.open(shm, nil, max(p.Queues, 1))
	for _, q := range s.all {
		require.Zero(l.t, q.Rx(make([]mem.Buf, 1)))
	}
	l.sides[p.Name] = s
	l.turn()
	return s
}

// turn turns all cores until there is nothing to do, a microsecond apart.
func (l *lab) turn() {
	for idle := 0; idle < 3; idle++ {
		l.now += 1000
		for _, c := range l.sw.Cores() {
			if c.Turn(l.now) > 0 {
				idle = 0
			}
		}
	}
}

// send puts frames into the side's ring, all of which must have room there.
func (s *side) send(frames ...[]byte) {
	s.l.t.Helper()
	for _, f := range frames {
		require.True(s.l.t, s.tries(s.q, f), "no room")
	}
}

// tries sends a frame if there is room in the ring of q.
func (s *side) tries(q pmd.Queue, f []byte) bool {
	s.l.t.Helper()
	b := s.pool.Alloc()
	require.NotEqual(s.l.t, mem.NoBuf, b)
	s.pool.Desc(b).Len = uint32(len(f))
	copy(s.pool.Data(b), f)
	defer s.pool.Free(b)
	return q.Tx([]mem.Buf{b}) == 1
}

// take is all that has come.
func (s *side) take() (frames [][]byte) {
	var bufs [32]mem.Buf
	for _, q := range s.all {
		for n := q.Rx(bufs[:]); n > 0; n = q.Rx(bufs[:]) {
			for _, b := range bufs[:n] {
				frames = append(frames, bytes.Clone(s.pool.Data(b)))
				s.pool.Free(b)
			}
		}
	}
	return frames
}

// got says which program got which frames, and empties all rings.
func (l *lab) got() map[string][][]byte {
	all := map[string][][]byte{}
	for name, s := range l.sides {
		if f := s.take(); f != nil {
			all[name] = f
		}
	}
	if f := l.uplink.take(); f != nil {
		all["out"] = f
	}
	return all
}

func (l *lab) side(name string) *side {
	if name == "out" {
		return l.uplink
	}
	return l.sides[name]
}

// goes has a station send a frame, and says whom it has to come to.
func (l *lab) goes(want, from string, f []byte) {
	l.t.Helper()
	l.side(from).send(f)
	l.turn()
	require.Equal(l.t, want, names(l.got()), "%v", l.drops(from))
}

// detach ends programs.
func (l *lab) detach(names ...string) {
	l.t.Helper()
	gone := map[string]bool{}
	for _, name := range names {
		require.NoError(l.t, l.sides[name].port.Close())
		delete(l.sides, name)
		gone[name] = false
	}
	l.awaitAttached(gone)
}

// stats is a snapshot without a goroutine that turns.
func (l *lab) stats(name string) PortStats {
	if name == "out" {
		return l.sw.uplinks[0][0].snapshot()
	}
	for _, m := range l.sw.programs {
		if m.name == name {
			return m.snapshot()
		}
	}
	l.t.Fatalf("no program %q", name)
	return PortStats{}
}

// drops are those of a port, with their reasons.
func (l *lab) drops(name string) map[string]uint64 { return named(l.stats(name).Drops) }

func named(d [Reasons]uint64) map[string]uint64 {
	all := map[string]uint64{}
	for r, n := range d {
		if n > 0 {
			all[Reason(r).String()] = n
		}
	}
	return all
}

// requireWhole wants all Bufs back: call it with nothing on the way.
func (l *lab) requireWhole() {
	l.t.Helper()
	for _, c := range l.sw.Cores() {
		require.Equal(l.t, c.pool.Size(), c.pool.Available(), "core %d", c.id)
	}
}

// Frames.

func ether(dst, src inet.MAC, vid, typ uint16, payload []byte) []byte {
	b := make([]byte, inet.EthernetLen+inet.VLANLen)
	h := inet.Ethernet{Dst: dst, Src: src, Type: typ}
	if vid != 0 {
		h.PutVLAN(b, vid)
	} else {
		h.Put(b)
		b = b[:inet.EthernetLen]
	}
	b = append(b, payload...)
	for len(b) < inet.FrameMin {
		b = append(b, 0)
	}
	return b
}

// four and six are frames without a tag.
func four(dst, src inet.MAC, packet []byte) []byte {
	return ether(dst, src, 0, etherTypeIPv4, packet)
}

func six(dst, src inet.MAC, packet []byte) []byte {
	return ether(dst, src, 0, etherTypeIPv6, packet)
}

func arpFrame(dst inet.MAC, a inet.ARP) []byte {
	b := make([]byte, inet.ARPLen)
	a.Put(b)
	return ether(dst, a.SenderMAC, 0, inet.EtherTypeARP, b)
}

func ipv4(src, dst inet.Addr, proto uint8, fragment uint16, payload []byte) []byte {
	b := make([]byte, inet.IPv4Len)
	h := inet.IPv4{ID: 77, Proto: proto, Src: src, Dst: dst, TotalLen: len(b) + len(payload),
		MF: fragment&0x2000 != 0, FragOff: int(fragment&0x1fff) * 8}
	h.Put(b)
	return append(b, payload...)
}

func ipv6(src, dst inet.Addr, next uint8, payload []byte) []byte {
	b := make([]byte, inet.IPv6Len)
	h := inet.IPv6{HopLimit: 255, NextHeader: next, Src: src, Dst: dst, PayloadLen: len(payload)}
	h.Put(b)
	return append(b, payload...)
}

func ip(src, dst inet.Addr, proto uint8, payload []byte) (typ uint16, packet []byte) {
	if src.Is4() {
		return etherTypeIPv4, ipv4(src, dst, proto, 0, payload)
	}
	return etherTypeIPv6, ipv6(src, dst, proto, payload)
}

// tcpOf is the beginning of a segment and some octets.
func tcpOf(src, dst uint16) []byte {
	b := make([]byte, 32)
	binary.BigEndian.PutUint16(b, src)
	binary.BigEndian.PutUint16(b[2:], dst)
	b[12] = 5 << 4
	return b
}

// segment is a frame of TCP.
func segment(dstMAC, srcMAC inet.MAC, src, dst inet.Addr, sport, dport uint16) []byte {
	typ, p := ip(src, dst, inet.ProtoTCP, tcpOf(sport, dport))
	return ether(dstMAC, srcMAC, 0, typ, p)
}

// quoting is an ICMP error about a packet.
func quoting(typ uint8, packet []byte) []byte {
	return append([]byte{typ, 1, 0, 0, 0, 0, 0, 0}, packet...)
}

func solicit(src, target inet.Addr, mac inet.MAC, dst inet.Addr) []byte {
	b := make([]byte, inet.NDNeighLen)
	return ipv6(src, dst, inet.ProtoICMPv6,
		b[:inet.PutNeighbourSolicitation(b, mac, src, dst, target)])
}

func advert(src, target inet.Addr, mac inet.MAC, dst inet.Addr) []byte {
	b := make([]byte, inet.NDNeighLen)
	return ipv6(src, dst, inet.ProtoICMPv6,
		b[:inet.PutNeighbourAdvertisement(b, mac, src, dst, target)])
}

func udpOf() []byte { return []byte{0, 53, 0, 53, 0, 8, 0, 0} }

func echoOf() []byte { return []byte{8, 0, 0, 0, 1, 2, 3, 4} }

func names(m map[string][][]byte) string {
	s := ""
	for _, n := range []string{"one", "two", "left", "right", "tagged", "out"} {
		if k := len(m[n]); k == 1 {
			s += " " + n
		} else if k > 1 {
			s += fmt.Sprintf(" %dx%s", k, n)
		}
	}
	if s == "" {
		return s
	}
	return s[1:]
}

// awaitAttached turns until programs are attached, or not, as wanted.
func (l *lab) awaitAttached(want map[string]bool) {
	l.t.Helper()
	for end := time.Now().Add(patience); ; {
		l.turn()
		ok := true
		for _, p := range l.sw.Peers() {
			if w, asked := want[p.Name]; asked && w != p.Attached {
				ok = false
			}
		}
		if ok {
			l.turn()
			return
		}
		require.True(l.t, time.Now().Before(end))
	}
}

var allStations = inet.Broadcast

// requestOf asks for the shared address, announceOf tells of one's own.
func requestOf(mac inet.MAC) inet.ARP { return inet.RequestARP(mac, ipOf(mac), ipShared) }

func announceOf(mac inet.MAC) inet.ARP { return inet.AnnounceARP(mac, ipOf(mac)) }

func ipOf(mac inet.MAC) inet.Addr {
	return map[inet.MAC]inet.Addr{macOne: ipOne, macTwo: ipTwo, macOut: ipOut}[mac]
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
