package mem

import (
	"fmt"
	"math"
	"math/big"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
	"pgregory.net/rapid"

	"github.com/rnicd/rnicd/hugepages"
)

func register(t require.TestingT, table *Table, pd ProtectionDomain, b []byte, opt RegionOptions) *MemoryRegion {
	m, err := table.Register(pd, b, opt)
	require.NoError(t, err)
	return m
}

// verdict is the result of a remote write on a stream.
func verdict(table *Table, pd ProtectionDomain, stream StreamID, stag STag, to uint64, n int) CheckResult {
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

func TestAllocDomain(t *testing.T) {
	table := NewTable(1)
	require.Equal(t, ProtectionDomain(1), table.AllocDomain())
	require.Equal(t, ProtectionDomain(2), table.AllocDomain())
	table.domains.Store(math.MaxUint32 - 1)
	require.Equal(t, ProtectionDomain(math.MaxUint32), table.AllocDomain())
	require.Panics(t, func() { table.AllocDomain() }, "zero is no domain")
}

// The bounds of a region of 100 octets at 1000, to the octet.
// req: DDP-10.1-1, 5042-6.2.1-1, 5040-7.2-6
func TestCheckBounds(t *testing.T) {
	table := NewTable(4)
	pd := table.AllocDomain()
	m := register(t, table, pd, make([]byte, 100), RegionOptions{Access: RemoteWrite, Base: 1000})
	for _, c := range []struct {
		to   uint64
		n    int
		want CheckResult
	}{
		{1000, 100, CheckOK}, {1000, 1, CheckOK}, {1099, 1, CheckOK}, {1050, 50, CheckOK},
		{1000, 101, CheckBounds}, {999, 1, CheckBounds}, {999, 2, CheckBounds}, {1099, 2, CheckBounds},
		{1100, 1, CheckBounds}, {1050, 51, CheckBounds}, {0, 1, CheckBounds}, {0, 1100, CheckBounds},
		{math.MaxUint64 - 1, 1, CheckBounds}, {math.MaxUint64 - 999, 999, CheckBounds}, {1000, math.MaxInt, CheckBounds},
		// Zero length: inside or right behind, by the same rule.
		{1000, 0, CheckOK}, {1100, 0, CheckOK}, {999, 0, CheckBounds}, {1101, 0, CheckBounds}, {math.MaxUint64, 0, CheckBounds},
	} {
		b, res := table.Check(pd, 1, m.STag(), c.to, c.n, RemoteWrite)
		require.Equal(t, c.want, res, "TO %d, %d octets", c.to, c.n)
		if c.want != CheckOK {
			require.Nil(t, b)
			continue
		}
		require.Len(t, b, c.n)
		require.Equal(t, c.n, cap(b))
		if c.n > 0 {
			require.Same(t, &m.Bytes()[c.to-1000], &b[0])
		}
	}
	_, res := table.Check(pd, 1, m.STag(), 1000, -1, RemoteWrite)
	require.NotEqual(t, CheckOK, res)
	_, res = table.Check(pd, 1, m.STag(), 0, math.MinInt, RemoteWrite)
	require.NotEqual(t, CheckOK, res)
}

// req: 5040-7.2-7
func TestCheckWrap(t *testing.T) {
	table := NewTable(4)
	pd := table.AllocDomain()
	m := register(t, table, pd, make([]byte, 100), RegionOptions{Access: RemoteWrite, Base: math.MaxUint64 - 100})
	require.Equal(t, CheckOK, verdict(table, pd, 1, m.STag(), math.MaxUint64-1, 1))
	require.Equal(t, CheckOK, verdict(table, pd, 1, m.STag(), math.MaxUint64-100, 100))
	require.Equal(t, CheckWrap, verdict(table, pd, 1, m.STag(), math.MaxUint64, 1))
	require.Equal(t, CheckWrap, verdict(table, pd, 1, m.STag(), math.MaxUint64-100, 101))
	require.Equal(t, CheckWrap, verdict(table, pd, 1, m.STag(), math.MaxUint64-50, 200))
	require.Equal(t, CheckBounds, verdict(table, pd, 1, m.STag(), math.MaxUint64-101, 101))
	zeroBased := register(t, table, pd, make([]byte, 100), RegionOptions{Access: RemoteWrite})
	require.Equal(t, CheckWrap, verdict(table, pd, 1, zeroBased.STag(), math.MaxUint64, 2), "the sum comes out inside the region")
	require.Equal(t, CheckWrap, verdict(table, pd, 1, zeroBased.STag(), math.MaxUint64-9, 100))
}

// req: 5041-2.1-1, 5041-8.2-1, 5041-8.3.1-1, 5042-6.1.1-2
func TestCheckProtectionDomain(t *testing.T) {
	table := NewTable(4)
	mine, other := table.AllocDomain(), table.AllocDomain()
	m := register(t, table, mine, make([]byte, 8), RegionOptions{Access: accessAll})
	for need := LocalRead; need <= RemoteWrite; need <<= 1 {
		for pd, want := range map[ProtectionDomain]CheckResult{mine: CheckOK, other: CheckNotAssociated, 0: CheckNotAssociated} {
			_, res := table.Check(pd, 7, m.STag(), 0, 8, need)
			require.Equal(t, want, res, "domain %d, %v", pd, need)
		}
	}
}

// req: DDP-10.3-4, 5041-8.2-2, 5041-8.2-3, 5041-8.3.1-2, 5042-6.1.1-3, 5040-3.2-1
func TestCheckStream(t *testing.T) {
	table := NewTable(4)
	pd := table.AllocDomain()
	tied := register(t, table, pd, make([]byte, 8), RegionOptions{Access: accessAll, Stream: 7})
	shared := register(t, table, pd, make([]byte, 8), RegionOptions{Access: accessAll})
	for need := LocalRead; need <= RemoteWrite; need <<= 1 {
		for _, c := range []struct {
			m      *MemoryRegion
			stream StreamID
			want   CheckResult
		}{
			{tied, 7, CheckOK}, {tied, 8, CheckNotAssociated}, {shared, 7, CheckOK}, {shared, 8, CheckOK}, {shared, AnyStream, CheckOK},
		} {
			_, res := table.Check(pd, c.stream, c.m.STag(), 0, 8, need)
			require.Equal(t, c.want, res, "stream %d, %v", c.stream, need)
		}
	}
	// No stream at all: the owner's local access, and never a remote one.
	for need, want := range map[Access]CheckResult{
		LocalRead: CheckOK, LocalWrite: CheckOK, LocalRead | LocalWrite: CheckOK,
		RemoteRead: CheckNotAssociated, RemoteWrite: CheckNotAssociated, LocalWrite | RemoteWrite: CheckNotAssociated,
	} {
		_, res := table.Check(pd, AnyStream, tied.STag(), 0, 8, need)
		require.Equal(t, want, res, "%v", need)
	}
}

// req: 5041-8.3.1-5, 5042-6.3.5-1
func TestCheckAccess(t *testing.T) {
	table := NewTable(32)
	pd := table.AllocDomain()
	for granted := Access(0); granted <= accessAll; granted++ {
		m := register(t, table, pd, make([]byte, 8), RegionOptions{Access: granted})
		require.Equal(t, granted|LocalRead, m.Access())
		for need := Access(0); need <= accessAll; need++ {
			want := CheckOK
			if need == 0 || need&^(granted|LocalRead) != 0 {
				want = CheckAccess
			}
			_, res := table.Check(pd, 1, m.STag(), 0, 8, need)
			require.Equal(t, want, res, "granted %v, need %v", granted, need)
		}
	}
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

// req: 5040-7.2-5
func TestCheckUnknownSTag(t *testing.T) {
	table := NewTable(64)
	pd := table.AllocDomain()
	m := register(t, table, pd, make([]byte, 8), RegionOptions{Access: RemoteWrite})
	for bit := range 32 {
		require.Equal(t, CheckInvalidSTag, verdict(table, pd, 1, m.STag()^1<<bit, 0, 8), "bit %d", bit)
	}
	require.Equal(t, CheckInvalidSTag, verdict(table, pd, 1, 0, 0, 0))
	require.Equal(t, CheckOK, verdict(table, pd, 1, m.STag(), 0, 8))
}

// oracle is a Table without any cleverness: a list, and integers that do not wrap.
type oracle struct{ regions []*oracleRegion }

type oracleRegion struct {
	m           *MemoryRegion
	pd          ProtectionDomain
	mem         []byte
	opt         RegionOptions
	stag        STag
	valid, gone bool
}

func (o *oracle) find(stag STag) *oracleRegion {
	for _, r := range o.regions {
		if r.valid && r.stag == stag {
			return r
		}
	}
	return nil
}

func (o *oracle) check(pd ProtectionDomain, stream StreamID, stag STag, to uint64, n int, need Access) (*oracleRegion, CheckResult) {
	r := o.find(stag)
	if r == nil {
		return nil, CheckInvalidSTag
	}
	local := need&(RemoteRead|RemoteWrite) == 0
	if r.pd != pd || r.opt.Stream != AnyStream && r.opt.Stream != stream && !(local && stream == AnyStream) {
		return nil, CheckNotAssociated
	}
	if need == 0 || need&(r.opt.Access|LocalRead) != need {
		return nil, CheckAccess
	}
	return r, judge(to, n, r.opt.Base, len(r.mem))
}

// judge says in unbounded integers whether [to, to+n) lies in [base, base+length).
func judge(to uint64, n int, base uint64, length int) CheckResult {
	first, end := new(big.Int).SetUint64(to), new(big.Int).SetUint64(to)
	end.Add(end, big.NewInt(int64(n)))
	lo, hi := new(big.Int).SetUint64(base), new(big.Int).SetUint64(base)
	hi.Add(hi, big.NewInt(int64(length)))
	switch {
	case end.BitLen() > 64:
		return CheckWrap
	case first.Cmp(lo) < 0 || end.Cmp(hi) > 0:
		return CheckBounds
	}
	return CheckOK
}

func genTO(t *rapid.T, base uint64, length int) uint64 {
	near := rapid.SampledFrom([]uint64{0, base, base + uint64(length), math.MaxUint64}).Draw(t, "near")
	return near + uint64(rapid.Int64Range(-3, 3).Draw(t, "off"))
}

// req: 5041-8.3-1, 5040-8.1.1-1
func TestTableAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		const entries = 5
		table := NewTable(entries)
		o := &oracle{}
		stags := []STag{0}
		live := func(t *rapid.T) *oracleRegion {
			var list []*oracleRegion
			for _, r := range o.regions {
				if !r.gone {
					list = append(list, r)
				}
			}
			if len(list) == 0 {
				t.Skip("none")
			}
			return rapid.SampledFrom(list).Draw(t, "region")
		}
		count := func() (n int) {
			for _, r := range o.regions {
				if !r.gone {
					n++
				}
			}
			return n
		}
		pds := rapid.Uint32Range(1, 2)
		streams := rapid.Uint32Range(0, 2)
		t.Repeat(map[string]func(*rapid.T){
			"": func(t *rapid.T) {
				require.Equal(t, count(), table.Len())
				for _, r := range o.regions {
					require.Equal(t, r.valid, r.m.Valid())
				}
			},
			"Register": func(t *rapid.T) {
				r := &oracleRegion{pd: ProtectionDomain(pds.Draw(t, "pd")), mem: make([]byte, rapid.IntRange(1, 9).Draw(t, "len"))}
				r.opt.Access = Access(rapid.Uint8Range(0, uint8(accessAll)).Draw(t, "access"))
				r.opt.Stream = StreamID(streams.Draw(t, "stream"))
				r.opt.Base = rapid.SampledFrom([]uint64{0, 5, 1 << 63, math.MaxUint64 - uint64(len(r.mem))}).Draw(t, "base")
				m, err := table.Register(r.pd, r.mem, r.opt)
				if count() == entries {
					var full *TableFullError
					require.ErrorAs(t, err, &full)
					return
				}
				require.NoError(t, err)
				r.m, r.stag, r.valid = m, m.STag(), true
				o.regions = append(o.regions, r)
				stags = append(stags, r.stag)
			},
			"Revoke": func(t *rapid.T) { r := live(t); r.m.Revoke(); r.valid = false },
			"Revalidate": func(t *rapid.T) {
				r := live(t)
				stag := r.m.Revalidate()
				require.Equal(t, r.stag.Index(), stag.Index())
				require.Equal(t, r.stag.Key()+1, stag.Key())
				r.stag, r.valid = stag, true
				stags = append(stags, stag)
			},
			"Deregister": func(t *rapid.T) { r := live(t); r.m.Deregister(); r.valid, r.gone = false, true },
			"after Deregister": func(t *rapid.T) {
				for _, r := range o.regions {
					if r.gone {
						r.m.Revoke()
						r.m.Deregister()
						require.Panics(t, func() { r.m.Revalidate() })
					}
				}
			},
			"Invalidate": func(t *rapid.T) {
				stag := rapid.SampledFrom(stags).Draw(t, "stag")
				pd, stream := ProtectionDomain(pds.Draw(t, "pd")), StreamID(streams.Draw(t, "stream"))
				res := table.Invalidate(pd, stream, stag)
				r := o.find(stag)
				switch {
				case r == nil:
					require.Equal(t, CheckInvalidSTag, res)
				case r.pd != pd || r.opt.Stream != AnyStream && r.opt.Stream != stream:
					require.Equal(t, CheckNotAssociated, res)
				case r.opt.Stream == AnyStream || r.opt.Access&(RemoteRead|RemoteWrite) == 0:
					require.Equal(t, CheckAccess, res)
				default:
					require.Equal(t, CheckOK, res)
					r.valid = false
				}
			},
			"Check": func(t *rapid.T) {
				stag := rapid.SampledFrom(stags).Draw(t, "stag")
				pd, stream := ProtectionDomain(pds.Draw(t, "pd")), StreamID(streams.Draw(t, "stream"))
				need := Access(rapid.Uint8Range(0, uint8(accessAll)).Draw(t, "need"))
				n := rapid.IntRange(0, 11).Draw(t, "n")
				var to uint64
				if r := o.find(stag); r != nil {
					to = genTO(t, r.opt.Base, len(r.mem))
				}
				r, want := o.check(pd, stream, stag, to, n, need)
				b, res := table.Check(pd, stream, stag, to, n, need)
				require.Equal(t, want, res)
				if want != CheckOK {
					require.Nil(t, b)
					return
				}
				require.Len(t, b, n)
				if n > 0 {
					require.Same(t, &r.mem[to-r.opt.Base], &b[0])
				}
			},
		})
	})
}

