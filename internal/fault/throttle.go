package fault

import (
	"math"
	"math/rand/v2"

	"github.com/rnicd/rnicd/mem"
)

// throttle is a slow device: it takes, or gives, frames at a rate, so many a call, and stands still
// at times. What it does not take stays the caller's, what it does not give stays in the device:
// nothing is lost.
type throttle struct {
	free    int64 // when all it has taken has left at its rate
	still   int64 // until when it stands still
	refused int64 // when what it refused last may pass; 0: it refused nothing
	rng     *rand.Rand
}

// rateAhead is how many nanoseconds' worth of frames the device takes before they have left: so
// little that its caller's queue, and not this one, is what fills.
const rateAhead = 10_000

// wireOverhead is what a frame takes of the link besides its octets: check sequence, preamble, gap.
const wireOverhead = 24

// room is how many of n frames may pass now, whose octets length says. It rolls for a stall when
// one may: asking again of a device that takes none keeps it still no longer.
func (t *throttle) room(f *Faults, now int64, n int, length func(i int) int, c *Counters) int {
	t.refused = 0
	if n == 0 || f.Rate == 0 && f.FrameRate == 0 && f.PerCall == 0 && f.Stall == 0 {
		return n
	}
	most := n
	if f.PerCall > 0 {
		most = min(most, f.PerCall)
	}
	if now < t.still {
		t.refused = t.still
		c.Refused++
		return 0
	}
	for i, free := 0, max(t.free, now); i < most; i++ {
		if free > now+rateAhead {
			most = i
			t.refused = free - rateAhead
			break
		}
		free += f.cost(length(i))
	}
	if most > 0 && f.Stall > 0 && t.rng.Float64() < f.Stall {
		t.still = now + t.rng.Int64N(f.StallFor) + 1
		t.refused = t.still
		c.Stalls++
		most = 0
	}
	if most < n {
		c.Refused++
		t.refused = max(t.refused, now+1)
	}
	return most
}

// passed takes note of a frame of so many octets that has passed.
func (t *throttle) passed(f *Faults, now int64, octets int) {
	t.free = max(t.free, now) + f.cost(octets)
}

// cost is how many nanoseconds a frame of so many octets takes.
func (f *Faults) cost(octets int) int64 {
	ns := 0.0
	if f.Rate > 0 {
		ns = float64(octets+wireOverhead) * 8e9 / float64(f.Rate)
	}
	if f.FrameRate > 0 {
		ns = max(ns, 1e9/float64(f.FrameRate))
	}
	return int64(ns)
}

// deadline is when frames that were refused may pass, in case nobody asks before.
func (t *throttle) deadline() int64 {
	if t.refused == 0 {
		return math.MaxInt64
	}
	return t.refused
}

// txRoom is room for frames to be sent.
func (q *Queue) txRoom(now int64, bufs []mem.Buf) int {
	return q.tx.slow.room(&q.tx.faults, now, len(bufs), func(i int) int {
		return int(q.pool.Desc(bufs[i]).Len)
	}, &q.tx.counters)
}

// rxRoom is how many of n frames may be received. How long they are is not known before: each
// counts as a small one, and what they are more delays the next.
func (q *Queue) rxRoom(now int64, n int) int {
	return q.rx.slow.room(&q.rx.faults, now, n, func(int) int { return rxGuess }, &q.rx.counters)
}

// rxGuess is the least frame of Ethernet, without its check sequence.
const rxGuess = 60
