package mem

import (
	"math"
	"math/big"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rnicd/rnicd/hugepages"
)

// oracle is a Table without any cleverness: a list, and integers that do not wrap.
type oracle struct {
	table   *Table
	regions []*oracleRegion
	stags   []STag // that there are or were, and one that never was
}

// oracleRegion is a region, or a window when w is set: then of is what it was bound to last.
type oracleRegion struct {
	m           *MemoryRegion
	w           *Window
	of          *oracleRegion
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

func (o *oracle) check(pd ProtectionDomain, stream StreamID, stag STag, to uint64, n int,
	need Access) (*oracleRegion, CheckResult) {
	r := o.find(stag)
	if r == nil {
		return nil, CheckInvalidSTag
	}
	local := need&(RemoteRead|RemoteWrite) == 0
	if r.pd != pd || r.opt.Stream != AnyStream && r.opt.Stream != stream &&
		!(local && stream == AnyStream) {
		return nil, CheckNotAssociated
	}
	granted := r.opt.Access
	if r.w == nil {
		granted |= LocalRead
	}
	if need == 0 || need&granted != need {
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

// oracleEntries is how many regions the Table has room for.
const oracleEntries = 5

var (
	somePD = rapid.Map(rapid.Uint32Range(1, 2), func(n uint32) ProtectionDomain {
		return ProtectionDomain(n)
	})
	someStream = rapid.Map(rapid.Uint32Range(0, 2), func(n uint32) StreamID { return StreamID(n) })
	someAccess = rapid.Map(rapid.Uint8Range(0, uint8(accessAll)), func(n uint8) Access {
		return Access(n)
	})
)

// req: 5041-8.3-1, 5040-8.1.1-1
func TestTableAgainstOracle(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		o := &oracle{table: NewTable(oracleEntries), stags: []STag{0}}
		t.Repeat(map[string]func(*rapid.T){
			"":           o.agrees,
			"Register":   o.register,
			"Revoke":     func(t *rapid.T) { r := o.pick(t, false); r.m.Revoke(); o.end(r) },
			"Revalidate": o.revalidate,
			"Deregister": func(t *rapid.T) {
				r := o.pick(t, false)
				r.m.Deregister()
				o.end(r)
				r.gone = true
			},
			"NewWindow": o.newWindow,
			"Bind":      o.bind,
			"Unbind":    func(t *rapid.T) { r := o.pick(t, true); r.w.Unbind(); o.end(r) },
			"Free": func(t *rapid.T) {
				r := o.pick(t, true)
				r.w.Free()
				o.end(r)
				r.gone = true
			},
			"after Deregister": o.useGone,
			"Invalidate":       o.invalidate,
			"Check":            o.checkOne,
		})
	})
}

// live are the regions that are registered.
func (o *oracle) live() (list []*oracleRegion) {
	for _, r := range o.regions {
		if !r.gone {
			list = append(list, r)
		}
	}
	return list
}

// end is the end of r's validity, and of that of its windows.
func (o *oracle) end(r *oracleRegion) {
	r.valid = false
	for _, w := range o.regions {
		if w.of == r {
			w.valid = false
		}
	}
}

func (o *oracle) pick(t *rapid.T, window bool) *oracleRegion {
	list := slices.DeleteFunc(o.live(), func(r *oracleRegion) bool { return (r.w != nil) != window })
	if len(list) == 0 {
		t.Skip("none")
	}
	return rapid.SampledFrom(list).Draw(t, "region")
}

func (o *oracle) agrees(t *rapid.T) {
	require.Equal(t, len(o.live()), o.table.Len())
	for _, r := range o.regions {
		if r.w != nil {
			require.Equal(t, r.valid, r.w.Valid())
		} else {
			require.Equal(t, r.valid, r.m.Valid())
		}
	}
}

func (o *oracle) register(t *rapid.T) {
	r := &oracleRegion{pd: somePD.Draw(t, "pd"),
		mem: make([]byte, rapid.IntRange(1, 9).Draw(t, "len"))}
	r.opt.Access, r.opt.Stream = someAccess.Draw(t, "access"), someStream.Draw(t, "stream")
	r.opt.Windows = someAccess.Draw(t, "windows") & remoteAccess
	r.opt.Base = rapid.SampledFrom([]uint64{0, 5, 1 << 63, math.MaxUint64 - uint64(len(r.mem))}).
		Draw(t, "base")
	m, err := o.table.Register(r.pd, r.mem, r.opt)
	if len(o.live()) == oracleEntries {
		var full *TableFullError
		require.ErrorAs(t, err, &full)
		return
	}
	require.NoError(t, err)
	r.m, r.stag, r.valid = m, m.STag(), true
	o.regions = append(o.regions, r)
	o.stags = append(o.stags, r.stag)
}

func (o *oracle) newWindow(t *rapid.T) {
	w, err := o.table.NewWindow()
	if len(o.live()) == oracleEntries {
		var full *TableFullError
		require.ErrorAs(t, err, &full)
		return
	}
	require.NoError(t, err)
	o.regions = append(o.regions, &oracleRegion{w: w, stag: w.STag()})
}

func (o *oracle) bind(t *rapid.T) {
	r := o.pick(t, true)
	var of *oracleRegion
	for _, c := range o.regions { // of those that are gone, too
		if c.w == nil && (of == nil || rapid.Bool().Draw(t, "this one")) {
			of = c
		}
	}
	if of == nil {
		t.Skip("no region")
	}
	opt := WindowOptions{
		Off: rapid.IntRange(-1, 9).Draw(t, "off"), Len: rapid.IntRange(0, 10).Draw(t, "len"),
		Stream: someStream.Draw(t, "stream"), Access: someAccess.Draw(t, "access"),
		Base: rapid.SampledFrom([]uint64{0, 5, 1 << 63, math.MaxUint64 - 5}).Draw(t, "base"),
	}
	stag, err := r.w.Bind(of.m, opt)
	o.end(r)
	granted := (of.opt.Access | of.opt.Windows) & (RemoteRead | RemoteWrite)
	possible := opt.Off >= 0 && opt.Len > 0 && opt.Off+opt.Len <= len(of.mem) &&
		judge(opt.Base, opt.Len, opt.Base, opt.Len) == CheckOK &&
		opt.Access != 0 && opt.Access|granted == granted &&
		(of.opt.Stream == AnyStream || of.opt.Stream == opt.Stream)
	switch {
	case !possible:
		var bad *RegionError
		require.ErrorAs(t, err, &bad)
	case !of.valid:
		require.ErrorIs(t, err, ErrRevoked)
	default:
		require.NoError(t, err)
		require.Equal(t, r.stag.Key()+1, stag.Key())
		r.of, r.pd, r.stag, r.valid = of, of.pd, stag, true
		r.mem, r.opt = of.mem[opt.Off:opt.Off+opt.Len], RegionOptions{Access: opt.Access, Base: opt.Base,
			Stream: opt.Stream}
		o.stags = append(o.stags, stag)
	}
}

func (o *oracle) revalidate(t *rapid.T) {
	r := o.pick(t, false)
	stag := r.m.Revalidate()
	o.end(r)
	require.Equal(t, r.stag.Index(), stag.Index())
	require.Equal(t, r.stag.Key()+1, stag.Key())
	r.stag, r.valid = stag, true
	o.stags = append(o.stags, stag)
}

func (o *oracle) useGone(t *rapid.T) {
	for _, r := range o.regions {
		if r.gone && r.w != nil {
			r.w.Unbind()
			r.w.Free()
			for _, of := range o.regions {
				require.Panics(t, func() { _, _ = r.w.Bind(of.m, WindowOptions{Len: 1, Access: RemoteRead}) })
			}
		} else if r.gone {
			r.m.Revoke()
			r.m.Deregister()
			require.Panics(t, func() { r.m.Revalidate() })
		}
	}
}

func (o *oracle) invalidate(t *rapid.T) {
	stag, pd, stream := rapid.SampledFrom(o.stags).Draw(t, "stag"), somePD.Draw(t, "pd"),
		someStream.Draw(t, "stream")
	res := o.table.Invalidate(pd, stream, stag)
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
		o.end(r)
	}
}

