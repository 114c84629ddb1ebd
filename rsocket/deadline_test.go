package rsocket

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// A deadline that was moved passes when the last one has it, and not at all when there is none any
// more; one that is moved while its timer is at work already has not passed.
func TestDeadlineMoves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := &Conn{}
		c.changed = sync.NewCond(&c.mu)
		at := func(d time.Duration) time.Time { return time.Now().Add(d) }
		passed := func() [2]bool {
			synctest.Wait()
			c.mu.Lock()
			defer c.mu.Unlock()
			return [2]bool{c.readDeadline.passed, c.writeDeadline.passed}
		}
		require.NoError(t, c.SetDeadline(at(time.Second)))
		require.NoError(t, c.SetReadDeadline(time.Time{}))
		require.NoError(t, c.SetWriteDeadline(at(3*time.Second)))
		<-time.After(2 * time.Second)
		require.Equal(t, [2]bool{}, passed())
		<-time.After(time.Second)
		require.Equal(t, [2]bool{false, true}, passed())
		require.NoError(t, c.SetReadDeadline(at(-1)))
		require.Equal(t, [2]bool{true, true}, passed())
		require.NoError(t, c.SetDeadline(at(time.Second)))
		require.Equal(t, [2]bool{}, passed())

		c.mu.Lock()
		<-time.After(time.Second) // both timers wait for mu, or will
		c.set(&c.readDeadline, at(time.Second))
		c.set(&c.writeDeadline, time.Time{})
		c.mu.Unlock()
		require.Equal(t, [2]bool{}, passed())
		<-time.After(time.Second)
		require.Equal(t, [2]bool{true, false}, passed())
	})
}
