package mem

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func register(t require.TestingT, table *Table, pd ProtectionDomain, b []byte,
	opt RegionOptions) *MemoryRegion {
	return must(table.Register(pd, b, opt))(t)
}

// verdict is the result of a remote write on a stream.
func verdict(table *Table, pd ProtectionDomain, stream StreamID, stag STag, to uint64,
	n int) CheckResult {
	_, res := table.Check(pd, stream, stag, to, n, RemoteWrite)
	return res
}

func TestNewTableSizes(t *testing.T) {
	require.Panics(t, func() { NewTable(0) })
	require.Panics(t, func() { NewTable(-1) })
	require.Panics(t, func() { NewTable(EntriesMax + 1) })
	for _, n := range []int{1, 2, 3, 1000, 1 << 16} {
		require.GreaterOrEqual(t, len(NewTable(n).slots), 2*n)
		require.Less(t, len(NewTable(n).slots), 4*n+1)
	}
}

// An address-based region's octets are at their addresses, a zero-based one's count from 0.
// req: DDP-10.3-2
func TestOffsetsByAddress(t *testing.T) {
	table := NewTable(2)
	b := make([]byte, 100)
	m := register(t, table, 1, b[10:20], RegionOptions{Access: RemoteWrite, ByAddr: true})
	first := uint64(uintptr(unsafe.Pointer(&b[10])))
	require.Equal(t, first, m.Base())
	got, res := table.Check(1, 1, m.STag(), first+3, 7, RemoteWrite)
	require.Equal(t, CheckOK, res)
	require.Same(t, &b[13], &got[0])
	require.Equal(t, CheckBounds, verdict(table, 1, 1, m.STag(), first-1, 1))
	require.Equal(t, CheckBounds, verdict(table, 1, 1, m.STag(), first+10, 1))
	require.Equal(t, CheckBounds, verdict(table, 1, 1, m.STag(), 0, 1))
}

// An entry is one cache line, and no bigger an object to the allocator.
func TestEntrySize(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(entry{}), uintptr(lineBytes))
}

func TestAllocDomain(t *testing.T) {
	table := NewTable(1)
	require.Equal(t, ProtectionDomain(1), table.AllocDomain())
	require.Equal(t, ProtectionDomain(2), table.AllocDomain())
	table.domains.Store(math.MaxUint32 - 1)
	require.Equal(t, ProtectionDomain(math.MaxUint32), table.AllocDomain())
	require.Panics(t, func() { table.AllocDomain() }, "zero is no domain")
}

// What a peer may not even know comes first.
// req: 5042-2.2.4-1
func TestCheckOrder(t *testing.T) {
	table := NewTable(4)
	pd := table.AllocDomain()
	m := register(t, table, pd, make([]byte, 8), RegionOptions{Stream: 7})
	require.Equal(t, CheckInvalidSTag, verdict(table, pd+1, 8, m.STag()^1, math.MaxUint64, 9))
	require.Equal(t, CheckNotAssociated, verdict(table, pd+1, 7, m.STag(), math.MaxUint64, 9))
	require.Equal(t, CheckNotAssociated, verdict(table, pd, 8, m.STag(), math.MaxUint64, 9))
	require.Equal(t, CheckAccess, verdict(table, pd, 7, m.STag(), math.MaxUint64, 9))
}

// Indices are drawn from all 24 bits: 4096 of them, in 16 parts of the range, with no part beyond
// six standard deviations, none twice, no two tables alike, and the order tells nothing of the
// size.
// req: 5040-8.1.1-3
func TestSTagsAreSpread(t *testing.T) {
	const entries = 4096
	draw := func() []STag {
		table := NewTable(entries)
		var list []STag
		for range entries {
			list = append(list, register(t, table, 1, make([]byte, 1), RegionOptions{}).STag())
		}
		_, err := table.Register(1, make([]byte, 1), RegionOptions{})
		require.EqualError(t, err, "mem: all 4096 memory regions are in use; deregister some or make "+
			"the table larger")
		return list
	}
	first := draw()
	var parts, rising [16]int
	indices := map[uint32]bool{}
	keys := map[uint8]bool{}
	for i, stag := range first {
		require.False(t, indices[stag.Index()])
		require.NotZero(t, stag.Index())
		indices[stag.Index()] = true
		keys[stag.Key()] = true
		parts[stag.Index()>>20]++
		if i > 0 && stag > first[i-1] {
			rising[0]++
		}
	}
	for part, n := range parts { // mean 256, deviation 15.5
		require.InDelta(t, entries/16, n, 6*15.5, "part %d", part)
	}
	require.InDelta(t, entries/2, rising[0], 6*18.5) // deviation sqrt(n/12)
	require.Greater(t, len(keys), 240)
	same := 0
	for _, stag := range draw() {
		if indices[stag.Index()] {
			same++
		}
	}
	require.Less(t, same, 20, "one expected")
}

// The draw skips index 0, occupied slots and the index that the slot had last.
func TestSTagDrawSkips(t *testing.T) {
	table := NewTable(2) // four slots
	var script []uint32
	table.random = func() uint32 {
		v := script[0]
		script = script[1:]
		return v
	}
	script = []uint32{0x00000055, 0x00000577}
	m := register(t, table, 1, make([]byte, 1), RegionOptions{})
	require.Equal(t, STag(0x577), m.STag(), "index 0 skipped")
	script = []uint32{0x00000900, 0xFFFFFE01}
	require.Equal(t, STag(0xFFFFFE01), register(t, table, 1, make([]byte, 1), RegionOptions{}).STag(),
		"slot 1 in use")
	m.Deregister()
	script = []uint32{0x00000588, 0x00000988}
	m = register(t, table, 1, make([]byte, 1), RegionOptions{})
	require.Equal(t, STag(0x988), m.STag(), "index 5 was the last")
	for _, draw := range []struct {
		script []uint32
		want   STag
	}{{[]uint32{0x00000400}, 0x400}, {[]uint32{0x00000055, 0x00000800}, 0x800}} {
		// and index 0, where slot 0 had another
		m.Deregister()
		script = draw.script
		m = register(t, table, 1, make([]byte, 1), RegionOptions{})
		require.Equal(t, draw.want, m.STag())
	}
	require.Empty(t, script)
}

