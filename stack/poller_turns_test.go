package stack

import (
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
)

// Another goroutine sees the Turns go on, and stand still while one of them does not end.
func TestTurnsFromOutside(t *testing.T) {
	hang, resume := make(chan struct{}), make(chan struct{})
	stuck := false
	cfg := newLab(t, nil).a.cfg
	cfg.OnTurn = func() int {
		select {
		case <-hang:
			if !stuck {
				stuck = true
				resume <- struct{}{}
				<-resume
			}
		default:
		}
		return 0
	}
	p := must(New(cfg))(t)
	done := make(chan error, 1)
	go func() { done <- p.Run(t.Context()) }()
	for n := p.Turns(); p.Turns() < n+1000; {
		runtime.Gosched()
	}
	close(hang)
	<-resume
	n := p.Turns()
	for range 1000 {
		runtime.Gosched()
		require.Equal(t, n, p.Turns())
	}
	require.False(t, p.Asleep())
	resume <- struct{}{}
	for p.Turns() < n+1000 {
		runtime.Gosched()
	}
	p.Stop()
	require.NoError(t, <-done)
}

// A Turn in which the device takes a frame that it had refused before has work: what follows may
// have an answer. One in which the device refuses it again has none, and its deadline is near.
func TestTurnThatOnlySendsWhatWaitedHasWork(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	l.turns()
	room := 0
	l.a.nic.ring = &room
	u.conn.Abort()
	require.NotZero(t, l.a.Turn(), "a RST is made")
	empty := l.a.counters().EmptyTurns
	require.Zero(t, l.a.Turn(), "it waits")
	require.Equal(t, empty+1, l.a.counters().EmptyTurns)
	require.Equal(t, l.now+retryNs, l.a.Deadline())

	room = 1
	require.Equal(t, 1, l.a.Turn(), "it leaves")
	require.Equal(t, empty+1, l.a.counters().EmptyTurns)
	require.Zero(t, l.a.Turn())
	l.turns()
	require.Equal(t, 1, l.accepted[0].closed)
}
