package linksim

import (
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"

	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/assert"
)

// jitters are distributions of how much longer a segment takes; j is their scale.
var jitters = []struct {
	name string
	of   func(j float64) func(*rand.Rand) int64
}{
	{"uniform", func(j float64) func(*rand.Rand) int64 {
		return func(r *rand.Rand) int64 { return int64(r.Float64() * j) }
	}},
	{"exponential", func(j float64) func(*rand.Rand) int64 {
		return func(r *rand.Rand) int64 { return int64(r.ExpFloat64() * j / 2) }
	}},
	// a heavy tail: its variance has no bound but 20 j
	{"Pareto, 1.5", func(j float64) func(*rand.Rand) int64 {
		return func(r *rand.Rand) int64 {
			return int64(min(j/10*(math.Pow(1-r.Float64(), -1/1.5)-1), 20*j))
		}
	}},
	{"two paths", func(j float64) func(*rand.Rand) int64 {
		return func(r *rand.Rand) int64 { return int64(r.IntN(2)) * int64(j) }
	}},
	{"pauses", func(j float64) func(*rand.Rand) int64 { // of a scheduler, or of a radio
		return func(r *rand.Rand) int64 {
			if r.IntN(500) == 0 {
				return int64(4 * j)
			}
			return 0
		}
	}},
}

// spurious is what a sender does on a path that loses nothing.
type spurious struct{ sent, resent, recoveries, timeouts, probes uint64 }

func (s *spurious) add(r *Result) {
	s.sent += r.Link.Sent
	s.resent += r.Sender.Retransmits
	s.recoveries += r.Sender.FastRetransmits
	s.timeouts += r.Sender.Timeouts
	s.probes += r.Sender.LossProbes
}

func (s *spurious) String() string {
	percent := func(n uint64) string { return fmt.Sprintf("%.3f", 100*float64(n)/float64(s.sent)) }
	return fmt.Sprintf("%d | %s | %d | %s | %s", s.sent, percent(s.resent), s.recoveries,
		percent(s.probes), percent(s.timeouts))
}

// jittery runs transfers over a path of rttNs that loses nothing: without end, and in messages of
// one and of ten segments, and adds what its sender did to s.
func (s *spurious) jittery(j func(*rand.Rand) int64, rttNs int64, inOrder bool, seed uint64) {
	cfg := tcp.Config{NoDelay: true, ReceiveWindow: 150_000}
	for _, message := range []int{0, 1448, 14480} {
		l := Link{BitsPerSecond: 1e9, RTTNs: rttNs, Jitter: j, InOrder: inOrder, Message: message,
			Overhead: overhead, QueueMax: 1 << 30, Seed: seed}
		r := Transfer(l, cfg, cfg, max(300*rttNs, 300*ms))
		s.add(&r)
	}
}

// Jitter is not taken for loss, whatever its distribution, by more than now and then: the
// reordering timer of a quarter of the round trip, the probe's of two and the RTO are late
// enough. docs/results/congestion.md has the numbers, and what they would be with the timers that
// Linux adds to.
//
// req: 8985-6.2-5, 8985-6.2-8, 8985-7.2-1, 6298-2-4
func TestJitterIsNotLoss(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	var table strings.Builder
	for _, inOrder := range []bool{true, false} {
		for _, j := range jitters {
			var all spurious
			for _, rtt := range []float64{0.1, 1, 10, 100} {
				for _, share := range []float64{0.25, 1} {
					all.jittery(j.of(share*rtt*ms), int64(rtt*ms), inOrder, r.Uint64())
				}
			}
			fmt.Fprintf(&table, "| %s | %v | %v |\n", j.name, inOrder, &all)
			assert.False(t, all.resent*150 > all.sent || all.probes*700 > all.sent ||
				all.timeouts*5000 > all.sent, "%s, in order %v: %+v", j.name, inOrder, all)
		}
	}
	t.Logf("jitter, in order, segments, sent again in %%, recoveries, probes in %%, timeouts "+
		"in %%:\n%s", table.String())
}

// On a long path with little jitter RTTVAR tends to nothing. What takes longer for once, by less
// than the least RTO or a round trip, is not sent again, whether there is one segment or a window
// of them.
//
// req: 6298-2-4, 8985-7.2-1
func TestLongPathWithAPause(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	cfg := tcp.Config{NoDelay: true, ReceiveWindow: 150_000}
	for _, rttMs := range []int64{50, 100, 150, 190, 400} {
		for _, message := range []int{0, 1448, 14480} {
			pause := min(rttMs, 150) * ms
			l := Link{BitsPerSecond: 1e9, RTTNs: rttMs * ms, InOrder: true, Message: message,
				Overhead: overhead, QueueMax: 1 << 30, Seed: seed,
				Jitter: func(r *rand.Rand) int64 {
					if r.IntN(200) == 0 {
						return r.Int64N(pause)
					}
					return 0
				}}
			r := Transfer(l, cfg, cfg, 2000*rttMs*ms)
			if s := &r.Sender; s.Timeouts > 0 || s.Retransmits*2000 > r.Link.Sent {
				t.Errorf("%d ms, messages of %d: of %d segments %d sent again, %d probes, %d timeouts",
					rttMs, message, r.Link.Sent, s.Retransmits, s.LossProbes, s.Timeouts)
			}
		}
	}
}
