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
	p, err := New(cfg)
	require.NoError(t, err)
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
