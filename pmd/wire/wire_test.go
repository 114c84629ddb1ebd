package wire

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/stretchr/testify/require"
)

// host is one end of a link with a pool of its own.
type host struct {
	t    testing.TB
	port *Port
	pool *mem.Pool
	q    *queue
}

func newPool(t testing.TB, bufs, mtu int) *mem.Pool {
	stride := (mem.Headroom + mtu + pmd.FrameOverhead + 63) / 64 * 64
	pool, err := mem.NewPool(hugepages.Heap((bufs+2)*(stride+64)+1<<16),
		mem.PoolConfig{Bufs: bufs, Stride: stride})
	require.NoError(t, err)
	return pool
}

// newPools are one for each port.
func newPools(t testing.TB, cfg Config, ports, bufs, mtu int) (pools []*mem.Pool) {
	if cfg.ZeroCopy {
		stride := (mem.Headroom + mtu + pmd.FrameOverhead + 63) / 64 * 64
		pair, err := mem.NewPair(hugepages.Heap((2*bufs+2)*stride+1<<16),
			mem.PoolConfig{Bufs: bufs, Stride: stride})
		require.NoError(t, err)
		return pair[:]
	}
	for range ports {
		pools = append(pools, newPool(t, bufs, mtu))
	}
	return pools
}

// bothModes has f make links that copy, and links that do not.
func bothModes(t *testing.T, f func(t *testing.T, cfg Config)) {
	t.Run("copy", func(t *testing.T) { f(t, Config{}) })
	t.Run("zero-copy", func(t *testing.T) { f(t, Config{ZeroCopy: true}) })
}

// newHosts makes a link and opens all of its ports.
func newHosts(t testing.TB, cfg Config, bufs int) []*host {
	l, err := New(cfg)
	require.NoError(t, err)
	var hosts []*host
	pools := newPools(t, cfg, max(cfg.Ports, 2), bufs, l.Port(0).Caps().MTU)
	for i := range max(cfg.Ports, 2) {
		h := &host{t: t, port: l.Port(i), pool: pools[i]}
		q, err := h.port.Open(0, h.pool)
		require.NoError(t, err)
		h.q = q.(*queue)
		hosts = append(hosts, h)
	}
	return hosts
}

// frame is n octets to dst from src, with a pattern that depends on tag.
func frame(dst, src [6]byte, tag uint64, n int) []byte {
	b := make([]byte, n)
	copy(b, dst[:])
	copy(b[6:], src[:])
	fill(b[pmd.EthernetLen:], tag)
	return b
}

// fill writes a pattern in which every word depends on tag and its place.
func fill(b []byte, tag uint64) {
	for ; len(b) >= 8; b = b[8:] {
		binary.LittleEndian.PutUint64(b, tag)
		tag = tag*6364136223846793005 + 1442695040888963407
	}
	for i := range b {
		b[i] = byte(tag >> (8 * i))
	}
}

func filled(b []byte, tag uint64) bool {
	for ; len(b) >= 8; b = b[8:] {
		if binary.LittleEndian.Uint64(b) != tag {
			return false
		}
		tag = tag*6364136223846793005 + 1442695040888963407
	}
	for i := range b {
		if b[i] != byte(tag>>(8*i)) {
			return false
		}
	}
	return true
}

// load puts octets into a Buf of h.
func (h *host) load(octets []byte) mem.Buf {
	b := h.pool.Alloc()
	require.NotEqual(h.t, mem.NoBuf, b, "pool empty")
	h.pool.Desc(b).Len = uint32(len(octets))
	copy(h.pool.Data(b), octets)
	return b
}

// send offers frames in one burst and frees them; it returns how many were taken.
func (h *host) send(frames ...[]byte) int {
	var bufs []mem.Buf
	for _, f := range frames {
		bufs = append(bufs, h.load(f))
	}
	n := h.q.Tx(bufs)
	h.pool.FreeN(bufs)
	return n
}

