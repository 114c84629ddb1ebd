package connect

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// A peer is an IPv4 address, however it is written, or one /64 of IPv6.
func TestPeerKey(t *testing.T) {
	key := func(a string) uint64 { return peerKey(netip.MustParseAddr(a)) }
	require.Equal(t, key("10.9.0.1"), key("::ffff:10.9.0.1"))
	require.NotEqual(t, key("10.9.0.1"), key("10.9.0.2"))
	require.Equal(t, key("fd09::1"), key("fd09::2:0:0:1"))
	require.NotEqual(t, key("fd09::1"), key("fd09:0:0:1::1"))
	require.Zero(t, peerKey(netip.Addr{}))
}
