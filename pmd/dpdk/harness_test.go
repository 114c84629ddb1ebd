//go:build dpdk

package dpdk

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// ealArgsVar passes EAL arguments to a test process of another environment: the EAL starts once per
// process.
const ealArgsVar = "RNICD_DPDK_TEST_EAL_ARGS"

// pageVar makes the arenas of such a process lie on normal pages.
const pageVar = "RNICD_DPDK_TEST_NORMAL_PAGES"

// patience bounds every wait for the kernel or another thread.
const patience = 10 * time.Second

func testArgs() []string { return strings.Fields(os.Getenv(ealArgsVar)) }

// start runs the EAL, or skips if this machine cannot.
func start(t testing.TB) {
	t.Helper()
	if err := Init(testArgs()); err != nil {
		if os.Geteuid() != 0 {
			skip.Missing(t, "not root: %v", err)
		}
		t.Fatal(err)
	}
}

func newArena(t testing.TB, octets int) *hugepages.Arena {
	t.Helper()
	page := hugepages.Auto
	if os.Getenv(pageVar) != "" {
		page = hugepages.Normal
	}
	a, err := hugepages.New(
		hugepages.Config{Bytes: int64(octets), Page: page, Node: hugepages.AnyNode})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

func newPool(t testing.TB, a *hugepages.Arena, bufs, stride int) *mem.Pool {
	t.Helper()
	return must(mem.NewPool(a, mem.PoolConfig{Bufs: bufs, Stride: stride}))(t)
}

// side is one port with one queue and its Pool.
type side struct {
	port  *Port
	queue *Queue
	pool  *mem.Pool
	idle  int // Bufs free at the start
}

// openSide opens cfg over a fresh Pool in an arena of its own.
func openSide(t testing.TB, cfg Config, bufs, stride int) *side {
	t.Helper()
	start(t)
	if cfg.Arena == nil {
		cfg.Arena = newArena(t, bufs*stride+1<<16)
	}
	p := must(open(cfg))(t)
	s := &side{port: p, pool: newPool(t, cfg.Arena, bufs, stride)}
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	q := must(p.Open(0, s.pool))(t)
	s.queue = q.(*Queue)
	s.idle = s.pool.Available()
	return s
}

// ringSides opens both ends of a RingPair.
func ringSides(t testing.TB, name string, entries, bufs, stride int) (a, b *side) {
	t.Helper()
	start(t)
	na, nb, err := RingPair(name, entries)
	require.NoError(t, err)
	return openSide(t, Config{Vdev: na}, bufs, stride), openSide(t, Config{Vdev: nb}, bufs, stride)
}

// refused opens a port, whose first queue must fail to open.
func refused(t testing.TB, cfg Config, bufs int, want string) {
	t.Helper()
	p := must(open(cfg))(t)
	require.ErrorContains(t, errOf(p.Open(0, newPool(t, cfg.Arena, bufs, 2048))), want)
	require.NoError(t, p.Close())
}

// buf returns a Buf with frame in it.
func (s *side) buf(t testing.TB, frame []byte) mem.Buf {
	t.Helper()
	b := s.pool.Alloc()
	require.NotEqual(t, mem.NoBuf, b, "pool empty")
	s.pool.Desc(b).Len = uint32(len(frame))
	copy(s.pool.Data(b), frame)
	return b
}

// send sends frames and keeps no hold on them.
func (s *side) send(t testing.TB, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		b := s.buf(t, f)
		require.True(t, eventually(func() bool {
			return s.queue.Tx([]mem.Buf{b}) == 1
		}), "device stays full")
		s.pool.Free(b)
	}
}

