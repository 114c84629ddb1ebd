package engine

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// Connections to one peer begin in the order of the calls, each after the one before; those to
// others do not wait for it.
func TestDialsKeepTheirOrder(t *testing.T) {
	var d dials
	here, there := netip.MustParseAddrPort("10.9.0.1:1"), netip.MustParseAddrPort("10.9.0.2:1")
	may := func(begun <-chan struct{}) bool {
		select {
		case <-begun:
			return true
		default:
			return false
		}
	}
	first, next := d.queue(here)
	second, nextAfter := d.queue(here)
	third, last := d.queue(here)
	other, otherNext := d.queue(there)
	require.Equal(t, []bool{true, false, false, true},
		[]bool{may(first), may(second), may(third), may(other)})
	next()
	require.Equal(t, []bool{true, false}, []bool{may(second), may(third)})
	nextAfter()
	require.True(t, may(third))
	last()
	otherNext()
	require.Empty(t, d.last)
	again, next := d.queue(here)
	require.True(t, may(again))
	next()
}
