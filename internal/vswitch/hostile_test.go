package vswitch

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/pmd/memif"
)

func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// hostile is a program that speaks memif by hand and writes what it likes to its memory.
type hostile struct {
	t      testing.TB
	conn   *net.UnixConn
	memory []byte
}

const (
	hostileBytes = 1 << 18
	hostileLog2  = 6
	ringAt0      = 0    // client to server
	ringAt1      = 2048 // server to client
)

// newHostile attaches as a program, with rings of 64.
func newHostile(t testing.TB, p *Program) *hostile {
	t.Helper()
	h := attachHostile(t, p)
	t.Cleanup(func() {
		h.kill()
		h.unmap()
	})
	return h
}

// attachHostile is newHostile that the test ends by kill and unmap.
func attachHostile(t testing.TB, p *Program) *hostile {
	t.Helper()
	conn, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: p.Socket, Net: "unixpacket"})
	require.NoError(t, err)
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	fd := must(unix.MemfdCreate("hostile", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	require.NoError(t, unix.Ftruncate(fd, hostileBytes))
	must(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))(t)
	memory := must(unix.Mmap(fd, 0, hostileBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(t)
	event := must(unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK))(t)
	h := &hostile{t: t, conn: conn, memory: memory}
	defer unix.Close(fd)
	defer unix.Close(event)
	for _, at := range []int{ringAt0, ringAt1} {
		binary.NativeEndian.PutUint32(memory[at:], 0x3E31F20)
	}
	h.next() // HELLO
	h.say(initMessage(p.ID, ""), -1)
	m := message(4)
	binary.NativeEndian.PutUint64(m[4:], hostileBytes)
	h.say(m, fd)
	for c2s := range 2 {
		m = message(5)
		m[2] = byte(c2s)
		binary.NativeEndian.PutUint32(m[8:], uint32([]int{ringAt1, ringAt0}[c2s]))
		m[12] = hostileLog2
		h.say(m, event)
	}
	h.say(message(6), -1)
	return h
}

func message(typ uint16) []byte {
	m := make([]byte, 128)
	binary.NativeEndian.PutUint16(m, typ)
	return m
}

// Types of memif's messages, and where the reason is in a DISCONNECT.
const (
	msgACK         = 1
	msgConnected   = 7
	msgDisconnect  = 8
	disconnectText = 6
)

// initMessage is an INIT of version 2.0.
func initMessage(id uint32, secret string) []byte {
	m := message(3)
	binary.NativeEndian.PutUint16(m[2:], 2<<8)
	binary.NativeEndian.PutUint32(m[4:], id)
	copy(m[9:33], secret)
	return m
}

// say sends a message and reads the answer.
func (h *hostile) say(m []byte, fd int) {
	h.t.Helper()
	var rights []byte
	if fd >= 0 {
		rights = unix.UnixRights(fd)
	}
	_, _, err := h.conn.WriteMsgUnix(m, rights, nil)
	require.NoError(h.t, err)
	require.Contains(h.t, []uint16{msgACK, msgConnected}, binary.NativeEndian.Uint16(h.next()))
}

func (h *hostile) next() []byte {
	h.t.Helper()
	m := make([]byte, 128)
	n := must(h.conn.Read(m))(h.t)
	require.Equal(h.t, 128, n)
	return m
}

func (h *hostile) kill() { _ = h.conn.Close() }

func (h *hostile) unmap() { _ = unix.Munmap(h.memory) }

// scribble writes what is random to the rings, their indices and the frames.
func (h *hostile) scribble(r *rand.Rand) {
	for _, ring := range []int{ringAt0, ringAt1} {
		for i := range 1 << hostileLog2 {
			d := h.memory[ring+128+16*i:]
			binary.NativeEndian.PutUint16(d, uint16(r.Uint32N(3)))
			binary.NativeEndian.PutUint16(d[2:], []uint16{0, 0, 0, 1, 65535}[r.IntN(5)])
			binary.NativeEndian.PutUint32(d[4:],
				[]uint32{60, 64, 1514, 0, 1, 13, 70000, 1<<32 - 1}[r.IntN(8)])
			binary.NativeEndian.PutUint32(d[8:], []uint32{4096, 8192, hostileBytes - 60, hostileBytes,
				1<<32 - 1}[r.IntN(5)])
		}
		head := h.memory[ring+6:]
		step := uint16(r.Uint32N(1 << hostileLog2))
		if r.IntN(20) == 0 {
			step = uint16(r.Uint32())
		}
		binary.NativeEndian.PutUint16(head, binary.NativeEndian.Uint16(head)+step)
		binary.NativeEndian.PutUint32(h.memory[ring+64:], r.Uint32()) // the tail, which is not its own
	}
	for _, at := range []int{4096, 8192} {
		copy(h.memory[at:], segment(macOne, macTwo, ipTwo, ipOne, 1, 2))
		for range r.IntN(4) {
			h.memory[at+r.IntN(60)] = byte(r.Uint32())
		}
	}
}

// Whatever a program writes to its rings, others lose nothing, get nothing in their name, and no
// buffer is lost.
func TestHostileProgram(t *testing.T) {
	r := newRand(t)
	l := newLab(t, func(c *Config) { c.Programs[1].Buffers = 64 })
	l.detach("two")
	for range sample.Count(20, 200) {
		h := newHostile(t, &l.cfg.Programs[1])
		l.awaitAttached(map[string]bool{"two": true})
		for i := range 50 {
			h.scribble(r)
			want := segment(macOne, macShared, ipShared, ipOne, 1000, uint16(i))
			l.sides["left"].send(want)
			l.sides["left"].send(segment(macTwo, macShared, ipShared, ipTwo, 1000, uint16(i)))
			l.turn()
			found := 0
			for _, f := range l.sides["one"].take() {
				if bytes.Equal(f, want) {
					found++
					continue
				}
				e, _, d := inet.ParseEthernet(f)
				require.Equal(t, inet.DropNone, d)
				require.Equal(t, macTwo, e.Src)
			}
			require.Equal(t, 1, found)
			l.got()
		}
		h.kill()
		l.awaitAttached(map[string]bool{"two": false})
		l.got()
		l.turn()
		l.requireWhole()
	}
	t.Logf("%+v; %v", l.stats("two").Ring, l.drops("two"))
	ring := l.stats("two").Ring
	require.NotZero(t, ring.Descriptor)
	require.NotZero(t, ring.Index)
}

// Programs that come and go leave no memory of the heap behind, and no goroutine.
func TestProgramsComeAndGo(t *testing.T) {
	l := newLab(t, nil)
	l.detach("two")
	cycle := func() {
		h := attachHostile(t, &l.cfg.Programs[1])
		l.awaitAttached(map[string]bool{"two": true})
		h.kill()
		h.unmap()
		l.awaitAttached(map[string]bool{"two": false})
	}
	settled := func() (octets uint64, goroutines int) {
		var m runtime.MemStats
		for range 3 {
			runtime.GC()
		}
		runtime.ReadMemStats(&m)
		return m.HeapAlloc, runtime.NumGoroutine()
	}
	for range 20 {
		cycle()
	}
	before, goroutines := settled()
	n := sample.Count(100, 1000)
	for range n {
		cycle()
	}
	after, now := settled()
	t.Logf("%d programs: %d octets of the heap, then %d; %d goroutines, then %d", n, before, after,
		goroutines, now)
	require.Less(t, float64(after), float64(before)+64<<10)
	require.LessOrEqual(t, now, goroutines+3, "one may be about to end")
}

// FuzzFrames has a program send anything: no program gets frames of another, and the pool loses no
// Buf.
func FuzzFrames(f *testing.F) {
	for _, b := range [][]byte{
		segment(macTwo, macOne, ipOne, ipTwo, 1, 2),
		segment(macShared, macOne, ip6One, ip6Shared, 1, 2000),
		arpFrame(inet.Broadcast, announceOf(macOne)),
		six(inet.AllNodes.GroupMAC(), macOne, advert(ip6One, ip6One, macOne, inet.AllNodes)),
		four(macShared, macOne, ipv4(ipOne, ipShared, 6, 0x2000, tcpOf(9, 3000))),
		four(macShared, macOne, ipv4(ipOne, ipShared, 1, 0, quoting(3,
			ipv4(ipShared, ipOne, 6, 0, tcpOf(3500, 9))))),
		six(macTwo, macOne, ipv6(ip6One, ip6Two, 60, append([]byte{6, 0, 1, 4, 0, 0, 0, 0},
			tcpOf(1, 2)...))),
		ether(macTagged, macOne, 5, etherTypeIPv4, ipv4(ipOne, ipTagged, 6, 0, tcpOf(1, 2))),
	} {
		f.Add(b, false)
		f.Add(b, true)
	}
	l := newLab(f, nil)
	f.Fuzz(func(t *testing.T, b []byte, shared bool) {
		if len(b) < inet.EthernetLen || len(b) > 1514 {
			return
		}
		l.t = t
		from, mac, addrs := "one", macOne, []inet.Addr{ipOne, ip6One, inet.LinkLocal(macOne)}
		if shared {
			from, mac, addrs = "left", macShared, []inet.Addr{ipShared, ip6Shared, inet.LinkLocal(macShared)}
		}
		good := segment(macTwo, mac, addrs[0], ipTwo, 1000, 2)
		l.side(from).send(good, b, good)
		l.turn()
		got := l.got()
		answers := 0
		for who, frames := range got {
			for _, frame := range frames {
				if bytes.Equal(frame, good) {
					continue
				}
				if who == from { // only the switch speaks to it: for the shared address
					answers++
					continue
				}
				require.Equal(t, b, frame, who)
				requireOwn(t, frame, mac, addrs)
			}
		}
		require.LessOrEqual(t, answers, 1)
		require.GreaterOrEqual(t, len(got["two"]), 2)
		l.requireWhole()
	})
}

// requireOwn parses as a receiver would.
func requireOwn(t *testing.T, frame []byte, mac inet.MAC, addrs []inet.Addr) {
	e, p, d := inet.ParseEthernet(frame)
	require.Equal(t, inet.DropNone, d)
	require.Equal(t, mac, e.Src)
	if e.Type == inet.EtherTypeVLAN {
		vid, typ, rest, _ := inet.ParseVLAN(p)
		require.Zero(t, vid)
		e.Type, p = typ, rest
	}
	switch e.Type {
	case inet.EtherTypeARP:
		a, d := inet.ParseARP(p)
		require.Equal(t, inet.DropNone, d)
		require.Equal(t, mac, a.SenderMAC)
		require.True(t, a.SenderIP.IsUnspecified() || slices.Contains(addrs, a.SenderIP))
	case etherTypeIPv4:
		h, _, d := inet.ParseIPv4(p, true)
		require.Contains(t, []inet.Drop{inet.DropNone, inet.DropFragment}, d)
		require.Contains(t, addrs, h.Src)
	case etherTypeIPv6:
		h, rest, d := inet.ParseIPv6(p)
		if d != inet.DropNone {
			return // nobody takes it
		}
		require.True(t, h.Src.IsUnspecified() || slices.Contains(addrs, h.Src))
		c, d := inet.WalkIPv6(rest, h.NextHeader, inet.IPv6Len, false)
		if d == inet.DropNone && c.Proto == inet.ProtoICMPv6 && !c.HasFragment {
			var nd inet.ND
			if inet.ParseND(rest[c.Off:], h.Src, h.Dst, h.HopLimit, &nd) == inet.DropNone &&
				nd.Type == inet.NDNeighbourAdvert {
				require.Contains(t, addrs, nd.Target)
				require.True(t, !nd.HasMAC || nd.MAC == mac)
			}
		}
	default:
		t.Fatalf("EtherType %#x", e.Type)
	}
}

// A program that takes pages out of its memory is detached, and counted; others lose nothing.
func TestProgramWithHoles(t *testing.T) {
	r := newRand(t)
	l := newLab(t, nil)
	l.detach("two")
	h := newHostile(t, &l.cfg.Programs[1])
	l.awaitAttached(map[string]bool{"two": true})
	page := 4096 * (1 + r.IntN(hostileBytes/4096-1))
	d := h.memory[ringAt0+128:]
	binary.NativeEndian.PutUint32(d[4:], 60)
	binary.NativeEndian.PutUint32(d[8:], uint32(page))
	require.NoError(t, unix.Madvise(h.memory[page:][:4096], unix.MADV_REMOVE))
	binary.NativeEndian.PutUint16(h.memory[ringAt0+6:], 1)
	want := segment(macShared, macOne, ipOne, ipShared, 9, 1000)
	l.sides["one"].send(want)
	l.turn()
	require.Equal(t, [][]byte{want}, l.sides["left"].take())
	ring := l.stats("two").Ring
	if ring.Fault == 0 && ring == (memif.Drops{}) {
		skip.Missing(t, "no userfaultfd: the kernel makes the page again")
	}
	require.Equal(t, memif.Drops{Fault: 1}, ring)
	l.awaitAttached(map[string]bool{"two": false})
	require.ErrorContains(t, l.sw.programs[1].memif.Err(), "memory of a region has gone")
	l.requireWhole()
}