// recv takes up to n frames.
func (h *host) recv(n int) [][]byte {
	bufs := make([]mem.Buf, n)
	got := h.q.Rx(bufs)
	var frames [][]byte
	for _, b := range bufs[:got] {
		frames = append(frames, append([]byte(nil), h.pool.Data(b)...))
		h.pool.Free(b)
	}
	return frames
}

func TestEachEndOwnsItsBufs(t *testing.T) {
	h := newHosts(t, Config{}, 4)
	a, b := h[0], h[1]
	buf := a.load(frame(b.port.MAC(), a.port.MAC(), 1, 100))
	require.Equal(t, 1, a.q.Tx([]mem.Buf{buf}))
	// The caller still has its hold, and what it writes now is not on the wire.
	require.False(t, a.pool.InDevice(buf))
	clear(a.pool.Data(buf))
	a.pool.Free(buf)
	require.Equal(t, a.pool.Size(), a.pool.Available())
	got := b.recv(1)
	require.Len(t, got, 1)
	require.True(t, filled(got[0][pmd.EthernetLen:], 1))
	require.Equal(t, b.pool.Size(), b.pool.Available())
}

func TestFullRingIsBackPressure(t *testing.T) {
	bothModes(t, func(t *testing.T, cfg Config) {
		cfg.Slots = 4
		h := newHosts(t, cfg, 16)
		a, b := h[0], h[1]
		var frames [][]byte
		for i := range 6 {
			frames = append(frames, frame(b.port.MAC(), a.port.MAC(), uint64(i), 64))
		}
		require.Equal(t, 4, a.send(frames...))
		require.EqualValues(t, 2, a.q.Counters().TxFull)
		require.Equal(t, 0, a.send(frames[4:]...))
		require.Equal(t, frames[:1], b.recv(1))
		require.Equal(t, 1, a.send(frames[4:]...))
		require.Equal(t, frames[1:5], b.recv(16))
		require.Zero(t, a.q.Counters().TxErrors)
	})
}

func TestEmptyPoolLeavesFramesOnTheWire(t *testing.T) {
	h := newHosts(t, Config{}, 4)
	a, b := h[0], h[1]
	var frames [][]byte
	for i := range 4 {
		frames = append(frames, frame(b.port.MAC(), a.port.MAC(), uint64(i), 64))
	}
	require.Equal(t, 4, a.send(frames...))
	kept := []mem.Buf{b.pool.Alloc(), b.pool.Alloc()}
	bufs := make([]mem.Buf, 4)
	require.Equal(t, 2, b.q.Rx(bufs))
	require.EqualValues(t, 1, b.q.Counters().RxNoBuf)
	require.Equal(t, 0, b.q.Rx(bufs[2:]))
	require.EqualValues(t, 2, b.q.Counters().RxNoBuf)
	b.pool.FreeN(bufs[:2])
	b.pool.FreeN(kept)
	require.Equal(t, frames[2:], b.recv(4))
}

func TestRefusedFrames(t *testing.T) {
	bothModes(t, func(t *testing.T, cfg Config) {
		cfg.MTU = 576
		h := newHosts(t, cfg, 16)
		a, b := h[0], h[1]
		short := make([]byte, pmd.EthernetLen-1)
		good := frame(b.port.MAC(), a.port.MAC(), 1, 576+pmd.FrameOverhead)
		require.Equal(t, 2, a.send(short, good))
		buf := a.load(good)
		a.pool.Desc(buf).Len++
		require.Equal(t, 1, a.q.Tx([]mem.Buf{buf}))
		a.pool.Free(buf)
		require.Equal(t, [][]byte{good}, b.recv(8))
		require.Equal(t, Drops{Length: 2}, a.q.Drops())
		require.EqualValues(t, 2, a.q.Counters().TxErrors)
	})
}

