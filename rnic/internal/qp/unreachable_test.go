package qp

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
)

// Only a fault at an octet of a region is the connection's. Any other fault, and any other panic,
// goes on.
func TestOtherFaultsGoOn(t *testing.T) {
	const page = 4096
	b, err := unix.Mmap(-1, 0, 4*page, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(b)) }()
	q := &Engine{Config: Config{Table: mem.NewTable(8)}, service: new(service)}
	region, err := q.Table.Register(q.Table.AllocDomain(), b[page:3*page],
		mem.RegionOptions{Access: mem.LocalWrite})
	require.NoError(t, err)
	require.NoError(t, unix.Mprotect(b, unix.PROT_NONE))
	store := func(at int) (ok bool) { return q.store(b[at:], 1) }
	require.False(t, store(page))
	require.False(t, store(3*page-8))
	region.Revoke() // a burst may be under way still
	require.False(t, store(page))
	require.Panics(t, func() { store(0) })
	require.Panics(t, func() { store(3 * page) })
	region.Deregister()
	require.Panics(t, func() { store(page) })
	require.PanicsWithValue(t, "a bug", func() { q.unreachable("a bug") })
	require.False(t, debug.SetPanicOnFault(false), "as it was")
}

// While the engine touches registered memory a fault is a panic, and afterwards what it was for the
// goroutine: also for what else runs there.
func TestFaultsAreTheGoroutinesAgain(t *testing.T) {
	for seed := range uint64(8) {
		for _, most := range []int{1, 20} {
			e := newEnds(t, seed)
			e.post(seed)
			e.send(most, -1)
			require.False(t, debug.SetPanicOnFault(false), "seed %d: sending, up to %d", seed, most)
			e.arrive(most)
			require.False(t, debug.SetPanicOnFault(false), "seed %d: receiving, up to %d", seed, most)
		}
	}
}
