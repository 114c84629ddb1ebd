package engine

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"net/netip"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// newUDSocketAt is a carrier at an address, any port, and a socket of the kernel's if plain.
func newUDSocketAt(t *testing.T, a netip.Addr, plain bool) (s *udSocket, port uint16) {
	t.Helper()
	family, name := unix.AF_INET6, unix.Sockaddr(&unix.SockaddrInet6{})
	if a.Is4() {
		family, name = unix.AF_INET, &unix.SockaddrInet4{}
	}
	fd := must(unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))(t)
	t.Cleanup(func() { _ = unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, name))
	s = &udSocket{port: &udPort{engine: &Engine{area: &ring.Area{}}}, fd: fd,
		room: make([]byte, udMessages*udMessageRoom)}
	if !plain {
		require.NoError(t, s.set())
	}
	switch at := must(unix.Getsockname(fd))(t).(type) {
	case *unix.SockaddrInet4:
		port = uint16(at.Port)
	case *unix.SockaddrInet6:
		port = uint16(at.Port)
	}
	return s, port
}

// cameTo are the datagrams that have come, each with its class. runs: some came by one message.
func (s *udSocket) cameTo(six bool) (all []string, runs bool) {
	s.six = six
	for s.arrived = s.recvmmsg(); s.arrived > 0; s.arrived = s.recvmmsg() {
		s.opened = 0
		var d udIn
		for s.next(&d) {
			all = append(all, string(d.octets)+string(rune(d.class)))
			s.rest.octets = s.rest.octets[len(d.octets):]
			runs = runs || len(s.rest.octets) > 0
		}
	}
	return all, runs
}

// Batches of datagrams in which one path and one length follow another, as drawn, come as they were
// sent, each by itself and in order, at a socket that takes several at once and at one that does
// not: also where the path's MTU is too small for some, which are dropped and counted, and up to
// one whose memory cannot be read.
func TestUDRuns(t *testing.T) {
	netlab.Enter(t)
	out, err := exec.Command("ip", "link", "set", "lo", "up", "mtu", "1500").CombinedOutput()
	require.NoError(t, err, "%s", out)
	seed := rand.Uint64()
	t.Log("seed", seed)
	draws := rand.New(rand.NewPCG(seed, 0))
	none := must(unix.Mmap(-1, 0, 4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON))(t)
	sent, came := 0, 0 // of runs, by one message
	for _, here := range []netip.Addr{netip.MustParseAddr("127.0.0.1"), netip.IPv6Loopback()} {
		s, _ := newUDSocketAt(t, here, false)
		receivers, ports := [3]*udSocket{}, [3]uint16{}
		for i := range receivers {
			receivers[i], ports[i] = newUDSocketAt(t, here, i == 0)
		}
		longest := 1500 - 20 - 8
		if here.Is6() {
			longest = 1500 - 40 - 8
		}
		for range 300 {
			batch, want := make([]udOut, 1+draws.IntN(udBatch)), [3][]string{}
			var drops uint64
			stop := len(batch)
			for i := range batch {
				o := &batch[i]
				if i == 0 || draws.IntN(12) == 0 {
					o.destination, o.port = gid(here.As16()), ports[draws.IntN(3)]
					o.class = uint8(draws.IntN(2) * 8)
				} else {
					o.udPath = batch[i-1].udPath
				}
				size := longest + 1
				switch d := draws.IntN(40); {
				case i > 0 && d < 35:
					size = batch[i-1].size
				case d < 39:
					size = udHeaderLen + draws.IntN(longest-udHeaderLen)
				}
				o.size = size
				message := bytes.Repeat([]byte{byte(i)}, size-udHeaderLen)
				binary.BigEndian.PutUint64(o.header[:], draws.Uint64())
				for rest := message; len(rest) > 0; {
					n := min(1+draws.IntN(len(rest)), len(rest))
					if len(o.parts) == sgeMax-1 {
						n = len(rest)
					}
					o.parts, rest = append(o.parts, rest[:n]), rest[n:]
				}
				if len(message) > 0 && size <= longest && draws.IntN(400) == 0 {
					o.parts = [][]byte{none[:len(message)]}
					stop = min(stop, i)
				}
				switch {
				case i >= stop:
				case size > longest:
					drops++
				default:
					k := 0
					for ports[k] != o.port {
						k++
					}
					class := string(rune(o.class))
					if k == 0 {
						class = "\x00" // which it is not told
					}
					want[k] = append(want[k], string(o.header[:])+string(message)+class)
				}
			}
			before := s.port.engine.area.Drops[ring.DropUnsent]
			n, why := s.carry(batch)
			require.Equal(t, stop, n)
			if stop < len(batch) {
				require.Equal(t, udFault, why)
			} else {
				require.Equal(t, udSent, why)
			}
			require.Equal(t, drops, s.port.engine.area.Drops[ring.DropUnsent]-before)
			if s.runs[0] > 1 {
				sent++
			}
			for i, r := range receivers {
				got, runs := r.cameTo(here.Is6())
				require.Equal(t, want[i], got, "receiver %d", i)
				require.Zero(t, r.port.engine.area.Drops)
				if runs {
					came++
				}
			}
		}
		require.False(t, s.alone)
	}
	require.Positive(t, sent, "runs")
	require.Positive(t, came, "runs")
}

