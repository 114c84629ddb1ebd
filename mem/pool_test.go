package mem

import (
	"fmt"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rnicd/rnicd/hugepages"
)

func newPool(t testing.TB, bufs, stride int) *Pool {
	t.Helper()
	cfg := PoolConfig{Bufs: bufs, Stride: stride}
	return must(NewPool(hugepages.Heap(cfg.Bytes()), cfg))(t)
}

func TestDescIsHalfACacheLine(t *testing.T) {
	require.EqualValues(t, 32, unsafe.Sizeof(Desc{}))
}

func TestPoolConfigRefused(t *testing.T) {
	for _, c := range []struct {
		field string
		cfg   PoolConfig
	}{
		{"Stride", PoolConfig{Bufs: 1, Stride: 0}},
		{"Stride", PoolConfig{Bufs: 1, Stride: 100}},
		{"Stride", PoolConfig{Bufs: 1, Stride: -64}},
		{"Headroom", PoolConfig{Bufs: 1, Stride: 64}}, // the default of 128 does not fit
		{"Headroom", PoolConfig{Bufs: 1, Stride: 64, Headroom: -1}},
		{"Bufs", PoolConfig{Bufs: 0, Stride: 2048}},
		{"Bufs", PoolConfig{Bufs: -1, Stride: 2048}},
		{"Bufs", PoolConfig{Bufs: 1 << 40, Stride: 2048}},
	} {
		_, err := NewPool(hugepages.Heap(1<<16), c.cfg)
		var bad *PoolConfigError
		require.ErrorAs(t, err, &bad, "%+v", c.cfg)
		require.Equal(t, c.field, bad.Field)
	}
	_, err := NewPool(hugepages.Heap(2047), PoolConfig{Bufs: 1, Stride: 2048})
	var short *hugepages.CarveError
	require.ErrorAs(t, err, &short)
	require.Equal(t, 2047, short.Remaining)
}

func TestFreshBuf(t *testing.T) {
	p := newPool(t, 4, 2048)
	b := p.Alloc()
	p.Desc(b).Len, p.Desc(b).Flags, p.Desc(b).GSOSize = 9, TxSegment, 7
	p.Free(b)
	again := p.Alloc()
	require.Equal(t, b, again, "the warm Buf comes first")
	require.Equal(t, Desc{Off: Headroom}, *p.Desc(again))
	require.Equal(t, 4, p.Size())
	require.Equal(t, 3, p.Available())
	require.Equal(t, 2048, p.Stride())
	require.Equal(t, Headroom, p.Headroom())
	require.Len(t, p.Memory(), 4*2048)
}

func TestDataStaysInsideTheSlot(t *testing.T) {
	p := newPool(t, 4, 256)
	for range 4 {
		b := p.Alloc()
		slot := p.Slot(b)
		require.Len(t, slot, 256)
		require.Equal(t, 256, cap(slot))
		require.Same(t, &p.Memory()[int(b)*256], &slot[0])
		for _, ok := range [][2]uint32{{0, 0}, {0, 256}, {256, 0}, {100, 156}, {255, 1}} {
			p.Desc(b).Off, p.Desc(b).Len = ok[0], ok[1]
			require.Len(t, p.Data(b), int(ok[1]))
		}
		for _, bad := range [][2]uint32{{0, 257}, {257, 0}, {100, 157}, {^uint32(0), 1},
			{1, ^uint32(0)}} {
			p.Desc(b).Off, p.Desc(b).Len = bad[0], bad[1]
			require.Panics(t, func() { p.Data(b) }, "%v", bad)
		}
	}
}

func TestMisuseOfHoldsPanics(t *testing.T) {
	p := newPool(t, 2, 256)
	b := p.Alloc()
	require.Panics(t, func() { p.DeviceDone(b) })
	p.HoldDevice(b)
	require.Panics(t, func() { p.HoldDevice(b) })
	require.Panics(t, func() { p.Adopt(b) })
	p.Free(b)
	require.Panics(t, func() { p.Free(b) }, "double free while the device holds it")
	require.Panics(t, func() { p.HoldDevice(b) })
	p.DeviceDone(b)
	require.PanicsWithValue(t, "mem: Free without the owner's hold: Buf 0 has holds 00 (1 owner, 2 "+
		"device), not reserved are 2 from 0",
		func() { p.Free(b) })
	require.Panics(t, func() { p.FreeN([]Buf{b}) })
	require.Panics(t, func() { p.Free(NoBuf) })
	require.Panics(t, func() { p.Free(2) })
	require.Equal(t, 2, p.Available(), "a misuse must not change the Pool")
}

