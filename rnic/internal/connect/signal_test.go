package connect

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestSignal(t *testing.T) {
	var s Signal
	require.False(t, s.Given())
	ch := s.C()
	require.Equal(t, ch, s.C(), "one channel for all")
	select {
	case <-ch:
		t.Error("closed before it was given")
	default:
	}
	s.Give()
	s.Give()
	require.True(t, s.Given())
	<-ch
	<-s.C()
	var unasked Signal
	unasked.Give()
	<-unasked.C()
	fresh := make([]Signal, 11)
	require.Zero(t, testing.AllocsPerRun(len(fresh)-1, func() {
		fresh[0].Give()
		<-fresh[0].C()
		fresh = fresh[1:]
	}))
}

// All who ask while it is given hear of it.
func TestSignalConcurrently(t *testing.T) {
	for range 1000 {
		var s Signal
		var all sync.WaitGroup
		for range 3 {
			all.Go(func() { <-s.C() })
		}
		all.Go(s.Give)
		all.Wait()
	}
}
