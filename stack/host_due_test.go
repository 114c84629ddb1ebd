package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
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