func TestPortThatIsDown(t *testing.T) {
	bothModes(t, func(t *testing.T, cfg Config) {
		l, err := New(cfg)
		require.NoError(t, err)
		pools := newPools(t, cfg, 2, 8, 1500)
		a := &host{t: t, port: l.Port(0), pool: pools[0]}
		q, err := a.port.Open(0, a.pool)
		require.NoError(t, err)
		a.q = q.(*queue)
		f := frame(l.Port(1).MAC(), a.port.MAC(), 1, 64)
		require.Equal(t, 2, a.send(f, f))
		require.Equal(t, Drops{Down: 2}, a.q.Drops())

		b := &host{t: t, port: l.Port(1), pool: pools[1]}
		q, err = b.port.Open(0, b.pool)
		require.NoError(t, err)
		b.q = q.(*queue)
		require.Empty(t, b.recv(4))
		require.Equal(t, 1, a.send(f))
		require.Equal(t, [][]byte{f}, b.recv(4))
		require.NoError(t, b.port.Close())
		require.Equal(t, 1, a.send(f))
		require.Equal(t, Drops{Down: 3}, a.q.Drops())
		require.EqualValues(t, 3, a.q.Counters().TxErrors)
	})
}

func TestChecksumOffload(t *testing.T) {
	bothModes(t, func(t *testing.T, cfg Config) {
		cfg.ChecksumOffload = true
		h := newHosts(t, cfg, 8)
		a, b := h[0], h[1]
		require.True(t, a.port.Caps().TxChecksum)
		require.True(t, a.port.Caps().RxChecksum)
		asks := a.load(frame(b.port.MAC(), a.port.MAC(), 1, 100))
		d := a.pool.Desc(asks)
		d.Flags, d.CsumStart, d.CsumOffset = mem.TxChecksum, 34, 16
		done := a.load(frame(b.port.MAC(), a.port.MAC(), 2, 100))
		require.Equal(t, 2, a.q.Tx([]mem.Buf{asks, done}))

		bufs := make([]mem.Buf, 2)
		require.Equal(t, 2, b.q.Rx(bufs))
		d = b.pool.Desc(bufs[0])
		require.Equal(t, mem.RxChecksumGood, d.Flags)
		require.True(t, pmd.Incomplete(d))
		require.EqualValues(t, 34, d.CsumStart)
		require.EqualValues(t, 16, d.CsumOffset)
		// The sender's own checksum was not looked at.
		require.Equal(t, mem.DescFlags(0), b.pool.Desc(bufs[1]).Flags)
	})
}

// What one frame asked for is nothing to the next one that goes through its cell.
func TestOffloadsAreTheFramesOwn(t *testing.T) {
	bothModes(t, func(t *testing.T, cfg Config) {
		cfg.ChecksumOffload, cfg.Slots = true, 1
		h := newHosts(t, cfg, 4)
		a, b := h[0], h[1]
		var got [1]mem.Buf
		for _, want := range []mem.Desc{{Flags: mem.RxChecksumGood, CsumStart: 34, CsumOffset: 16}, {}} {
			buf := a.load(frame(b.port.MAC(), a.port.MAC(), 1, 100))
			if d := a.pool.Desc(buf); want.Flags != 0 {
				d.Flags, d.CsumStart, d.CsumOffset = mem.TxChecksum, want.CsumStart, want.CsumOffset
			}
			require.Equal(t, 1, a.q.Tx([]mem.Buf{buf}))
			require.Equal(t, 1, b.q.Rx(got[:]))
			d := *b.pool.Desc(got[0])
			d.Off, d.Len = 0, 0
			require.Equal(t, want, d)
			a.pool.Free(buf)
			b.pool.Free(got[0])
		}
	})
}

func TestUnclaimedOffloadPanics(t *testing.T) {
	for _, flag := range []mem.DescFlags{mem.TxChecksum, mem.TxSegment} {
		a := newHosts(t, Config{}, 8)[0]
		buf := a.load(make([]byte, 64))
		a.pool.Desc(buf).Flags = flag
		require.Panics(t, func() { a.q.Tx([]mem.Buf{buf}) })
	}
}