func (o *oracle) checkOne(t *rapid.T) {
	stag, pd, stream := rapid.SampledFrom(o.stags).Draw(t, "stag"), somePD.Draw(t, "pd"),
		someStream.Draw(t, "stream")
	need, n := someAccess.Draw(t, "need"), rapid.IntRange(0, 11).Draw(t, "n")
	var to uint64
	if r := o.find(stag); r != nil {
		to = genTO(t, r.opt.Base, len(r.mem))
	}
	r, want := o.check(pd, stream, stag, to, n, need)
	b, res := o.table.Check(pd, stream, stag, to, n, need)
	require.Equal(t, want, res)
	if want != CheckOK {
		require.Nil(t, b)
		return
	}
	require.Len(t, b, n)
	if n > 0 {
		require.Same(t, &r.mem[to-r.opt.Base], &b[0])
	}
}

// Every right that a region may grant against every one that may be wanted, on its own stream,
// another's and none, in its own domain, another's and none, as the oracle judges.
// req: 5041-2.1-1, 5041-8.2-1, 5041-8.3.1-1, 5042-6.1.1-2, DDP-10.3-4, 5041-8.2-2, 5041-8.2-3
// req: 5041-8.3.1-2, 5042-6.1.1-3, 5041-8.3.1-5, 5042-6.3.5-1
func TestCheckRights(t *testing.T) {
	for granted := range accessAll + 1 {
		for _, stream := range []StreamID{AnyStream, 7} {
			o := &oracle{table: NewTable(1)}
			r := &oracleRegion{pd: 1, mem: make([]byte, 8), valid: true,
				opt: RegionOptions{Access: granted, Stream: stream}}
			r.m = register(t, o.table, 1, r.mem, r.opt)
			r.stag, o.regions = r.m.STag(), []*oracleRegion{r}
			require.Equal(t, granted|LocalRead, r.m.Access())
			for need := range accessAll + 1 {
				for _, by := range []StreamID{AnyStream, 7, 8} {
					for pd := range ProtectionDomain(3) {
						_, want := o.check(pd, by, r.stag, 0, 8, need)
						_, res := o.table.Check(pd, by, r.stag, 0, 8, need)
						require.Equal(t, want, res, "granted %v to %d, need %v on %d, domain %d", granted, stream,
							need, by, pd)
					}
				}
			}
		}
	}
}