// Assigning the whole Desc, as a driver does, must not lose track of who holds the Buf.
func TestDescAssignmentKeepsHolds(t *testing.T) {
	p := newPool(t, 2, 256)
	b := p.Alloc()
	p.HoldDevice(b)
	*p.Desc(b) = Desc{Off: 1, Len: 2}
	p.Free(b)
	require.True(t, p.InDevice(b))
	require.Equal(t, 1, p.Available())
	p.DeviceDone(b)
	require.Equal(t, 2, p.Available())
}

func TestReserveMisuse(t *testing.T) {
	p := newPool(t, 4, 256)
	require.Panics(t, func() { p.Reserve(0) })
	_, err := p.Reserve(4)
	var bad *PoolConfigError
	require.ErrorAs(t, err, &bad)
	b := p.Alloc()
	require.Panics(t, func() { p.Reserve(1) }, "in use")
	p.Free(b)
	first := must(p.Reserve(3))(t)
	require.Equal(t, Buf(1), first)
	require.Panics(t, func() { p.Reserve(1) }, "twice")
	require.Equal(t, 1, p.Available())
	require.Panics(t, func() { p.Adopt(0) }, "not reserved")
	require.Panics(t, func() { p.Free(first) }, "the device's")
	p.Adopt(first)
	require.Panics(t, func() { p.Adopt(first) }, "twice")
	p.Free(first)
}

// poolModel says of each Buf which owners it has.
type poolModel struct {
	pool     *Pool
	state    []string // "free", "device's", "returned", or the holds "o", "od", "d"
	reserved Buf
	misses   uint64
}

func (m *poolModel) in(state string) []Buf {
	var list []Buf
	for b, s := range m.state {
		if s == state {
			list = append(list, Buf(b))
		}
	}
	return list
}

func (m *poolModel) pick(t *rapid.T, states ...string) Buf {
	var list []Buf
	for _, s := range states {
		list = append(list, m.in(s)...)
	}
	if len(list) == 0 {
		t.Skip("none")
	}
	return rapid.SampledFrom(list).Draw(t, "buf")
}

func (m *poolModel) released(b Buf) {
	m.state[b] = "free"
	if b >= m.reserved {
		m.state[b] = "returned"
	}
}

// dropped: one hold on b is gone; other is what remains of two.
func (m *poolModel) dropped(b Buf, other string) {
	if m.state[b] == "od" {
		m.state[b] = other
	} else {
		m.released(b)
	}
}

func (m *poolModel) allocated(t *rapid.T, b Buf) {
	require.Equal(t, "free", m.state[b])
	require.Equal(t, Desc{Off: Headroom}, *m.pool.Desc(b))
	m.pool.Desc(b).Len = 77
	m.state[b] = "o"
}

func newPoolModel(t *rapid.T) *poolModel {
	size := rapid.IntRange(1, 12).Draw(t, "size")
	cfg := PoolConfig{Bufs: size, Stride: 256}
	p := must(NewPool(hugepages.Heap(cfg.Bytes()), cfg))(t)
	m := &poolModel{pool: p, state: make([]string, size), reserved: Buf(size)}
	if n := rapid.IntRange(0, size-1).Draw(t, "reserved"); n > 0 {
		m.reserved = must(p.Reserve(n))(t)
	}
	if rapid.Bool().Draw(t, "circulates") {
		p.Circulate()
		p.turns.most = uint32(rapid.IntRange(1, size).Draw(t, "most"))
	}
	for b := range m.state {
		m.state[b] = "free"
		if Buf(b) >= m.reserved {
			m.state[b] = "device's"
		}
	}
	return m
}