// burst has datagrams without a message sent to u as one message, and f called on the goroutine
// that has not looked at them yet.
func burst(u *udEnd, n int, f func(s *udSocket)) {
	u.p.t.Helper()
	from := must(net.ListenUDP("udp4", &net.UDPAddr{IP: udHere[12:], Port: freeSlot(u.p.t)}))(u.p.t)
	defer from.Close()
	source := uint32(from.LocalAddr().(*net.UDPAddr).Port-slotPort) << numberBits
	var header [udHeaderLen]byte
	(&udHeader{destination: u.number, source: source | 1, qkey: udKey}).put(&header)
	size := controls{b: make([]byte, 0, 64)}
	binary.NativeEndian.PutUint16((&size).add(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2), udHeaderLen)
	var err error
	u.p.engine.whenUDQuiet(func() {
		_, _, err = from.WriteMsgUDP(bytes.Repeat(header[:], n), size.b,
			&net.UDPAddr{IP: udHere[12:], Port: int(portOf(u.number))})
		f(u.p.engine.udPort.carrier.(*udSocket))
	})
	require.NoError(u.p.t, err)
}

// A Turn delivers some of what has come as one message, so that a program has time to post buffers
// and to take completions; the rest follows without another datagram that comes.
func TestUDTurnOfRun(t *testing.T) {
	p := newUDProgram(t)
	b := p.newEnd(udRTR, udKey)
	const n = 2*udBatch - 4
	for i := range uint64(n) {
		b.recv(i, p.sge(0, 64))
	}
	var some, all bool
	burst(b, n, func(s *udSocket) {
		s.Receive(s.watch)
		some, all = wq.There(&b.done[udBatch-1], udBatch-1), wq.There(&b.done[udBatch], udBatch)
	})
	require.True(t, some)
	require.False(t, all)
	for i := range uint64(n) {
		require.Equal(t, i, b.poll().ID)
	}
	require.Zero(t, p.drops())
}

// Where the buffers of a queue pair are used up the rest of what has come waits some Turns for new
// ones, and is then dropped: in one Turn, as long as there are none.
func TestUDWaitsForBuffers(t *testing.T) {
	p := newUDProgram(t)
	b := p.newEnd(udRTR, udKey)
	const n, buffers = 2 * udBatch, 8
	b.recv(0, p.sge(0, 64))
	burst(b, n, func(s *udSocket) {
		s.Receive(s.watch)
		for i := uint64(1); i < n; i++ {
			if i%buffers == 0 {
				s.Receive(s.watch)
			}
			b.recv(i, p.sge(0, 64))
		}
	})
	for i := range uint64(n) {
		require.Equal(t, i, b.poll().ID)
	}
	require.Zero(t, p.drops())

	var early, late, again uint64
	none := func() uint64 { return p.drops()[ring.DropNoBuffer] }
	burst(b, n, func(s *udSocket) {
		for range udPatience {
			s.Receive(s.watch)
		}
		early = none()
		s.Receive(s.watch)
		late = none()
		s.Receive(s.watch)
	})
	require.EqualValues(t, 0, early)
	require.EqualValues(t, udBatch, late)
	require.EqualValues(t, n, none())
	burst(b, udBatch, func(s *udSocket) {
		s.Receive(s.watch)
		again = none()
	})
	require.EqualValues(t, n+udBatch, again)
}

// A datagram to a group does not wait for one of the queue pairs that are attached.
func TestUDGroupWithoutBuffers(t *testing.T) {
	p := newUDProgram(t)
	b := p.newEnd(udRTR, udKey)
	all := gid(netip.MustParseAddr("239.1.2.3").As16())
	d := udIn{octets: make([]byte, udHeaderLen), destination: all, port: slotPort, stays: true}
	(&udHeader{destination: groupNumber, qkey: udKey}).put((*[udHeaderLen]byte)(d.octets))
	waits := true
	p.engine.whenUDQuiet(func() {
		port := p.engine.udPort
		port.groups[all] = &udGroup{members: []*ud{port.all[b.number%numbersMax]}}
		waits = port.receive(&d)
		delete(port.groups, all)
	})
	require.False(t, waits)
	require.EqualValues(t, 1, p.drops()[ring.DropNoBuffer])
}