// The bounds check against integers that do not wrap: of 100 octets at 1000 to the octet, of none
// inside and right after them, of the last there may be, and of a sum that wraps to the inside.
// req: DDP-10.1-1, 5042-6.2.1-1, 5040-7.2-6, 5040-7.2-7
func FuzzCheckBounds(f *testing.F) {
	const last = math.MaxUint64 - 100
	for base, ranges := range map[uint64][]struct {
		to uint64
		n  int
	}{
		1000: {{1000, 100}, {1000, 1}, {1099, 1}, {1050, 50}, {1000, 101}, {999, 1}, {999, 2}, {1099, 2},
			{1100, 1}, {1050, 51}, {0, 1}, {0, 1100}, {math.MaxUint64 - 1, 1}, {math.MaxUint64 - 999, 999},
			{1000, math.MaxInt}, {1000, 0}, {1100, 0}, {999, 0}, {1101, 0}, {math.MaxUint64, 0},
			{1000, -1}, {0, math.MinInt}},
		last: {{math.MaxUint64 - 1, 1}, {last, 100}, {math.MaxUint64, 1}, {last, 101},
			{math.MaxUint64 - 50, 200}, {last - 1, 101}},
		0: {{math.MaxUint64, 2}, {math.MaxUint64 - 9, 100}},
	} {
		for _, r := range ranges {
			f.Add(base, uint16(100), r.to, r.n)
		}
	}
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
			require.Equal(t, n, cap(b))
			require.True(t, n == 0 || &b[0] == &m.Bytes()[to-base])
		}
	})
}

// Headers made up by a peer, and every octet they may write is written: guard pages stand around
// the arena, and what lies in it beside the region keeps its value.
// req: DDP-10.1-1, 5041-8.3.1-3, 5042-6.2.1-1
func TestForgedHeadersStayInside(t *testing.T) {
	a, err := hugepages.New(
		hugepages.Config{Bytes: 4096, Page: hugepages.Normal, Node: hugepages.AnyNode, GuardPages: true})
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
		m := register(t, table, 1, whole[first:first+length],
			RegionOptions{Access: RemoteWrite, Base: base, Stream: 1})
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
