package godpdk

import (
	"bytes"
	"math/rand/v2"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// ealArgs name all devices of the tests: go-dpdk has no hotplug. net_ring0 gives back on a queue
// what is sent on it.
var ealArgs = []string{
	"--lcores=0@0", "--no-huge", "--no-shconf", "-m256", "--no-pci", "--no-telemetry", "--log-level=4",
	"--vdev=net_ring0", "--vdev=net_null0", "--vdev=net_null1", "--vdev=net_tap0,iface=godpdk0",
}

type side struct {
	port  pmd.Port
	queue pmd.Queue
	pool  *mem.Pool
}

func newPool(t testing.TB) *mem.Pool {
	t.Helper()
	p, err := mem.NewPool(hugepages.Heap(512*2048+1<<16), mem.PoolConfig{Bufs: 512, Stride: 2048})
	require.NoError(t, err)
	return p
}

func openSide(t testing.TB, device string) *side {
	t.Helper()
	p, err := Open(Config{EAL: ealArgs, Device: device})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	s := &side{port: p, pool: newPool(t)}
	s.queue, err = p.Open(0, s.pool)
	require.NoError(t, err)
	return s
}

func (s *side) buf(t testing.TB, frame []byte) mem.Buf {
	t.Helper()
	b := s.pool.Alloc()
	require.NotEqual(t, mem.NoBuf, b)
	s.pool.Desc(b).Len = uint32(len(frame))
	copy(s.pool.Data(b), frame)
	return b
}

// Each in turn, for a device that was closed does not come back.
func TestPort(t *testing.T) {
	if os.Geteuid() != 0 {
		skip.Missing(t, "not root: net_tap is among the devices that the EAL starts with")
	}
	t.Run("net_ring gives back what is sent, in order", ring)
	t.Run("net_null without allocation, and what is refused", null)
	t.Run("net_tap and the kernel", tap)
	t.Run("errors", errs)
}

func ring(t *testing.T) {
	s := openSide(t, "net_ring0")
	r := rand.New(rand.NewPCG(1, 2))
	idle := s.pool.Available()
	bufs := make([]mem.Buf, 100)
	for range 100 {
		var want [][]byte
		n := 1 + r.IntN(100)
		for i := range n {
			f := make([]byte, 60+r.IntN(1455))
			for k := range f {
				f[k] = byte(r.Uint32())
			}
			want = append(want, f)
			bufs[i] = s.buf(t, f)
		}
		require.Equal(t, n, s.queue.Tx(bufs[:n]))
		s.pool.FreeN(bufs[:n])
		var got [][]byte
		for len(got) < n {
			k := s.queue.Rx(bufs)
			require.NotZero(t, k)
			for _, b := range bufs[:k] {
				got = append(got, bytes.Clone(s.pool.Data(b)))
			}
			s.pool.FreeN(bufs[:k])
		}
		require.Equal(t, want, got)
	}
	c := s.queue.Counters()
	require.Equal(t, c.TxFrames, c.RxFrames)
	require.Equal(t, c.TxOctets, c.RxOctets)
	require.Zero(t, c.TxErrors+c.TxFull+c.RxTooLong)
	require.Equal(t, idle, s.pool.Available())
}

func null(t *testing.T) {
	s := openSide(t, "net_null0")
	bufs := make([]mem.Buf, 32)
	require.Zero(t, testing.AllocsPerRun(1000, func() {
		n := s.queue.Rx(bufs)
		s.queue.Tx(bufs[:n])
		s.pool.FreeN(bufs[:n])
	}))
	require.NotZero(t, s.queue.Counters().TxFrames)
	before := s.queue.Counters()
	bad := s.buf(t, make([]byte, 60))
	s.pool.Desc(bad).Flags = mem.TxChecksum
	good := s.buf(t, make([]byte, 60))
	require.Equal(t, 3, s.queue.Tx([]mem.Buf{good, bad, good}))
	after := s.queue.Counters()
	require.EqualValues(t, 2, after.TxFrames-before.TxFrames)
	require.EqualValues(t, 1, after.TxErrors-before.TxErrors)
	s.pool.Free(bad)
	s.pool.Free(good)
	var kept []mem.Buf
	for b := s.pool.Alloc(); b != mem.NoBuf; b = s.pool.Alloc() {
		kept = append(kept, b)
	}
	require.Zero(t, s.queue.Rx(bufs), "no Buf to receive into")
	require.NotZero(t, s.queue.Counters().RxNoBuf)
	s.pool.FreeN(kept)
}

// The kernel asks for our address by ARP.
func tap(t *testing.T) {
	s := openSide(t, "net_tap0")
	require.NotZero(t, s.port.MAC())
	for _, words := range [][]string{{"ip", "addr", "add", "10.99.7.1/24", "dev", "godpdk0"},
		{"ip", "link", "set", "godpdk0", "up"}} {
		out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
		require.NoError(t, err, "%s", out)
	}
	ping := exec.Command("ping", "-c", "1", "-W", "10", "10.99.7.2")
	require.NoError(t, ping.Start())
	defer func() { _ = ping.Wait() }()
	defer func() { _ = ping.Process.Kill() }()
	bufs := make([]mem.Buf, 32)
	for asked := false; !asked; { // the test's own time is the limit
		n := s.queue.Rx(bufs)
		for _, b := range bufs[:n] {
			f := s.pool.Data(b)
			asked = asked || len(f) >= 42 && f[12] == 8 && f[13] == 6 &&
				bytes.Equal(f[38:42], []byte{10, 99, 7, 2})
		}
		s.pool.FreeN(bufs[:n])
	}
}

func errs(t *testing.T) {
	_, err := Open(Config{EAL: []string{"--no-pci"}, Device: "net_ring0"})
	require.ErrorContains(t, err, "it starts once per process")
	_, err = Open(Config{Device: "net_nonesuch"})
	require.ErrorContains(t, err, "name it in the EAL's arguments, as --vdev=net_nonesuch")
	pmd.Register(Driver)
	all := pmd.Registered()
	require.Len(t, all, 1)
	d := all[0]
	p, err := d.Open(pmd.DriverConfig{Device: "net_null1", MTU: 1500, Queues: 1})
	require.ErrorContains(t, err, "it starts once per process",
		"its --vdev is not among the arguments")
	require.Nil(t, p)
	p, err = d.Open(pmd.DriverConfig{Device: "net_null1", Args: ealArgs, MTU: 1280, Queues: 1})
	require.NoError(t, err)
	require.Equal(t, pmd.Caps{MTU: 1280, Queues: 1, OneThread: true}, p.Caps())
	_, err = p.Open(1, newPool(t))
	require.ErrorContains(t, err, "there is no queue 1")
	require.NoError(t, p.Close())
	_, err = p.Open(0, newPool(t))
	require.ErrorContains(t, err, "is closed")
}
