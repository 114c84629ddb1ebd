package transport

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// What counts as one address.
func TestAddressOf(t *testing.T) {
	for in, want := range map[string]string{
		"10.9.0.1": "10.9.0.1", "::ffff:10.9.0.1": "10.9.0.1", "fd00:1:2:3:4::5": "fd00:1:2:3::", "fe80::1%eth0": "fe80::",
	} {
		require.Equal(t, netip.MustParseAddr(want), addressOf(netip.MustParseAddr(in)), in)
	}
}
