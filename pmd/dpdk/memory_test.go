//go:build dpdk

package dpdk

import (
	"os"
	"path/filepath"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

var _ pmd.Mapper = (*Port)(nil)

// mappedFile maps a new file.
func mappedFile(t *testing.T, octets, prot int) []byte {
	t.Helper()
	f := must(os.OpenFile(filepath.Join(t.TempDir(), "memory"), os.O_RDWR|os.O_CREATE, 0o600))(t)
	defer f.Close()
	require.NoError(t, f.Truncate(int64(octets)))
	b := must(unix.Mmap(int(f.Fd()), 0, octets, prot, unix.MAP_SHARED))(t)
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	return b
}

// regionMemory is memory of every kind that an application registers regions in.
func regionMemory(t *testing.T) map[string]*hugepages.Arena {
	const octets = 4 << 20 // two pages at the least
	shared, err := hugepages.New(
		hugepages.Config{Bytes: octets, Page: hugepages.Normal, Node: hugepages.AnyNode, Memfd: true})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, shared.Close()) })
	kinds := map[string]*hugepages.Arena{
		"arena": newArena(t, octets), "memfd": shared,
		"file": hugepages.Over(mappedFile(t, octets, unix.PROT_READ|unix.PROT_WRITE), hugepages.Normal),
	}
	if !testArgsSay("pa") { // the Go heap's pages have no lasting physical address
		kinds["heap"] = hugepages.Heap(octets)
	}
	return kinds
}

// Memory of any kind becomes external memory of the EAL, and the Port tells at which addresses a
// device sees it; a region may lie anywhere in it. It ends with Unmap or Close, and can be mapped
// again.
//
// (Named so that TestEnvironments runs it by virtual and physical addresses, with and without
// hugepages.)
func TestRingMapsRegions(t *testing.T) {
	a, b := ringSides(t, "map", 64, 256, 2048)
	table := mem.NewTable(1)
	for name, kind := range regionMemory(t) {
		t.Run(name, func(t *testing.T) {
			bytes, page := kind.Bytes(), int(kind.PageSize())
			for _, s := range []*side{a, b} {
				_, ok := s.port.IOVA(bytes)
				require.False(t, ok, "not mapped yet")
				require.NoError(t, s.port.Map(bytes, page))
				require.ErrorContains(t, s.port.Map(bytes, page), "already")
			}
			m := a.port.extra[unsafe.SliceData(bytes)]
			require.True(t, m.known(), "the EAL knows every page, at the same address")
			require.Equal(t, 2, m.ports)
			region, err := table.Register(1, bytes[page-3:page+5],
				mem.RegionOptions{Access: mem.RemoteWrite})
			require.NoError(t, err)
			defer region.Deregister()
			first, ok := a.port.IOVA(region.Bytes()[:3])
			require.True(t, ok)
			next, ok := a.port.IOVA(region.Bytes()[3:])
			require.True(t, ok)
			if !m.pa() {
				require.EqualValues(t, uintptr(unsafe.Pointer(&region.Bytes()[0])), first)
				require.Equal(t, first+3, next)
			}
			_, whole := a.port.IOVA(region.Bytes())
			require.Equal(t, first+3 == next, whole, "one piece if the pages are neighbours to the device")
			require.NoError(t, a.port.Unmap(bytes))
			require.ErrorContains(t, a.port.Unmap(bytes), "not mapped")
			require.True(t, m.known(), "the other port has it still")
			require.NoError(t, a.port.Map(bytes, page))
			require.NoError(t, b.port.Unmap(bytes))
		})
	}
	left := len(arenas)
	mapped := len(a.port.extra)
	require.NoError(t, a.port.Close())
	require.Equal(t, left-mapped-1, len(arenas), "Close ends what Map began")
	_, ok := a.port.IOVA(a.pool.Memory())
	require.False(t, ok)
	require.ErrorContains(t, a.port.Map(make([]byte, 4096), 4096), "closed")
}

// The device moves octets from and to an application's own file: its Pools lie there.
func TestRingOverAFile(t *testing.T) {
	start(t)
	na, nb, err := RingPair("file", 256)
	require.NoError(t, err)
	const bufs, stride = 512, 2048
	arena := func() *hugepages.Arena {
		return hugepages.Over(mappedFile(t, bufs*stride+1<<16, unix.PROT_READ|unix.PROT_WRITE),
			hugepages.Normal)
	}
	a := openSide(t, Config{Vdev: na, Arena: arena()}, bufs, stride)
	b := openSide(t, Config{Vdev: nb, Arena: arena()}, bufs, stride)
	want := frame(newRand(t), 1500)
	a.send(t, want)
	require.Equal(t, [][]byte{want}, b.receive(t, 1, nil))
	iova, ok := a.port.IOVA(a.pool.Memory()[:1])
	require.True(t, ok)
	require.NotZero(t, iova)
	a.settled(t)
	b.settled(t)
}

// What cannot be mapped is refused before the EAL hears of it.
func TestMapRefuses(t *testing.T) {
	s := openSide(t, Config{Vdev: "net_null9"}, 256, 2048)
	before := len(arenas)
	whole := hugepages.Heap(4 * 4096).Bytes()
	for _, c := range []struct {
		b    []byte
		page int
		want string
	}{
		{nil, 4096, "not made of whole pages"},
		{whole[1:4097], 4096, "not made of whole pages"},
		{whole[:4095], 4096, "not made of whole pages"},
		{whole, 2 << 20, "not made of whole pages"},
		{whole, 0, "power of two"},
		{whole, 4095, "power of two"},
		{whole, 64, "power of two"},
		{s.pool.Memory()[:4096], 4096, "already"},
		{mappedFile(t, 4096, unix.PROT_READ), 4096, "cannot be written by this process"},
	} {
		require.ErrorContains(t, s.port.Map(c.b, c.page), c.want)
	}
	require.Equal(t, before, len(arenas))
	require.NoError(t, s.port.Map(whole, 4096))
	require.ErrorContains(t, s.port.Unmap(whole[:4096]), "not mapped")
	require.ErrorContains(t, s.port.Map(whole[4096:8192], 4096), "reaches this memory already")
	other := openSide(t, Config{Vdev: "net_null8"}, 256, 2048)
	require.ErrorContains(t, other.port.Map(whole[:4096], 4096), "known already")
	require.ErrorContains(t, other.port.Map(whole[4096:8192], 4096), "known already")
	require.NoError(t, other.port.Map(whole, 4096))
}