func TestSwitchForwards(t *testing.T) {
	h := newHosts(t, Config{Ports: 4}, 32)
	mac := func(i int) [6]byte { return h[i].port.MAC() }
	to2 := frame(mac(2), mac(0), 1, 64)
	group := frame([6]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, mac(0), 2, 64)
	unknown := frame([6]byte{2, 9, 9, 9, 9, 9}, mac(0), 3, 64)
	require.Equal(t, 3, h[0].send(to2, group, unknown))
	require.Empty(t, h[0].recv(8))
	require.Equal(t, [][]byte{group, unknown}, h[1].recv(8))
	require.Equal(t, [][]byte{to2, group, unknown}, h[2].recv(8))
	require.Equal(t, [][]byte{group, unknown}, h[3].recv(8))
	require.EqualValues(t, 3, h[0].q.Counters().TxFrames)
}

// All six octets of an address count.
func TestSwitchForwardsByTheWholeAddress(t *testing.T) {
	macs := [][6]byte{{2, 0, 0, 0, 0, 2}, {2, 0, 0, 0, 0, 1}, {2, 1, 0, 0, 0, 1}, {2, 1, 0, 0, 1, 1}}
	h := newHosts(t, Config{Ports: 4, MACs: macs}, 8)
	for to := 1; to < len(h); to++ {
		f := frame(macs[to], macs[0], uint64(to), 64)
		require.Equal(t, 1, h[0].send(f))
		for i := 1; i < len(h); i++ {
			if got := h[i].recv(4); i == to {
				require.Equal(t, [][]byte{f}, got)
			} else {
				require.Empty(t, got, "port %d has what was for %d", i, to)
			}
		}
	}
}

func TestSwitchDropsAtFullEgress(t *testing.T) {
	h := newHosts(t, Config{Ports: 3, Slots: 2}, 32)
	to1 := frame(h[1].port.MAC(), h[0].port.MAC(), 1, 64)
	to2 := frame(h[2].port.MAC(), h[0].port.MAC(), 2, 64)
	require.Equal(t, 4, h[0].send(to1, to1, to1, to2))
	require.Equal(t, Drops{Switch: 1}, h[0].q.Drops())
	require.EqualValues(t, 1, h[0].q.Counters().TxErrors)
	require.Equal(t, [][]byte{to2}, h[2].recv(8))
	group := frame([6]byte{1}, h[0].port.MAC(), 3, 64)
	require.Equal(t, 1, h[0].send(group))
	require.Equal(t, Drops{Switch: 2}, h[0].q.Drops())
	require.EqualValues(t, 1, h[0].q.Counters().TxErrors, "one receiver had it")
	require.Equal(t, [][]byte{group}, h[2].recv(8))
}

// A busy sender does not starve the others: each poll begins with another ring.
func TestSwitchReceivesFromAllInTurn(t *testing.T) {
	h := newHosts(t, Config{Ports: 3, Slots: 8}, 64)
	for tag := range uint64(8) {
		h[0].send(frame(h[2].port.MAC(), h[0].port.MAC(), tag, 64))
		h[1].send(frame(h[2].port.MAC(), h[1].port.MAC(), tag, 64))
	}
	from := map[byte]int{}
	for range 2 {
		for _, f := range h[2].recv(4) {
			from[f[11]]++
		}
	}
	require.Equal(t, map[byte]int{1: 4, 2: 4}, from)
}