// Random use compared with a model of the owners of each Buf: no Buf is given out twice, none is
// lost.
func TestPoolAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newPoolModel(t)
		t.Repeat(map[string]func(*rapid.T){
			"":       m.check,
			"Alloc":  m.alloc,
			"AllocN": m.allocN,
			"Free": func(t *rapid.T) {
				b := m.pick(t, "o", "od")
				m.pool.Free(b)
				m.dropped(b, "d")
			},
			"FreeN": m.freeN,
			"HoldDevice": func(t *rapid.T) {
				b := m.pick(t, "o")
				m.pool.HoldDevice(b)
				m.state[b] = "od"
			},
			"DeviceDone": func(t *rapid.T) {
				b := m.pick(t, "od", "d")
				m.pool.DeviceDone(b)
				m.dropped(b, "o")
			},
			"Adopt":        m.adopt,
			"TakeReturned": m.takeReturned,
			"double Free": func(t *rapid.T) {
				b := m.pick(t, "free", "device's", "returned", "d")
				require.Panics(t, func() { m.pool.Free(b) })
			},
		})
	})
}

func (m *poolModel) alloc(t *rapid.T) {
	b := m.pool.Alloc()
	if len(m.in("free")) == 0 {
		require.Equal(t, NoBuf, b)
		m.misses++
		return
	}
	m.allocated(t, b)
}

func (m *poolModel) allocN(t *rapid.T) {
	dst := make([]Buf, rapid.IntRange(0, len(m.state)+1).Draw(t, "n"))
	want := min(len(dst), len(m.in("free")))
	require.Equal(t, want, m.pool.AllocN(dst))
	if want < len(dst) {
		m.misses++
	}
	for _, b := range dst[:want] {
		m.allocated(t, b)
	}
}

func (m *poolModel) freeN(t *rapid.T) {
	list := m.in("o")
	m.pool.FreeN(list)
	for _, b := range list {
		m.released(b)
	}
}

func (m *poolModel) adopt(t *rapid.T) {
	b := m.pick(t, "device's")
	require.Equal(t, Desc{Off: Headroom}, *m.pool.Desc(b))
	m.pool.Desc(b).Len = 5
	m.pool.Adopt(b)
	require.EqualValues(t, 5, m.pool.Desc(b).Len)
	m.state[b] = "o"
}

func (m *poolModel) takeReturned(t *rapid.T) {
	dst := make([]Buf, rapid.IntRange(0, len(m.state)).Draw(t, "n"))
	want := min(len(dst), len(m.in("returned")))
	require.Equal(t, want, m.pool.TakeReturned(dst))
	for _, b := range dst[:want] {
		require.Equal(t, "returned", m.state[b])
		m.state[b] = "device's"
	}
}

func (m *poolModel) check(t *rapid.T) {
	require.Equal(t, len(m.in("free")), m.pool.Available())
	require.Equal(t, m.misses, m.pool.Exhausted())
	for b, s := range m.state {
		require.Equal(t, s == "od" || s == "d", m.pool.InDevice(Buf(b)))
	}
}

func TestPoolDoesNotAllocate(t *testing.T) {
	p := newPool(t, 128, 2048)
	must(p.Reserve(32))(t)
	bufs := make([]Buf, 32)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		p.AllocN(bufs)
		for _, b := range bufs {
			p.Desc(b).Len = 1
			p.Data(b)[0] = 1
			p.HoldDevice(b)
		}
		p.FreeN(bufs)
		for _, b := range bufs {
			p.DeviceDone(b)
		}
		for i := range bufs {
			bufs[i] = 96 + Buf(i)
			p.Adopt(bufs[i])
		}
		p.FreeN(bufs)
		p.TakeReturned(bufs)
		p.Free(p.Alloc())
	}))
}

func BenchmarkPool(b *testing.B) {
	for _, burst := range []int{1, 32} {
		b.Run(fmt.Sprintf("burst=%d", burst), func(b *testing.B) {
			p := newPool(b, 4096, 2048)
			bufs := make([]Buf, burst)
			b.ReportAllocs()
			for b.Loop() {
				p.AllocN(bufs)
				p.FreeN(bufs)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(burst), "ns/buf")
		})
	}
}
