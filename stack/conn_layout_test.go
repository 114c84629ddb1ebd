package stack

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// A connection begins on a cache line, what its segments touch fills eight lines at most, and all
// of it is small. A new field takes of the octets left at the end of Conn, or goes into
// tcp.Memory.
func TestConnLayout(t *testing.T) {
	const hotLines = 8
	require.Zero(t, unsafe.Sizeof(Conn{})%cacheLine)
	require.LessOrEqual(t, unsafe.Sizeof(Conn{}), uintptr(14*cacheLine))
	require.LessOrEqual(t, hotOctets, uintptr(hotLines*cacheLine))
	const lists = unsafe.Sizeof(alarm{}) + unsafe.Sizeof(timer{}) + 4*unsafe.Sizeof(lookupEntry{}) +
		unsafe.Sizeof(connIndex(0))
	require.LessOrEqual(t, unsafe.Sizeof(Conn{})+lists, uintptr(1024-32),
		"of 1 KiB for an idle one, all included: bench.TestOctetsPerIdleConnection")
	// fewer than 32 KiB of them begin after a word of the allocator
	l := newLab(t, func(_ int, cfg *Config) { cfg.ConnsMax = 64 })
	require.Zero(t, uintptr(unsafe.Pointer(&l.a.slab.conns[0]))%cacheLine)
}

// Beyond 64 Ki connections there are no more records than the packet buffers can use: an idle
// connection has none, and a million of them would have 74 octets each otherwise.
func TestRecordsOfManyConnections(t *testing.T) {
	require.Zero(t, recordsMax(64<<10, 1<<20), "tcp's default")
	require.Equal(t, 64<<10, recordsMax(1_000_000, 2048))
	require.Equal(t, 8*32768, recordsMax(1_000_000, 32768))
	require.Equal(t, 100_000, recordsMax(100_000, 32768))
}
