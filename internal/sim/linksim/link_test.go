package linksim

import (
	"testing"

	"github.com/rnicd/rnicd/internal/cc"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

const ms = 1_000_000

func reno() tcp.Config {
	return tcp.Config{ReceiveWindow: 1<<30 - 1, SentMax: 1 << 18, RangesMax: 1 << 12, NoDelay: true,
		Congestion: cc.NewReno{}}
}

func TestNoAllocationPerSegment(t *testing.T) {
	l := Link{BitsPerSecond: 1e9, RTTNs: ms, Loss: 0.001, Late: 0.02, LateMaxNs: ms / 4, Overhead: 90,
		QueueMax: 125_000, Seed: 1}
	x := newTransfer(l, reno(), reno())
	end := x.now + 500*ms
	for x.step(end) {
	}
	require.Zero(t, testing.AllocsPerRun(20, func() {
		for end += ms; x.step(end); {
		}
	}))
	require.NotZero(t, x.counts.Lost*x.counts.Late, "%+v", x.counts)
}

// What the link says it does: one segment per its time, the delay, the queue.
func TestLink(t *testing.T) {
	l := Link{BitsPerSecond: 1e9, RTTNs: 10 * ms, Overhead: 90, QueueMax: 10 << 20, Seed: 1}
	r := Transfer(l, reno(), reno(), 1000*ms)
	require.Zero(t, r.Link.Overflowed+r.Link.Lost+r.Link.Late+r.Link.Marked, "%+v", r.Link)
	most := 1000 * 1448 / 1538.
	require.InDelta(t, 0.95*most, r.Goodput(1000*ms), 0.05*most)
	require.InDelta(t, 10*ms+10_000, r.Sender.MinRTTNs, 10_000)
	l.QueueMax = 10_000
	r = Transfer(l, reno(), reno(), 1000*ms)
	require.NotZero(t, r.Link.Overflowed)
	require.Equal(t, r.Link.Overflowed, r.Sender.Retransmits)
}

// Both ends look at the link once per round trip: a whole window arrives at once, is acknowledged
// at once, and its acknowledgments are taken in before anything is sent. Reductions must not be of
// what such a burst leaves in flight.
//
// req: 5681-3.2-5
func TestWholeWindowsAtOnce(t *testing.T) {
	l := Link{BitsPerSecond: 1e10, RTTNs: ms, Loss: 0.001, Overhead: 90, QueueMax: 1_250_000, Seed: 1}
	const ns = 2000 * ms
	smooth := Transfer(l, reno(), reno(), ns)
	l.TurnNs = ms / 2
	bursts := Transfer(l, reno(), reno(), ns)
	// the round trip is two turns now
	require.GreaterOrEqual(t, bursts.Goodput(ns), 0.5*smooth.Goodput(ns))
}

// A receiver that acknowledges what has come in 50 microseconds with one ACK does not slow slow
// start down. (A paced sender is about a round trip later, bursts or not.)
func TestSlowStartInBursts(t *testing.T) {
	l := Link{BitsPerSecond: 1e10, RTTNs: 100 * ms, Overhead: 90, QueueMax: 125_000_000, Seed: 1,
		TurnNs: 50_000}
	const ns = 1800 * ms
	smooth := l
	smooth.TurnNs = 0
	without := Transfer(smooth, reno(), reno(), ns)
	for pacing, part := range sample.Map(t, 1, map[bool]float64{false: 0.7, true: 0.3}) {
		cfg := reno()
		cfg.Pacing = pacing
		r := Transfer(l, cfg, reno(), ns)
		require.GreaterOrEqual(t, r.Goodput(ns), part*without.Goodput(ns), "pacing %v", pacing)
	}
}

// A window lets through what it holds in each round trip: the default 1 MiB, and any other that is
// wanted.
//
// req: DDP-13.1-2
func TestGoodputFollowsTheWindow(t *testing.T) {
	l := Link{BitsPerSecond: 1e10, RTTNs: 100 * ms, Overhead: 90, QueueMax: 10 << 20, Seed: 1}
	for _, window := range []int{0, 1 << 17, 1 << 21} {
		to := reno()
		to.ReceiveWindow = window
		if window == 0 {
			window = 1 << 20
		}
		const ns = 5000 * ms
		r := Transfer(l, reno(), to, ns)
		want := float64(window) * 8000 / (100 * ms)
		require.InDelta(t, 0.935*want, r.Goodput(ns), 0.085*want, "window of %d", window)
	}
}
