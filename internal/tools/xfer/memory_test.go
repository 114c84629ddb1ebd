package xfer

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// A peer holds no more than its quota at a time, whichever of its addresses asks; what it gives
// back it may have again, and others have what is left.
func TestMemoryQuota(t *testing.T) {
	m := NewMemory(make([]byte, 64<<10), 16<<10)
	a, near, other := netip.MustParseAddr("2001:db8::1"), netip.MustParseAddr("2001:db8::2"),
		netip.MustParseAddr("::ffff:10.9.0.1")
	first, why := m.take(a, 12<<10)
	require.Empty(t, why)
	_, why = m.take(near, 8<<10)
	require.Equal(t, "no room for 8192 octets: your address may hold 16384, and holds 12288; try "+
		"again later", why)
	_, why = m.take(near, 17<<10)
	require.Equal(t, "17408 octets offered, a client may hold 16384 of the region", why)
	second, why := m.take(near, 4<<10)
	require.Empty(t, why)
	third, why := m.take(other, 16<<10)
	require.Empty(t, why)
	m.give(a, first)
	m.give(near, second)
	first, why = m.take(a, 16<<10)
	require.Empty(t, why)
	require.False(t, first.off < third.off+third.n && third.off < first.off+first.n)
	m.give(other, third)
	m.give(a, first)
	require.Empty(t, m.held)
	require.Zero(t, m.room.inUse())
}