// receive polls until it has want frames that pass keep (nil: all), frees them and returns their
// octets.
func (s *side) receive(t testing.TB, want int, keep func([]byte, mem.Desc) bool) (frames [][]byte) {
	t.Helper()
	bufs := make([]mem.Buf, 32)
	eventually(func() bool {
		for _, b := range bufs[:s.queue.Rx(bufs)] {
			f := bytes.Clone(s.pool.Data(b))
			if keep == nil || keep(f, *s.pool.Desc(b)) {
				frames = append(frames, f)
			}
			s.pool.Free(b)
		}
		return len(frames) >= want
	})
	require.GreaterOrEqual(t, len(frames), want, "frames received; queue %+v, port %+v",
		s.queue.Stats(), s.port.Stats())
	return frames
}

// bothWays passes bursts of frames, as long as size says, from each side to the other.
func bothWays(t testing.TB, a, b *side, size func(r *rand.Rand) int) {
	t.Helper()
	r := newRand(t)
	for range 50 {
		for _, d := range [][2]*side{{a, b}, {b, a}} {
			var want [][]byte
			for range 1 + r.IntN(40) {
				want = append(want, frame(r, size(r)))
			}
			d[0].send(t, want...)
			require.Equal(t, want, d[1].receive(t, len(want), nil))
		}
	}
	a.settled(t)
	b.settled(t)
}

// settled polls until no sent Buf is with the device, then wants every Buf back.
func (s *side) settled(t testing.TB) {
	t.Helper()
	bufs := make([]mem.Buf, 32)
	eventually(func() bool {
		s.pool.FreeN(bufs[:s.queue.Rx(bufs)])
		return s.pool.Available() == s.idle
	})
	require.Equal(t, s.idle, s.pool.Available(), "Bufs lost")
}

func eventually(done func() bool) bool { return await(patience, done) }

// frame makes an Ethernet frame of an experimental type (IEEE 802: 0x88b5) with random octets.
func frame(r *rand.Rand, octets int) []byte {
	f := make([]byte, octets)
	for i := range f {
		f[i] = byte(r.Uint32())
	}
	copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	return f
}

func isOurs(f []byte, _ mem.Desc) bool {
	return len(f) >= 14 && binary.BigEndian.Uint16(f[12:]) == 0x88b5
}

func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

// ownNamespace puts the rest of the test into a network namespace of its own.
func ownNamespace(t testing.TB) { netlab.Enter(t) }

// command runs a program in the thread's namespace.
func command(t testing.TB, words ...string) {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	require.NoError(t, err, "%q: %s", words, out)
}

// rawSocket returns an AF_PACKET socket on an interface of the thread's namespace.
func rawSocket(t testing.TB, name string) (fd int) {
	t.Helper()
	ifi := must(net.InterfaceByName(name))(t)
	proto := uint16(unix.ETH_P_ALL)<<8 | uint16(unix.ETH_P_ALL)>>8
	fd, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC,
		int(proto))
	require.NoError(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	require.NoError(t, unix.Bind(fd, &unix.SockaddrLinklayer{Protocol: proto, Ifindex: ifi.Index}))
	return fd
}

// readRaw reads one frame that passes keep.
func readRaw(t testing.TB, fd int, keep func([]byte, mem.Desc) bool) []byte {
	t.Helper()
	buf := make([]byte, 65536)
	var got []byte
	eventually(func() bool {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		if err == nil && keep(buf[:n], mem.Desc{}) {
			got = bytes.Clone(buf[:n])
		}
		return got != nil
	})
	require.NotNil(t, got, "no frame on the kernel's side")
	return got
}

var _ pmd.Queue = (*Queue)(nil)

// pa says whether the device sees physical addresses.
func (m *arenaMemory) pa() bool {
	return m.iova(0) != uint64(uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes))))
}

// contiguous says whether a device sees b as one piece: every octet one further.
func (m *arenaMemory) contiguous(b []byte) bool {
	off := int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(
		unsafe.Pointer(unsafe.SliceData(m.bytes))))
	return m.iova(off+len(b)-1) == m.iova(off)+uint64(len(b)-1)
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}

// errOf is the error of a call whose other result does not matter.
func errOf[V any](_ V, err error) error { return err }