// The bounds check against integers that do not wrap.
func FuzzCheckBounds(f *testing.F) {
	f.Add(uint64(1000), uint16(100), uint64(1000), 100)
	f.Add(uint64(0), uint16(1), uint64(math.MaxUint64), 1)
	f.Add(uint64(math.MaxUint64-1), uint16(1), uint64(math.MaxUint64-1), 1)
	f.Add(uint64(1), uint16(0xFFFF), uint64(0), math.MaxInt)
	f.Fuzz(func(t *testing.T, base uint64, length uint16, to uint64, n int) {
		table := NewTable(1)
		m, err := table.Register(1, make([]byte, length), RegionOptions{Access: RemoteWrite, Base: base})
		if length == 0 || base+uint64(length) < base {
			require.Error(t, err)
			return
		}
		require.NoError(t, err)
		b, res := table.Check(1, 1, m.STag(), to, n, RemoteWrite)
		if n < 0 {
			require.NotEqual(t, CheckOK, res)
			return
		}
		require.Equal(t, judge(to, n, base, int(length)), res)
		if res == CheckOK {
			require.Len(t, b, n)
			require.True(t, n == 0 || &b[0] == &m.Bytes()[to-base])
		}
	})
}

// Headers made up by a peer, and every octet they may write is written: guard pages stand around the arena, and
// what lies in it beside the region keeps its value.
// req: 5041-8.3.1-3, 5042-6.2.1-1
func TestForgedHeadersStayInside(t *testing.T) {
	a, err := hugepages.New(hugepages.Config{Bytes: 4096, Page: hugepages.Normal, Node: hugepages.AnyNode, GuardPages: true})
	require.NoError(t, err)
	defer a.Close()
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	whole := a.Bytes()
	table := NewTable(8)
	placed := 0
	for range 300 {
		first := rng.IntN(len(whole))
		length := 1 + rng.IntN(len(whole)-first)
		if rng.IntN(3) == 0 { // flush with the guards
			first, length = 0, len(whole)
		}
		clear(whole)
		base := rng.Uint64() >> rng.IntN(64)
		if base > math.MaxUint64-uint64(length) {
			continue
		}
		m := register(t, table, 1, whole[first:first+length], RegionOptions{Access: RemoteWrite, Base: base, Stream: 1})
		for range 100 {
			stag := m.STag()
			if rng.IntN(8) == 0 {
				stag ^= 1 << rng.IntN(32)
			}
			to := base + uint64(rng.IntN(3*length)-length)
			n := rng.IntN(length + 2)
			b, res := table.Check(1, 1, stag, to, n, RemoteWrite)
			if stag != m.STag() {
				require.Equal(t, CheckInvalidSTag, res)
			}
			for i := range b {
				b[i] = 0xEE
			}
			placed += len(b)
		}
		for i, v := range whole {
			if v != 0 && (i < first || i >= first+length) {
				t.Fatalf("octet %d written, region is %d to %d", i, first, first+length)
			}
		}
		m.Deregister()
	}
	require.Positive(t, placed)
}

