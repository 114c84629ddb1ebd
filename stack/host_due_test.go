package stack

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
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

// What a Turn did for neighbours counts as work, once each: a request that was due, a frame whose
// neighbour has answered, and one that is given up.
func TestNeighboursWork(t *testing.T) {
	l := newLab(t, nil)
	p := l.a
	l.listen(l.b, 7, 1)
	l.b.nic.lose = func([]byte) bool { return true }
	u := l.dial(l.a, l.b, 7)
	p.Turn() // asks, and has the SYN wait for the answer
	l.b.Turn()
	require.Zero(t, p.resolve())
	l.now = p.neighbours.Deadline()
	p.now = l.now
	require.Equal(t, 1, p.resolve(), "it asks again")
	l.b.nic.lose = nil
	p.flush()
	l.b.Turn()
	p.receive()
	require.Equal(t, 1, p.resolve(), "the SYN leaves")
	l.until("open", func() bool { return u.opened })

	l.dial(l.a, &host{addr: inet.AddrFrom4([4]byte{10, 0, 0, 77}).Netip()}, 7)
	p.Turn()
	for p.counters().Own[DropNeighbourLost] == 0 {
		l.now = p.neighbours.Deadline()
		p.now = l.now
		require.Equal(t, 1, p.resolve())
		p.flush()
	}
	l.stop()
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
