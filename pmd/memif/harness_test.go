package memif

import (
	"bytes"
	"context"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// patience bounds every wait for the kernel or another thread.
const patience = 30 * time.Second

func newRand(t testing.TB) *rand.Rand {
	seed := rand.Uint64()
	t.Logf("seed %#x", seed)
	return rand.New(rand.NewPCG(seed, 1))
}

func within(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

func socketPath(t testing.TB) string { return filepath.Join(t.TempDir(), "memif.sock") }

// memfdArena is one that can be shared.
func memfdArena(t testing.TB, octets int) *hugepages.Arena {
	t.Helper()
	a, err := hugepages.New(hugepages.Config{Bytes: int64(octets), Page: hugepages.Normal,
		Node: hugepages.AnyNode, Memfd: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, a.Close()) })
	return a
}

// side is one port with its queues, each with a Pool.
type side struct {
	port   *Port
	queues []*Queue
	pools  []*mem.Pool
}

const (
	bufsOfSide = 1024
	stride     = 2048
)

func openSide(t testing.TB, p *Port, arena *hugepages.Arena, bufs int) *side {
	t.Helper()
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	s := &side{port: p}
	for i := range p.Caps().Queues {
		cfg := mem.PoolConfig{Bufs: bufs, Stride: stride}
		a := arena
		if a == nil {
			a = hugepages.Heap(cfg.Bytes())
		}
		pool := must(mem.NewPool(a, cfg))(t)
		q := must(p.Open(i, pool))(t)
		s.queues, s.pools = append(s.queues, q.(*Queue)), append(s.pools, pool)
	}
	return s
}

// listen is a Listener, at a socket of the test's own unless cfg names one.
func listen(t testing.TB, cfg ListenConfig) *Listener {
	t.Helper()
	if cfg.Socket == "" {
		cfg.Socket = socketPath(t)
	}
	l := must(Listen(cfg))(t)
	t.Cleanup(func() { require.NoError(t, l.Close()) })
	return l
}

// bind is a port of l's.
func bind(t testing.TB, l *Listener, cfg BindConfig, bufs int) *side {
	t.Helper()
	p := must(l.Bind(cfg))(t)
	return openSide(t, p, nil, bufs)
}

// buf returns a Buf with frame in it.
func (s *side) buf(t testing.TB, q int, frame []byte) mem.Buf {
	t.Helper()
	b := s.pools[q].Alloc()
	require.NotEqual(t, mem.NoBuf, b, "pool empty")
	s.pools[q].Desc(b).Len = uint32(len(frame))
	copy(s.pools[q].Data(b), frame)
	return b
}

// send sends frames and keeps no hold on them; there must be room for all.
func (s *side) send(t testing.TB, q int, frames ...[]byte) {
	t.Helper()
	for _, f := range frames {
		b := s.buf(t, q, f)
		require.Equal(t, 1, s.queues[q].Tx([]mem.Buf{b}), "no room")
		s.pools[q].Free(b)
	}
}

// tx offers a frame to Tx once, and returns how many it took.
func (s *side) tx(t testing.TB, frame []byte) int {
	t.Helper()
	b := s.buf(t, 0, frame)
	defer s.pools[0].Free(b)
	return s.queues[0].Tx([]mem.Buf{b})
}

// take is what one Rx finds.
func (s *side) take(q int) (frames [][]byte) {
	var bufs [32]mem.Buf
	for _, b := range bufs[:s.queues[q].Rx(bufs[:])] {
		frames = append(frames, bytes.Clone(s.pools[q].Data(b)))
		s.pools[q].Free(b)
	}
	return frames
}

// receive polls until it has want frames.
func (s *side) receive(t testing.TB, q, want int) (frames [][]byte) {
	t.Helper()
	for end := time.Now().Add(patience); len(frames) < want && time.Now().Before(end); {
		got := s.take(q)
		if frames = append(frames, got...); len(got) == 0 {
			yield()
		}
	}
	require.GreaterOrEqual(t, len(frames), want, "frames received; queue %+v, %+v",
		s.queues[q].Counters(), s.queues[q].Drops())
	return frames
}

// poll has all queues see what has become of the link.
func (s *side) poll() {
	for i := range s.queues {
		s.take(i)
	}
}

// closed closes the port and wants every Buf back.
func (s *side) closed(t testing.TB) {
	t.Helper()
	require.NoError(t, s.port.Close())
	for i, p := range s.pools {
		require.Equal(t, p.Size(), p.Available(), "Bufs of queue %d", i)
	}
}

// bothClosed closes a pair's ports. The server goes first: a client waits for up to a second until
// the server's queues have left its memory, and nobody polls them here.
func bothClosed(t testing.TB, client, server *side) {
	t.Helper()
	server.closed(t)
	client.closed(t)
}

// kind is how a client moves frames.
type kind struct {
	name string
	zero bool
}

var kinds = []kind{{"copy", false}, {"zero", true}}

func eachKind(t *testing.T, f func(t *testing.T, k kind)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) { f(t, k) })
	}
}

// pairConfig is what tests change of a client and a bound port.
type pairConfig struct {
	client Config
	bind   BindConfig
	listen ListenConfig
	zero   bool
	bufs   int
}

// newPair joins a client and a server of this process.
func newPair(t testing.TB, cfg pairConfig) (client, server *side, l *Listener) {
	t.Helper()
	if cfg.bufs == 0 {
		cfg.bufs = bufsOfSide
	}
	l = listen(t, cfg.listen)
	server = bind(t, l, cfg.bind, cfg.bufs)
	cfg.client.Socket = l.cfg.Socket
	client = dialSide(t, cfg.client, cfg.zero, cfg.bufs)
	// As in bothClosed.
	t.Cleanup(func() { require.NoError(t, server.port.Close()) })
	joined(t, client, server)
	return client, server, l
}

func dialSide(t testing.TB, cfg Config, zero bool, bufs int) *side {
	t.Helper()
	if zero {
		cfg.Arena = memfdArena(t, max(cfg.Queues, 1)*bufs*stride+1<<16)
	}
	cp := must(Dial(cfg))(t)
	return openSide(t, cp, cfg.Arena, bufs)
}

// joined waits for the link, and for the client's buffers to be in the ring.
func joined(t testing.TB, sides ...*side) {
	t.Helper()
	for _, s := range sides {
		require.NoError(t, s.port.AwaitLink(within(t), true))
		s.poll()
	}
}

// frame makes an Ethernet frame of an experimental type (IEEE 802: 0x88b5) with random octets.
func frame(r *rand.Rand, octets int) []byte {
	f := make([]byte, octets)
	for i := range f {
		f[i] = byte(r.Uint32())
	}
	copy(f, []byte{2, 0, 0, 0, 0, 2, 2, 0, 0, 0, 0, 1, 0x88, 0xb5})
	return f
}

func frameOctets(r *rand.Rand) int { return pmd.EthernetLen + r.IntN(1500) }

func bytesOf(w []uint64) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), 8*len(w))
}

// yield leaves the core to what we wait for: another goroutine, or another process.
func yield() {
	runtime.Gosched()
	_, _, _ = unix.RawSyscall(unix.SYS_SCHED_YIELD, 0, 0, 0)
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