// Indices are drawn from all 24 bits: 4096 of them, in 16 parts of the range, with no part beyond six standard
// deviations, none twice, no two tables alike, and the order tells nothing of the size.
// req: 5040-8.1.1-3, 5042-6.1.1-4
func TestSTagsAreSpread(t *testing.T) {
	const entries = 4096
	draw := func() []STag {
		table := NewTable(entries)
		var list []STag
		for range entries {
			list = append(list, register(t, table, 1, make([]byte, 1), RegionOptions{}).STag())
		}
		_, err := table.Register(1, make([]byte, 1), RegionOptions{})
		require.EqualError(t, err, "mem: all 4096 memory regions are in use; deregister some or make the table larger")
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

// req: 5042-6.1.1-4
func TestSTagsAreNotReusedEarly(t *testing.T) {
	table := NewTable(1)
	seen := map[STag]bool{}
	last := STag(0)
	for range 1000 {
		m := register(t, table, 1, make([]byte, 1), RegionOptions{Access: RemoteWrite})
		require.NotEqual(t, last.Index(), m.STag().Index())
		last = m.STag()
		seen[last] = true
		m.Deregister()
		require.Equal(t, CheckInvalidSTag, verdict(table, 1, 1, last, 0, 1))
	}
	require.GreaterOrEqual(t, len(seen), 998)
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
	require.Equal(t, STag(0xFFFFFE01), register(t, table, 1, make([]byte, 1), RegionOptions{}).STag(), "slot 1 in use")
	m.Deregister()
	script = []uint32{0x00000588, 0x00000988}
	require.Equal(t, STag(0x988), register(t, table, 1, make([]byte, 1), RegionOptions{}).STag(), "index 5 was the last")
	require.Empty(t, script)
}

func TestRegisterRefuses(t *testing.T) {
	table := NewTable(1)
	huge, err := unix.MmapPtr(-1, 0, nil, RegionBytesMax+4096, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
	require.NoError(t, err)
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
		{"Access", 1, make([]byte, 1), RegionOptions{Access: accessAll + 1}},
	} {
		_, err := table.Register(c.pd, c.b, c.opt)
		var bad *RegionError
		require.ErrorAs(t, err, &bad, "%s", c.field)
		require.Equal(t, c.field, bad.Field)
	}
	require.Zero(t, table.Len())
	register(t, table, 1, overlong[:RegionBytesMax], RegionOptions{})
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

func BenchmarkRegister(b *testing.B) {
	table := NewTable(1 << 10)
	mem := make([]byte, 4096)
	b.ReportAllocs()
	for b.Loop() {
		register(b, table, 1, mem, RegionOptions{Access: RemoteWrite}).Deregister()
	}
}
