package stack

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/inet"
)

// Routes that have changed are asked again once it is time, and not before; without a change never.
func TestRerouteIsSeldom(t *testing.T) {
	l := newLab(t, nil)
	h := &l.a.host
	for _, tc := range []struct {
		late bool
		at   int64 // from now
		want bool
	}{{true, 1, false}, {true, 0, true}, {true, -1, true}, {false, -1, false}, {false, 1, false}} {
		h.routesLate, h.rerouteAt = tc.late, l.a.now+tc.at
		before := h.rerouteAt
		work := l.a.housekeep()
		require.Equal(t, tc.want, work > 0, "%+v", tc)
		require.Equal(t, tc.late && !tc.want, h.routesLate)
		require.Equal(t, tc.want, h.rerouteAt == l.a.now+rerouteNs && h.rerouteAt != before)
	}
}

// A learned route that has outlived its time has the connections look at the routes again.
func TestRouteThatExpires(t *testing.T) {
	l := newLab(t, sixes)
	p := l.a
	gateway := inet.AddrFrom(addr6(1))
	require.True(t, p.host.routes.Learn(p.now, inet.AddrFrom(addr6(9)), 128, gateway, p.now+1))
	p.host.rerouteAt = p.now
	p.housekeep()
	require.Equal(t, p.now, p.host.rerouteAt, "it is still good")
	p.now++
	require.NotZero(t, p.housekeep())
	require.Equal(t, p.now+rerouteNs, p.host.rerouteAt)
}