func TestMemoryIsAsLargeAsSaid(t *testing.T) {
	for _, cfg := range []Config{{}, {Ports: 3, MTU: 9000, Slots: 8}, {Ports: 2, MTU: 68, Slots: 1},
		{ZeroCopy: true, Slots: 1}, {ZeroCopy: true, MTU: 9000}} {
		arena := hugepages.Heap(cfg.MemoryBytes() + 4096)
		b, err := arena.Carve(cfg.MemoryBytes(), 64)
		require.NoError(t, err)
		cfg.Memory = b
		_, err = New(cfg)
		require.NoError(t, err)
		cfg.Memory = b[:len(b)-1]
		_, err = New(cfg)
		require.ErrorContains(t, err, "octets of memory")
		cfg.Memory = heapMemory(cfg.MemoryBytes() + 8)[8:]
		_, err = New(cfg)
		require.ErrorContains(t, err, "aligned to 64")
	}
	require.Zero(t, Config{Slots: 3}.MemoryBytes())
	large := Config{Slots: 1 << 20, MTU: 9000}
	require.Zero(t, large.MemoryBytes())
	_, err := New(large)
	require.ErrorContains(t, err, "a ring has")
	// So many cells of 31 cache lines are the most: of 32 the ring would be as long as it may be,
	// but a cell has an odd number.
	large.MTU = 31*lineBytes - int(cellLen) - pmd.FrameOverhead
	require.NotZero(t, large.MemoryBytes())
	large.MTU++
	require.Zero(t, large.MemoryBytes())
}

// What an earlier Link left in the memory is no frame of this one.
func TestMemoryOfAnEarlierLink(t *testing.T) {
	bothModes(t, func(t *testing.T, cfg Config) {
		cfg.Slots = 4
		cfg.Memory = heapMemory(cfg.MemoryBytes())
		old := newHosts(t, cfg, 8)
		f := frame(old[1].port.MAC(), old[0].port.MAC(), 1, 64)
		require.Equal(t, cfg.Slots, old[0].send(f, f, f, f))
		h := newHosts(t, cfg, 8)
		require.Empty(t, h[1].recv(8))
		require.Equal(t, cfg.Slots-1, h[0].send(f, f, f))
		require.Len(t, h[1].recv(8), cfg.Slots-1)
	})
}

func TestConfigErrors(t *testing.T) {
	for want, cfg := range map[string]Config{
		"wire: 17 ports wanted; a link has 2 to 16":                          {Ports: 17},
		"wire: 1 ports wanted; a link has 2 to 16":                           {Ports: 1},
		"wire: MTU 67; must be 68 to 65513":                                  {MTU: 67},
		"wire: MTU 65514; must be 68 to 65513":                               {MTU: 65514},
		"wire: MTU 1099511627776; must be 68 to 65513":                       {MTU: 1 << 40},
		"wire: 500 slots; must be a power of two up to 1048576":              {Slots: 500},
		"wire: 1 MACs for 2 ports; give one each or none":                    {MACs: make([][6]byte, 1)},
		"wire: 3 names for 2 ports; give one each or none":                   {Names: make([]string, 3)},
		"wire: 3 ports without copying; that is for a pair: a switch copies": {Ports: 3, ZeroCopy: true},
	} {
		_, err := New(cfg)
		require.EqualError(t, err, want)
	}
}

func TestOpenErrors(t *testing.T) {
	l, err := New(Config{Names: []string{"left", "right"}, MACs: [][6]byte{{2, 1}, {2, 2}}})
	require.NoError(t, err)
	require.Equal(t, [6]byte{2, 2}, l.Port(1).MAC())
	_, err = l.Port(0).Open(1, newPool(t, 4, 1500))
	require.EqualError(t, err, "wire: left: no queue 1; a wire port has queue 0 only")
	_, err = l.Port(0).Open(0, newPool(t, 4, 1300))
	require.ErrorContains(t, err, "wire: left: Bufs of stride")
	_, err = l.Port(0).Open(0, newPool(t, 4, 1500))
	require.NoError(t, err)
	_, err = l.Port(0).Open(0, newPool(t, 4, 1500))
	require.ErrorContains(t, err, "opened before")
}

// The longest frame just fits into a Buf, or does not.
func TestPoolThatJustFits(t *testing.T) {
	const stride, mtu = 2048, 1500
	for headroom, want := range map[int]string{
		stride - mtu - pmd.FrameOverhead:     "",
		stride - mtu - pmd.FrameOverhead + 1: "use a larger stride",
	} {
		l, err := New(Config{MTU: mtu})
		require.NoError(t, err)
		pool, err := mem.NewPool(hugepages.Heap(1<<16),
			mem.PoolConfig{Bufs: 4, Stride: stride, Headroom: headroom})
		require.NoError(t, err)
		_, err = l.Port(0).Open(0, pool)
		if want == "" {
			require.NoError(t, err)
		} else {
			require.ErrorContains(t, err, want)
		}
	}
}

