package rdmap

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/rnicd/rnicd/ddp"
	"github.com/stretchr/testify/require"
)

const anAtomicWire = "00000002 01020304 11121314 2122232425262728 3132333435363738 " +
	"4142434445464748 5152535455565758 6162636465666768"

var anAtomic = AtomicRequest{
	Code: CompareSwap, ID: 0x01020304, STag: 0x11121314, TO: 0x2122232425262728,
	Data: 0x3132333435363738,
	Mask: 0x4142434445464748, Compare: 0x5152535455565758, CompareMask: 0x6162636465666768,
}

// req: 7306-4-1, 7306-5.2.1-1, 7306-5.1.1-3
func TestAtomicRequestGolden(t *testing.T) {
	for _, c := range []struct {
		wire string
		req  AtomicRequest
	}{
		{anAtomicWire, anAtomic},
		{"00000000 00000007 00000009 0000000000000010 ffffffffffffffff 0000000080000000 " +
			"0000000000000000 ffffffffffffffff",
			AtomicRequest{Code: FetchAdd, ID: 7, STag: 9, TO: 16, Data: math.MaxUint64, Mask: 1 << 31,
				CompareMask: math.MaxUint64}},
	} {
		wire := unhex(t, c.wire)
		out := make([]byte, AtomicRequestLen)
		c.req.Put(out)
		require.Equal(t, wire, out)
		got, ok := ParseAtomicRequest(wire)
		require.True(t, ok)
		require.Equal(t, c.req, got)
		for i := range 28 { // reserved bits
			wire[i/8] |= 1 << (7 - i%8)
		}
		got, ok = ParseAtomicRequest(wire)
		require.True(t, ok)
		require.Equal(t, c.req, got)
		for n := range wire {
			_, ok := ParseAtomicRequest(wire[:n])
			require.False(t, ok, "%d octets", n)
		}
		_, ok = ParseAtomicRequest(append(wire, 0))
		require.False(t, ok)
		require.Panics(t, func() { c.req.Put(out[:AtomicRequestLen-1]) })
	}
	require.Equal(t, 70, ddp.UntaggedLen+AtomicRequestLen, "the whole segment")
}

// FetchAdd sends Compare Data 0 and Compare Mask all ones, and does not look at them.
//
// req: 7306-5.2.1-3
func TestFetchAddIgnoresCompare(t *testing.T) {
	r := anAtomic
	r.Code = FetchAdd
	out := make([]byte, AtomicRequestLen)
	r.Put(out)
	require.Equal(t, unhex(t, "0000000000000000 ffffffffffffffff"), out[36:])
	want := r.Apply(99)
	r.Compare, r.CompareMask = 1, 2
	require.Equal(t, want, r.Apply(99))
}

// req: 7306-5.2.1-2
func TestAtomicCodes(t *testing.T) {
	for c := range AtomicCode(16) {
		require.Equal(t, c == 0 || c == 2, c.Valid(), "%d", c)
	}
}

// req: 7306-4-1, 7306-5.2.2-1
func TestAtomicResponseGolden(t *testing.T) {
	wire := unhex(t, "01020304 1112131415161718")
	want := AtomicResponse{ID: 0x01020304, Original: 0x1112131415161718}
	out := make([]byte, AtomicResponseLen)
	want.Put(out)
	require.Equal(t, wire, out)
	got, ok := ParseAtomicResponse(wire)
	require.True(t, ok)
	require.Equal(t, want, got)
	for n := range wire {
		_, ok := ParseAtomicResponse(wire[:n])
		require.False(t, ok, "%d octets", n)
	}
	_, ok = ParseAtomicResponse(append(wire, 0))
	require.False(t, ok)
}

// fetchAddOfRFC is the pseudocode of section 5.1.1.
func fetchAddOfRFC(original, data, mask uint64) (value uint64) {
	location, carry := uint64(1), uint64(0)
	for bit := range 64 {
		if bit != 0 {
			location <<= 1
		}
		sum := carry + (original&location)>>bit + (data&location)>>bit
		carry = sum & 2 >> 1
		if sum&1 != 0 {
			value |= location
		}
		if mask&location != 0 {
			carry = 0
		}
	}
	return value
}

// req: 7306-5.1.1-2
func TestFetchAdd(t *testing.T) {
	r := AtomicRequest{Code: FetchAdd, Data: 1}
	require.Zero(t, r.Apply(math.MaxUint64), "64 bits, and the carry dropped")
	r.Mask = 1 << 31
	require.Equal(t, uint64(0xffffffff_00000000), r.Apply(math.MaxUint64))
	const seed = 1
	rng := rand.New(rand.NewPCG(seed, seed))
	for range 10000 {
		r.Data, r.Mask = rng.Uint64(), rng.Uint64()&rng.Uint64()
		v := rng.Uint64()
		require.Equal(t, fetchAddOfRFC(v, r.Data, r.Mask), r.Apply(v), "%+v of %x, seed %d", r, v, seed)
	}
}

// req: 7306-5.1.2-1
func TestCompareSwap(t *testing.T) {
	r := AtomicRequest{Code: CompareSwap, Compare: 0x1234, CompareMask: 0xff, Data: 0xabcdef,
		Mask: 0xf0f}
	require.Equal(t, uint64(0x5d3f), r.Apply(0x5634), "the low octet matches: two digits are replaced")
	require.Equal(t, uint64(0x5635), r.Apply(0x5635))
	r = AtomicRequest{Code: CompareSwap, Compare: 7, CompareMask: math.MaxUint64, Data: 9,
		Mask: math.MaxUint64}
	require.Equal(t, uint64(9), r.Apply(7))
	require.Equal(t, uint64(8), r.Apply(8))
}

func FuzzAtomicRequest(f *testing.F) {
	f.Add(unhex(f, anAtomicWire))
	f.Add(make([]byte, AtomicRequestLen))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := ParseAtomicRequest(b)
		require.Equal(t, len(b) == AtomicRequestLen, ok, "%d octets", len(b))
		if !ok {
			return
		}
		out := make([]byte, AtomicRequestLen)
		r.Put(out)
		in := append([]byte{0, 0, 0, b[3] & atomicCodeMask}, b[4:]...)
		if r.Code == FetchAdd {
			copy(in[36:], unhex(t, "0000000000000000ffffffffffffffff"))
			require.Equal(t, fetchAddOfRFC(r.TO, r.Data, r.Mask), r.Apply(r.TO))
		}
		require.Equal(t, in, out)
	})
}

func FuzzAtomicResponse(f *testing.F) {
	f.Add(unhex(f, "01020304 1112131415161718"))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := ParseAtomicResponse(b)
		require.Equal(t, len(b) == AtomicResponseLen, ok, "%d octets", len(b))
		if ok {
			out := make([]byte, AtomicResponseLen)
			r.Put(out)
			require.Equal(t, b, out)
		}
	})
}

func FuzzReadRequest(f *testing.F) {
	f.Add(unhex(f, aReadWire))
	f.Fuzz(func(t *testing.T, b []byte) {
		r, ok := ParseReadRequest(b)
		require.Equal(t, len(b) == ReadRequestLen, ok, "%d octets", len(b))
		if ok {
			out := make([]byte, ReadRequestLen)
			r.Put(out)
			require.Equal(t, b, out)
		}
	})
}

func TestAtomicAllocs(t *testing.T) {
	var b [AtomicRequestLen]byte
	r := anAtomic
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r.Put(b[:])
		if got, ok := ParseAtomicRequest(b[:]); !ok || got.Apply(1) != 1 {
			t.Fatal("not parsed")
		}
	}))
}
