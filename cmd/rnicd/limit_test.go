package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// lockedBuffer is written by timers, too.
type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// take is what was written since the last time.
func (l *lockedBuffer) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	defer l.b.Reset()
	return l.b.String()
}

// Ten thousand connections of an unproven peer cost as many lines as are printed at once, one more
// for each second, and one that counts the others; refusals are told of meanwhile. The end loses
// nothing.
func TestFailuresAreLimited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b lockedBuffer
		out := newOutput(&b)
		peer := netip.MustParseAddrPort("10.9.0.2:1000")
		text := func() (lines []string) {
			synctest.Wait()
			return strings.Split(strings.TrimSpace(b.take()), "\n")
		}
		for i := range 10_000 {
			out.failed(peer, fmt.Errorf("no. %d", i))
		}
		out.refused(peer, "too large")
		got := text()
		require.Len(t, got, linesMax+1)
		require.Equal(t, "failed      10.9.0.2:1000: no. 63", got[linesMax-1])
		require.Equal(t, "refused     10.9.0.2:1000: too large", got[linesMax])

		<-time.After(morePeriod)
		require.Equal(t, []string{"and 9936 more like it, of which the last: failed      " +
			"10.9.0.2:1000: no. 9999"}, text())

		for range 100 { // ten have been earned meanwhile
			out.failed(peer, errors.New("again"))
		}
		require.Len(t, text(), int(morePeriod/linesEvery))
		out.settle()
		require.Equal(t, []string{"and 90 more like it, of which the last: failed      " +
			"10.9.0.2:1000: again"}, text())

		<-time.After(time.Hour) // and never more than linesMax
		for range 100 {
			out.failed(peer, errors.New("later"))
		}
		require.Len(t, text(), linesMax)
		out.settle()
	})
}
