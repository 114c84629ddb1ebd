package daemon

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/daemon/config"
)

// So many clients wait for a place, each of which is woken for each place that becomes free;
// further ones hear at once that there is none. Who waits gets the place.
func TestFewWaitForAPlace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Service{
			cfg: config.Service{Connections: 1}, counts: &counts{},
			ctx:    context.Background(),
			active: map[*Connection]struct{}{}, peers: map[netip.Prefix]int{}, idle: make(chan struct{}),
			vacated: make(chan struct{}),
		}
		on, from := &Port{Name: "cable"}, netip.MustParseAddrPort("10.9.0.1:1")
		first, _, _ := s.await(on, from)
		require.NotNil(t, first)
		var waiters sync.WaitGroup
		got := make(chan *Connection, waitingMax)
		for range waitingMax {
			waiters.Go(func() {
				c, _, _ := s.await(on, from)
				got <- c
			})
		}
		synctest.Wait()
		before := time.Now()
		for range 100 {
			c, why, current := s.await(on, from)
			require.Nil(t, c)
			require.NotEmpty(t, why.text)
			require.True(t, current)
		}
		require.Zero(t, time.Since(before), "it has waited")

		s.end(first)
		require.NotNil(t, <-got)
		waiters.Wait()
		close(got)
		for c := range got {
			require.Nil(t, c)
		}
		_, why, _ := s.await(on, from) // it may wait again
		require.NotEmpty(t, why.text)
		require.GreaterOrEqual(t, time.Since(before), 2*placeWait)
	})
}
