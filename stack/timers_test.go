package stack

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The oracle is a plain array. Time goes on in steps of all sizes, and
// what is due must come up, in order, and nothing else.
func TestTimersAgainstArray(t *testing.T) {
	r := dice(t)
	const n = 50
	now := time.Now().UnixNano()
	h := newTimers(n, now)
	oracle := make([]int64, n)
	for i := range oracle {
		oracle[i] = math.MaxInt64
	}
	span := func() int64 { return r.Int64N(1 << (r.IntN(56) + 1)) }
	for step := range 8000 {
		switch c := r.IntN(n); r.IntN(5) {
		case 0:
			h.remove(connIndex(c))
			oracle[c] = math.MaxInt64
		case 1, 2:
			at := now + span() - 1000
			if r.IntN(8) == 0 {
				at = math.MaxInt64
			}
			h.arm(connIndex(c), at)
			oracle[c] = at
		default:
			if now > math.MaxInt64/4 {
				break
			}
			now += min(span(), span())
			if at := h.first(); r.IntN(2) == 0 && at != math.MaxInt64 {
				now = max(now, at)
			}
		}
		h.advance(now)
		last := int64(math.MinInt64)
		for c := h.soonest(now); c != noConn; c = h.soonest(now) {
			if h.early(c) {
				continue
			}
			require.LessOrEqual(t, oracle[c], now, "step %d: too soon", step)
			require.GreaterOrEqual(t, oracle[c], last, "step %d: out of order", step)
			last = oracle[c]
			oracle[c] = math.MaxInt64
			h.remove(c)
		}
		first := int64(math.MaxInt64)
		for c, at := range oracle {
			require.Greater(t, at, now, "step %d: %d did not come up", step, c)
			first = min(first, at)
		}
		require.LessOrEqual(t, h.first(), first, "step %d", step)
		require.Greater(t, h.first(), now, "step %d: a time that has passed is none to wait for",
			step)
		for c, at := range oracle {
			require.False(t, at != math.MaxInt64 && h.armed[c].place == placeNone,
				"step %d: %d is nowhere", step, c)
		}
	}
}

// Waiting for first, again and again, leads to a deadline at whatever distance in a few steps.
func TestTimersFirstLeadsThere(t *testing.T) {
	for _, d := range []int64{1, 1 << 20, 40 * ms, 200 * ms, 7200 * second, 25 * 86400 * second} {
		now := 1000 * second
		h := newTimers(1, now)
		h.arm(0, now+d)
		at := now + d
		for range wheelLevels + 1 {
			now = h.first()
			h.advance(now)
			if h.soonest(now) == 0 {
				break
			}
		}
		require.Equal(t, at, now)
	}
}
