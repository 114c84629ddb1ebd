package stack

import (
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/stretchr/testify/require"
)

// Both ends of DPDK's net_tap have one MAC: what comes from it is not always an echo.
func TestBothEndsHaveOneMAC(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		claiming(i, cfg)
		cfg.MAC = inet.MAC{2, 0, 0, 0, 0, 1}
	})
	l.pass(20 * second)
	l.open()
	u := l.dialAt(l.a, netip.AddrPortFrom(addr6(1), 9))
	l.until("refused", func() bool { return u.closed == 1 })
	require.ErrorIs(t, u.err, ErrRefused)
}
