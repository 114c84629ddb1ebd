package hugepages

import (
	"errors"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func address(b []byte) uintptr { return uintptr(unsafe.Pointer(unsafe.SliceData(b))) }

func TestHeapArena(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 100_000} {
		a := Heap(n)
		require.Len(t, a.Bytes(), n)
		require.Equal(t, n, cap(a.Bytes()))
		if n > 0 {
			require.Zero(t, address(a.Bytes())%4096)
		}
		require.Equal(t, Normal, a.PageSize())
		require.Equal(t, -1, a.FD())
		require.Empty(t, a.Fallback())
		require.NoError(t, a.LockErr())
		require.Equal(t, n, a.remaining())
		require.NoError(t, a.Close())
		require.NoError(t, a.Close())
		require.Nil(t, a.Bytes())
		require.Zero(t, a.remaining())
	}
	require.Panics(t, func() { Heap(-1) })
}

// Pieces are aligned, inside the arena, disjoint, cannot grow into their neighbour, and a refusal
// takes nothing away.
func TestCarveProperty(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(0, 20_000).Draw(t, "size")
		a := Heap(size)
		whole := a.Bytes()
		for range rapid.IntRange(1, 30).Draw(t, "pieces") {
			n := rapid.IntRange(0, 3000).Draw(t, "n")
			align := 1 << rapid.IntRange(0, 12).Draw(t, "align")
			before := a.remaining()
			b, err := a.Carve(n, align)
			next := (size - before + align - 1) &^ (align - 1) // the base is page-aligned
			if next+n > size {
				var short *CarveError
				require.ErrorAs(t, err, &short)
				require.Equal(t, CarveError{Wanted: n, Align: align, Remaining: before}, *short)
				require.Equal(t, before, a.remaining())
				continue
			}
			require.NoError(t, err)
			require.Len(t, b, n)
			require.Equal(t, n, cap(b))
			require.Equal(t, size-next-n, a.remaining())
			for i := range b {
				require.Zero(t, b[i], "octet handed out twice")
				b[i] = 0xA5
			}
			if n > 0 {
				require.Equal(t, address(whole)+uintptr(next), address(b))
			}
		}
	})
}

func TestCarveRefusesNonsense(t *testing.T) {
	a := Heap(64)
	require.Panics(t, func() { a.Carve(-1, 1) })
	require.Panics(t, func() { a.Carve(1, 0) })
	require.Panics(t, func() { a.Carve(1, 3) })
	require.Panics(t, func() { a.Carve(1, -8) })
	require.Equal(t, 64, a.remaining())
}

func TestErrorsAreOneLineWithTheCure(t *testing.T) {
	for want, err := range map[string]error{
		"hugepages: 128 pages of 2 MiB wanted, 64 free; run hugepages/setup.sh 128": &ShortageError{Page: Page2MiB, Node: AnyNode, Wanted: 128, Free: 64, Total: 64},
		"hugepages: 128 pages of 2 MiB wanted, 4 free; run hugepages/setup.sh 188":  &ShortageError{Page: Page2MiB, Node: AnyNode, Wanted: 128, Free: 4, Total: 64},
		"hugepages: 2 pages of 1 GiB wanted on node 1, 0 free; run hugepages/setup.sh 2 --size " +
			"1G --node 1": &ShortageError{Page: Page1GiB, Node: 1, Wanted: 2},
		"hugepages: 200 GiB of memory wanted, 23 GiB available of which 376 MiB are kept free; ask for " +
			"less or add memory": &MemoryError{Wanted: 200 << 30, Available: 23 << 30, Kept: 376 << 20},
		"hugepages: NUMA node 3 wanted, online: 0 1; choose one of these, or AnyNode (-1)":        &NodeError{Node: 3, Online: []int{0, 1}},
		"hugepages: 65 octets aligned to 64 wanted, 7 remain in the arena; make the arena larger": &CarveError{65, 64, 7},
		"hugepages: Config.Bytes is -1, must be at least 1":                                       &ConfigError{"Bytes", -1, "at least 1"},
	} {
		require.EqualError(t, err, want)
	}
	cause := errors.New("cause")
	require.ErrorIs(t, &ShortageError{Err: cause}, cause)
}

func TestPageSizeString(t *testing.T) {
	for want, p := range map[string]PageSize{
		"auto": Auto, "4 KiB": Normal, "2 MiB": Page2MiB, "1 GiB": Page1GiB, "3 octets": 3,
		"32 MiB": 32 << 20,
	} {
		require.Equal(t, want, p.String())
	}
}

func TestRoundUp(t *testing.T) {
	for _, c := range []struct {
		n    int64
		page PageSize
		want int64
	}{
		{1, Page2MiB, 2 << 20}, {2 << 20, Page2MiB, 2 << 20}, {2<<20 + 1, Page2MiB, 4 << 20},
		{1, Page1GiB, 1 << 30}, {3 << 30, Page1GiB, 3 << 30},
	} {
		got, ok := roundUp(c.n, c.page)
		require.True(t, ok)
		require.Equal(t, c.want, got)
	}
	for _, page := range []PageSize{Normal, Page2MiB, Page1GiB} {
		_, ok := roundUp(1<<63-1, page)
		require.False(t, ok, "%v", page)
	}
}

// An arena over somebody else's octets takes nothing, changes nothing, and gives nothing back.
func TestOver(t *testing.T) {
	raw := Heap(4 * 4096).Bytes()
	for i := range raw {
		raw[i] = 7
	}
	a := Over(raw[4096:3*4096], Normal)
	require.Equal(t, Normal, a.PageSize())
	require.Equal(t, -1, a.FD())
	require.Empty(t, a.Fallback())
	require.Equal(t, 2*4096, cap(a.Bytes()))
	b := must(a.Carve(4096, 64))(t)
	require.Equal(t, address(raw)+4096, address(b))
	require.EqualValues(t, 7, b[0])
	require.Equal(t, 4096, a.remaining())
	require.NoError(t, a.Close())
	require.Nil(t, a.Bytes())
	raw[4096] = 8 // still there
	require.Panics(t, func() { Over(raw, Auto) })
	require.Panics(t, func() { Over(raw[:4095], Normal) })
	require.Panics(t, func() { Over(raw[1:4097], Normal) })
	require.Panics(t, func() { Over(raw, Page2MiB) })
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
