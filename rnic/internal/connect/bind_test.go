package connect

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// Two bindings of a port meet where an address is both's: the same one, all of its family, or all
// of both families. Those that meet are refused unless both are shared, and none of them is
// alone.
func TestBindingsMeet(t *testing.T) {
	const port = 7
	one4, two4 := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	one6, two6 := netip.MustParseAddr("fd00::1"), netip.MustParseAddr("fd00::2")
	any4, any6, both := netip.IPv4Unspecified(), netip.IPv6Unspecified(), netip.Addr{}
	meets := map[[2]netip.Addr]bool{
		{one4, one4}: true, {one4, two4}: false, {one4, one6}: false, {one4, any4}: true,
		{one4, any6}: false, {one4, both}: true,
		{one6, one6}: true, {one6, two6}: false, {one6, any6}: true, {one6, any4}: false,
		{one6, both}: true,
		{any4, any4}: true, {any4, any6}: false, {any4, both}: true, {any6, any6}: true,
		{any6, both}: true, {both, both}: true,
	}
	for pair, meet := range meets {
		for _, x := range [][2]netip.Addr{pair, {pair[1], pair[0]}} {
			for shares := range 4 {
				h := &Host{}
				first := &Binding{host: h, at: netip.AddrPortFrom(x[0], port), shared: shares&1 != 0}
				second := &Binding{host: h, at: netip.AddrPortFrom(x[1], port), shared: shares&2 != 0}
				other := &Binding{host: h, at: netip.AddrPortFrom(x[1], port+1)}
				name := fmt.Sprintf("%v and %v, shared %v and %v", x[0], x[1], first.shared, second.shared)
				require.True(t, h.bound.enter(first), name)
				require.True(t, first.Alone(), name)
				entered := h.bound.enter(second)
				require.Equal(t, !meet || shares == 3, entered, name)
				require.Equal(t, !meet, second.Alone(), name)
				require.Equal(t, !meet || !entered, first.Alone(), "%s: one that was refused is nobody's", name)
				require.True(t, h.bound.enter(other), "%s: of another port", name)

				h.bound.leave(first)
				require.True(t, second.Alone(), name)
				if !entered {
					require.True(t, h.bound.enter(second), name)
				}
				h.bound.leave(second)
				h.bound.leave(second) // harmless
				h.bound.leave(other)
				require.Empty(t, h.bound.all, name)
			}
		}
	}
}

// SetShared holds for those that come afterwards.
func TestSetShared(t *testing.T) {
	h := &Host{}
	at := netip.AddrPortFrom(netip.IPv4Unspecified(), 7)
	first, second := &Binding{host: h, at: at}, &Binding{host: h, at: at, shared: true}
	require.True(t, h.bound.enter(first))
	require.False(t, h.bound.enter(second))
	require.NoError(t, first.SetShared())
	require.True(t, h.bound.enter(second))
	require.False(t, first.Alone())
}
