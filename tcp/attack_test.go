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

// ACKs of what was never sent, of what is too old, and D-SACKs of whatever, move nothing: neither
// SND.UNA nor cwnd.
//
// req: 5961-5.2-1
func TestLyingACKs(t *testing.T) {
	s := flying(t, 100)
	s.in(". 1 ack 1001 win 60000") // the window is known, and something is acknowledged
	s.drain()
	s.sent()
	before := s.c.Stats()
	for i := range 1000 {
		s.in(fmt.Sprintf(". 1 ack %d win 60000", 100_001+1000*(i+1))) // optimistic
		s.wantDrop(DropAckUnsent)
		s.in(fmt.Sprintf(". 1 ack %d win 60000", -9_000_000-i))
		s.wantDrop(DropAckUnsent)
		s.in(fmt.Sprintf(". 1 ack 1001 win 60000 sack %d:%d", 1, 1001)) // a duplicate that never was
		s.drain()
	}
	after := s.c.Stats()
	require.Equal(t, before.Cwnd, after.Cwnd)
	require.Equal(t, before.Flight, after.Flight)
	require.Equal(t, before.Retransmits, after.Retransmits)
	require.LessOrEqual(t, len(s.sent()), 10)
}

// Dividing an ACK into one per octet gains no more window than one for all: octets are counted (RFC
// 3465).
func TestACKDivision(t *testing.T) {
	grown := func(step int) int {
		s := flying(t, 10)
		for at := step; at <= 2000; at += step {
			s.in(fmt.Sprintf(". 1 ack %d win 60000", 1+at))
			s.drain()
		}
		return s.c.Stats().Cwnd
	}
	if one, all := grown(1), grown(2000); one > all {
		t.Errorf("cwnd %d after an ACK per octet, %d after one for all", one, all)
	}
}

// A window that was closed for ever keeps a connection for as long as somebody has it (RFC 9293
// section 3.8.6.1), and not when nobody has any more: R2 counts then.
func TestOrphanWithAClosedWindow(t *testing.T) {
	for _, orphaned := range []bool{false, true} {
		s := accepted(t, plain(), "")
		s.push(1000)
		s.in(". 1 ack 1001 win 0")
		s.push(500)
		s.c.CloseSend(s.now)
		if orphaned {
			s.c.SetOrphaned(s.now)
		}
		for range 400 { // seconds; the peer answers every probe
			s.advance(sc)
			if s.c.State() == Closed {
				break
			}
			for range s.sent() {
				s.in(". 1 ack 1001 win 0")
			}
		}
		if closed := s.c.State() == Closed; closed != orphaned {
			t.Errorf("orphaned %v: %v", orphaned, s.c.State())
		}
		require.False(t, orphaned && s.now-1000*sc > 110*sc)
	}
}

// A peer that acknowledges all but the FIN is given up after the user timeout.
func TestFINThatIsNeverAcknowledged(t *testing.T) {
	cfg := plain()
	cfg.UserTimeoutNs = 100 * sc
	s := accepted(t, cfg, "")
	s.push(1000)
	s.c.CloseSend(s.now)
	s.drain()
	for range 200 {
		s.advance(sc)
		s.in(". 1 ack 1001")
		s.sent()
		if s.c.State() == Closed {
			break
		}
	}
	s.wantState(Closed)
	require.LessOrEqual(t, s.now-1000*sc, 110*sc)
}

// A peer that takes its window back gets nothing sent beyond what it shrank to, and the connection
// goes on when it grows.
func TestWindowShrinker(t *testing.T) {
	s := accepted(t, plain(), "")
	for at, i := 0, 0; i < 50; i++ {
		s.in(fmt.Sprintf(". 1 ack %d win 10000", 1+at))
		for roomOf(s.c, s.now) > 0 && s.c.Stats().Flight < 5000 {
			s.push(1000)
		}
		flight := s.c.Stats().Flight
		s.sent()
		s.in(fmt.Sprintf(". 1 ack %d win 1500", 1+at))
		require.Zero(t, s.fill())
		at += flight
	}
	s.wantState(Established)
}

// Segments of an octet, every second one only, cost RangesMax spans and not one more; each is
// answered, none is kept twice.
func TestTinyIslands(t *testing.T) {
	cfg := sackOnly()
	s := accepted(t, cfg, "sackOK")
	taken := 0
	for i := range 5000 {
		s.in(fmt.Sprintf("P. %d:%d ack 1", 3+2*i, 4+2*i))
		taken += s.last.Len
		s.drain()
	}
	require.Equal(t, 64, taken)
	require.Len(t, s.c.held.spans, 64)
	s.wantDrop(DropRangesFull)
	s.in("P. 1:3 ack 1") // what is in order is taken still
	s.wantArrival(0, 2)
}