// exchange sends and receives frames of random length on one side until it has received want,
// checking that they come whole, once and in order.
func (h *host) exchange(peer [6]byte, want int, seed uint64, deadline time.Time) (bad string) {
	rng := rand.New(rand.NewPCG(seed, 0))
	bufs := make([]mem.Buf, 32)
	sent, next, idle := uint64(0), uint64(0), 0
	for next < uint64(want) || sent < uint64(want) {
		n := h.q.Rx(bufs[:1+rng.IntN(len(bufs))])
		for _, b := range bufs[:n] {
			if !filled(h.pool.Data(b)[pmd.EthernetLen:], next) {
				return "frame damaged or out of order"
			}
			next++
			h.pool.Free(b)
		}
		burst := min(1+rng.IntN(len(bufs)), want-int(sent))
		burst = h.pool.AllocN(bufs[:burst])
		for i, b := range bufs[:burst] {
			h.pool.Desc(b).Len = uint32(pmd.EthernetLen + rng.IntN(1500))
			f := h.pool.Data(b)
			copy(f, peer[:])
			fill(f[pmd.EthernetLen:], sent+uint64(i))
		}
		taken := h.q.Tx(bufs[:burst])
		sent += uint64(taken)
		h.pool.FreeN(bufs[:burst])
		if n+taken == 0 {
			runtime.Gosched()
			if idle++; idle%1024 == 0 && time.Now().After(deadline) {
				return "stuck"
			}
		}
	}
	return ""
}

func TestTwoGoroutines(t *testing.T) {
	bothModes(t, func(t *testing.T, cfg Config) {
		const want = 20000
		cfg.Slots = 64
		h := newHosts(t, cfg, 256)
		deadline := time.Now().Add(30 * time.Second)
		var wg sync.WaitGroup
		var bad [2]string
		for i := range 2 {
			wg.Go(func() { bad[i] = h[i].exchange(h[1-i].port.MAC(), want, uint64(i), deadline) })
		}
		wg.Wait()
		require.Equal(t, [2]string{}, bad)
		for range 2 { // the last Bufs go back
			require.Empty(t, h[0].recv(1))
			require.Empty(t, h[1].recv(1))
		}
		for i := range 2 {
			n, peer := h[i].q.Counters(), h[1-i].q.Counters()
			require.EqualValues(t, want, n.RxFrames)
			require.Equal(t, []uint64{n.RxFrames, n.RxOctets}, []uint64{peer.TxFrames, peer.TxOctets})
			require.Equal(t, 256, h[i].pool.Available())
		}
	})
}

func TestNoAllocation(t *testing.T) {
	for _, cfg := range []Config{{Ports: 2}, {Ports: 4}, {ZeroCopy: true}} {
		h := newHosts(t, cfg, 64)
		bufs, in := make([]mem.Buf, 32), make([]mem.Buf, 32)
		f := frame(h[1].port.MAC(), h[0].port.MAC(), 1, 1514)
		var out, back pmd.Queue = h[0].q, h[1].q
		allocs := testing.AllocsPerRun(200, func() {
			for i := range bufs {
				bufs[i] = h[0].pool.Alloc()
				h[0].pool.Desc(bufs[i]).Len = uint32(len(f))
				copy(h[0].pool.Data(bufs[i]), f)
			}
			if out.Tx(bufs) != len(bufs) || back.Rx(in) != len(in) {
				panic("frames lost")
			}
			h[0].pool.FreeN(bufs)
			h[1].pool.FreeN(in)
			back.Rx(in)
			out.Rx(in)
		})
		require.Zero(t, allocs)
	}
}
