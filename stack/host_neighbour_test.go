package stack

import (
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/stretchr/testify/require"
)

// A frame that a later one displaces, while their neighbour is asked for, is free at once: once the
// neighbour has answered, its table is not looked at before the entry gets old.
func TestDisplacedFramesComeBack(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.ConnsMax = 64 })
	l.listen(l.b, 7, 64)
	l.dials(40)
	l.turns()
	require.Equal(t, uint64(40-16), l.a.counters().Own[DropNeighbourFull])
	l.whole()
	l.until("open", func() bool { return len(l.accepted) == 40 })
}

// A failed neighbour lookup for a closed connection does not end the connection that has its slot
// now.
func TestNeighbourOfAnEarlierConnection(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.ConnsMax = 1 })
	u, _ := l.open() // so that b is known
	u.conn.Abort()
	l.turns()
	first := l.dialTo("10.0.0.9:7")
	c := first.conn
	l.turns()
	c.Abort()
	l.turns()
	require.Equal(t, 1, first.closed)
	l.b.nic.lose = func(f []byte) bool { return !isARP(f) }
	second := l.dial(l.a, l.b, 7)
	l.until("10.0.0.9 is given up", func() bool { return l.a.counters().Own[DropNeighbourLost] > 0 })
	l.turns()
	require.Zero(t, second.closed)
	l.b.nic.lose = nil
	l.until("open", func() bool { return second.opened })
}

// What a Turn did for neighbours counts as work, once each: a request that was due, a frame whose
// neighbour has answered, and one that is given up.
func TestNeighboursWork(t *testing.T) {
	l := newLab(t, nil)
	p := l.a
	l.listen(l.b, 7, 1)
	l.b.nic.lose = every
	u := l.dial(l.a, l.b, 7)
	p.Turn() // asks, and has the SYN wait for the answer
	l.b.Turn()
	require.Zero(t, p.resolve())
	l.now = p.neighbours.Deadline()
	p.now = l.now
	require.Equal(t, 1, p.resolve(), "it asks again")
	l.b.nic.lose = nil
	p.tx.flush(p.now)
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
		p.tx.flush(p.now)
	}
}

// A frame for which the neighbour table has no room is dropped and counted, and its Buf freed.
func TestNeighbourTableFull(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) { cfg.Neighbours.FramesMax = 2 })
	for range 5 {
		l.dialTo("10.0.0.9:7")
	}
	l.turns()
	require.Equal(t, uint64(3), l.a.counters().Own[DropNeighbourFull])
}
