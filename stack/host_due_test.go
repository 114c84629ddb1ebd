package stack

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

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