// A region of no domain would belong to no stream.
// req: 5041-8.2-4
func TestRegisterRefuses(t *testing.T) {
	table := NewTable(1)
	huge := must(unix.MmapPtr(-1, 0, nil, RegionBytesMax+4096, unix.PROT_NONE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE))(t)
	defer unix.MunmapPtr(huge, RegionBytesMax+4096)
	overlong := unsafe.Slice((*byte)(huge), RegionBytesMax+1)
	for _, c := range []struct {
		field string
		pd    ProtectionDomain
		b     []byte
		opt   RegionOptions
	}{
		{"ProtectionDomain", 0, make([]byte, 1), RegionOptions{}},
		{"length", 1, nil, RegionOptions{}},
		{"length", 1, []byte{}, RegionOptions{}},
		{"length", 1, overlong, RegionOptions{}},
		{"Base", 1, make([]byte, 2), RegionOptions{Base: math.MaxUint64 - 1}},
		{"Base", 1, make([]byte, 1), RegionOptions{Base: math.MaxUint64}},
		{"Base", 1, make([]byte, 1), RegionOptions{Base: 1, ByAddr: true}},
		{"Access", 1, make([]byte, 1), RegionOptions{Access: accessAll + 1}},
		{"Windows", 1, make([]byte, 1), RegionOptions{Windows: LocalWrite}},
	} {
		_, err := table.Register(c.pd, c.b, c.opt)
		var bad *RegionError
		require.ErrorAs(t, err, &bad, "%s", c.field)
		require.Equal(t, c.field, bad.Field)
	}
	_, err := table.Register(1, overlong[:RegionBytesMax], RegionOptions{})
	var none *AccessError
	require.ErrorAs(t, err, &none, "long enough, but nobody may read it")
	require.Zero(t, table.Len())
}

func TestStrings(t *testing.T) {
	require.Equal(t, "none", Access(0).String())
	require.Equal(t, "LocalRead|RemoteWrite", (LocalRead | RemoteWrite).String())
	require.Equal(t, "OK", CheckOK.String())
	require.Equal(t, "access right not granted", CheckAccess.String())
	require.Equal(t, "unknown", CheckResult(99).String())
	require.Equal(t, uint32(0x123456), STag(0x12345678).Index())
	require.Equal(t, uint8(0x78), STag(0x12345678).Key())
}

func TestCheckDoesNotAllocate(t *testing.T) {
	table := NewTable(16)
	m := register(t, table, 1, make([]byte, 64), RegionOptions{Access: RemoteWrite, Stream: 1})
	r := table.NewReader()
	defer r.Close()
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r.Enter()
		b, _ := table.Check(1, 1, m.STag(), 8, 8, RemoteWrite)
		b[0]++
		table.Check(1, 1, m.STag(), 8, 800, RemoteWrite)
		table.Check(1, 1, 12345, 8, 8, RemoteWrite)
		table.Invalidate(1, 2, m.STag())
		r.Exit()
	}))
}

func BenchmarkCheck(b *testing.B) {
	for _, regions := range []int{1, 1 << 10, 1 << 16} {
		b.Run(fmt.Sprintf("regions=%d", regions), func(b *testing.B) {
			table := NewTable(regions)
			mem := make([]byte, 4096)
			stags := make([]STag, regions)
			for i := range stags {
				stags[i] = register(b, table, 1, mem, RegionOptions{Access: RemoteWrite}).STag()
			}
			b.ReportAllocs()
			i := 0
			for b.Loop() {
				if _, res := table.Check(1, 1, stags[i&(regions-1)], 64, 1460, RemoteWrite); res != CheckOK {
					b.Fatal(res)
				}
				i++
			}
		})
	}
	b.Run("Enter and Exit", func(b *testing.B) {
		r := NewTable(1).NewReader()
		for b.Loop() {
			r.Enter()
			r.Exit()
		}
	})
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}

// faultAt is what the runtime panics with for a fault.
type faultAt uintptr

func (faultAt) Error() string   { return "fault" }
func (faultAt) RuntimeError()   {}
func (f faultAt) Addr() uintptr { return uintptr(f) }

// A fault at an octet of a region is one of memory that is gone, until the region is deregistered;
// everything else is not the Table's.
func TestUnreachable(t *testing.T) {
	tb := NewTable(4)
	b := make([]byte, 100)
	m := register(t, tb, tb.AllocDomain(), b, RegionOptions{})
	first := faultAt(unsafe.Pointer(&b[0]))
	require.False(t, tb.Unreachable(nil))
	for _, fault := range []faultAt{first, first + 99} {
		require.True(t, tb.Unreachable(fault))
	}
	for _, other := range []any{first - 1, first + 100, "another panic", errors.New("another")} {
		require.PanicsWithValue(t, other, func() { tb.Unreachable(other) })
	}
	m.Revoke()
	require.True(t, tb.Unreachable(first), "a placement may be under way")
	m.Deregister()
	require.Panics(t, func() { tb.Unreachable(first) })
}
