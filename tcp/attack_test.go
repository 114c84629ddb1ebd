package tcp

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a hostile peer can make one connection do: work per segment, counted in steps, and how long
// it can be kept.

// sackSteps is how many records SACK options made a Conn look at while f ran.
func (s *script) sackSteps(f func()) int {
	before := s.c.mem.Stats().SACKSteps
	f()
	return int(s.c.mem.Stats().SACKSteps - before)
}

// inFlight has n segments of 1000 octets sent and not acknowledged.
func flying(t *testing.T, n int) *script {
	t.Helper()
	cfg := sackOnly()
	cfg.SentMax, cfg.InitialWindow = powerOfTwo(n+splitReserve+1), n
	cfg.ReceiveWindow = 1 << 20
	cfg.NoWindowScale = false
	s := accepted(t, cfg, "sackOK wscale 7")
	s.in(". 1 ack 1 win 60000")
	require.Equal(t, n, s.fill())
	s.sent()
	return s
}

// A peer that has SACKed all but the first segment says so again for ever, in blocks that never are
// the same as those before: each costs a step or two, not a walk over the ring.
func TestSACKFloodCostsNoWalk(t *testing.T) {
	const n, acks = 1000, 2000
	r := rand.New(rand.NewPCG(1, 1))
	patterns := map[string]func(i int) string{
		"the same": func(int) string { return "sack 1001:1000001" },
		"alternating": func(i int) string {
			return []string{"sack 1001:1000001", "sack 5001:6001"}[i&1]
		},
		"shrinking": func(i int) string {
			return fmt.Sprintf("sack %d:%d", 1001+1000*(i%400), 1000001-1000*(i%400))
		},
		"four times all": func(int) string {
			return "sack 1001:1000001,1001:999001,2001:1000001,2001:999001"
		},
		"growing to left": func(i int) string {
			return fmt.Sprintf("sack %d:1000001", 999001-1000*(i%998))
		},
		"anywhere": func(int) string {
			a, b := 1+r.IntN(499), 500+r.IntN(500)
			return fmt.Sprintf("sack %d:%d,%d:%d", 1+1000*a, 1+1000*b, 1+1000*(a/2+1), 1+1000*(b-1))
		},
	}
	for name, pattern := range patterns {
		s := flying(t, n)
		blocks := 0
		steps := s.sackSteps(func() {
			for i := range acks {
				s.in(". 1 ack 1 win 60000 " + pattern(i))
				s.drain()
				s.sent()
				blocks += strings.Count(pattern(i), ":")
			}
		})
		require.LessOrEqual(t, steps, n+3*blocks, name)
	}
}

// Every second segment first, then the rest, is what makes most runs; they join, and the walk stays
// short.
func TestSACKOfEverySecondSegment(t *testing.T) {
	const n = 1000
	s := flying(t, n)
	acks := 0
	steps := s.sackSteps(func() {
		for _, first := range []int{1, 2} {
			for i := first; i < n-1; i += 2 {
				s.in(fmt.Sprintf(". 1 ack 1 win 60000 sack %d:%d", 1+1000*i, 1001+1000*i))
				s.drain()
				s.sent()
				acks++
			}
		}
		for i := n - 2; i > 0; i-- { // over all runs, from further and further left
			s.in(fmt.Sprintf(". 1 ack 1 win 60000 sack %d:%d", 1+1000*i, 1001+1000*(n-2)))
			acks++
		}
	})
	require.LessOrEqual(t, steps, 6*acks)
}
