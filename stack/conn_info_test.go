package stack

import (
	"context"
	"errors"
	"testing"

	"github.com/stretchr/testify/require"
)

// crowded is a Poller with so many connections in slots that are far apart.
func crowded(t *testing.T, slots, n int) *Poller {
	l := newLab(t, func(_ int, cfg *Config) { cfg.ConnsMax = slots })
	p := l.a.Poller
	for i := range n {
		p.slab.conns[i*(slots/n)].phase = phaseLingering
	}
	t.Cleanup(func() {
		for i := range p.slab.conns {
			p.slab.conns[i].phase = phaseFree
		}
	})
	return p
}

// Looking at all connections visits each once, and no more in a Turn than a Turn has time for, even
// if several steps of it come in one Turn.
func TestEachConnIsBoundedByTurn(t *testing.T) {
	for _, tc := range []struct{ slots, n, turns int }{{600, 600, 5}, {8192, 8, 8}, {4096, 2048, 17}} {
		p := crowded(t, tc.slots, tc.n)
		seen := map[connIndex]int{}
		inTurn := 0
		w := &visitor{p: p, visit: func(c *Conn) {
			seen[c.index]++
			inTurn++
		}, stepped: make(chan struct{}, 2)}
		turns := 0
		for !w.done {
			inTurn = 0
			require.NoError(t, p.Submit(w.step))
			require.NoError(t, p.Submit(w.step))
			p.Turn()
			<-w.stepped
			<-w.stepped
			require.LessOrEqual(t, inTurn, eachVisits)
			turns++
		}
		require.Equal(t, tc.turns, turns)
		require.Len(t, seen, tc.n)
		for _, n := range seen {
			require.Equal(t, 1, n)
		}
	}
}

// EachConn hands what was collected to its caller between Turns, ends with ctx and with its
// caller's error, and visits nothing afterwards; of a Poller that has stopped it visits nothing.
func TestEachConn(t *testing.T) {
	p := crowded(t, 512, 300)
	ctx, cancel := context.WithCancel(context.Background())
	over := make(chan struct{})
	turned := make(chan struct{})
	go func() {
		defer close(turned)
		for {
			select {
			case <-over:
				return
			default:
				p.Turn()
			}
		}
	}()
	var batch, all int
	var batches []int
	between := func() error {
		batches = append(batches, batch)
		all, batch = all+batch, 0
		return nil
	}
	require.NoError(t, p.EachConn(ctx, func(*Conn) { batch++ }, between))
	require.Equal(t, 300, all)
	require.Greater(t, len(batches), 2)
	full := errors.New("full")
	require.ErrorIs(t, p.EachConn(ctx, func(*Conn) { batch++ }, func() error { return full }), full)
	require.Equal(t, eachVisits, batch)
	close(over)
	<-turned

	visited := false
	asked := make(chan error)
	go func() {
		asked <- p.EachConn(ctx, func(*Conn) { visited = true }, func() error { return nil })
	}()
	cancel()
	require.ErrorIs(t, <-asked, context.Canceled)
	p.Turn()
	require.False(t, visited)
	p.Stop()
	for i := range p.slab.conns {
		p.slab.conns[i].phase = phaseFree
	}
	p.Turn()
	require.NoError(t, p.EachConn(context.Background(), func(*Conn) {
		visited = true
	}, func() error { return nil }))
	require.False(t, visited)
}

// What is told of a connection is what it is.
func TestConnInfo(t *testing.T) {
	_, u, _ := newLab(t, nil).opened()
	var i ConnInfo
	u.conn.Info(&i)
	require.Equal(t, "ESTABLISHED", i.State)
	require.Equal(t, "Open", i.Recovery)
	require.Equal(t, u.conn.Remote(), i.Remote)
	require.NotZero(t, i.TCP.SegsIn)
	require.Same(t, u, u.conn.Upper())
}
