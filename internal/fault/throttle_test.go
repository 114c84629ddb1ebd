package fault

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/pmd/wire"
)

// slowly has a queue pass frames for so long, a call each 5 us, and returns how many.
func slowly(t *testing.T, r *rig, tx bool, ns int64) (frames int) {
	t.Helper()
	next := int(r.next)
	for end := r.now + ns; r.now < end; r.now += 5_000 {
		var got []int
		if tx {
			r.send(16)
			r.q.Rx(nil)
			got = r.sent()
		} else {
			if int(r.next)-next < 64 {
				r.incoming(16)
			}
			got = r.received()
		}
		for _, n := range got {
			require.Equal(t, next, n, "lost, or out of order")
			next++
		}
		frames += len(got)
	}
	return frames
}

// A slow device passes frames at its rate, in order, and loses none: a rate of the link, of frames,
// or so many a call.
func TestSlow(t *testing.T) {
	const ms100 = 100_000_000
	frameBits := float64((frameLen + wireOverhead) * 8)
	for name, x := range map[string]struct {
		f    Faults
		want float64 // frames in 100 ms
	}{
		"10 Mbit":       {Faults{Rate: 10_000_000}, 1e6 / frameBits},
		"500 Mbit":      {Faults{Rate: 500_000_000}, 50e6 / frameBits},
		"20k frames":    {Faults{FrameRate: 20_000}, 2000},
		"the slower":    {Faults{FrameRate: 20_000, Rate: 1_000_000}, 1e5 / frameBits},
		"two at a time": {Faults{PerCall: 2}, 2 * ms100 / 5_000},
	} {
		for _, tx := range []bool{true, false} {
			if !tx && x.f.PerCall > 0 {
				continue // drain calls until there is none
			}
			t.Run(name, func(t *testing.T) {
				r := newRig(t, Spec{Rx: x.f, Tx: x.f}, wire.Config{})
				require.InEpsilon(t, x.want, slowly(t, r, tx, ms100), 0.06)
				rx, sent := r.q.Faults()
				require.Positive(t, rx.Refused+sent.Refused)
				require.Zero(t, rx.Dropped+sent.Dropped+sent.HoldFull+sent.NoBuf)
			})
		}
	}
	r := newRig(t, Spec{Rx: Faults{PerCall: 3}}, wire.Config{})
	r.incoming(10)
	bufs := r.frames(r.pool, 8)
	r.pool.FreeN(bufs)
	require.Equal(t, 3, r.q.Rx(bufs))
	r.pool.FreeN(bufs[:3])
}

// A device that stands still says until when, and passes everything afterwards. Its stalls follow
// from the seed, and take nothing of what other faults draw.
func TestStall(t *testing.T) {
	f := Faults{Stall: 0.01, StallFor: 3_000_000}
	longest := func(seed uint64) (most int64, stalls uint64) {
		r := newRig(t, Spec{Seed: seed, Tx: f}, wire.Config{})
		last := int64(0)
		for ; r.now < 500_000_000; r.now += 5_000 {
			if r.send(1) == 1 {
				most, last = max(most, r.now-last), r.now
			} else if r.now-last > 10_000 {
				require.Greater(t, r.q.Deadline(), r.now)
				require.LessOrEqual(t, r.q.Deadline(), r.now+f.StallFor)
			}
			r.sent()
		}
		_, tx := r.q.Faults()
		require.Zero(t, tx.Dropped)
		return most, tx.Stalls
	}
	most, stalls := longest(1)
	require.Greater(t, most, f.StallFor*8/10)
	require.LessOrEqual(t, most, 2*f.StallFor)
	require.Greater(t, stalls, uint64(50))
	again, _ := longest(1)
	require.Equal(t, most, again)
	other, _ := longest(2)
	require.NotEqual(t, most, other)

	drops := func(f Faults) (rolls []bool) {
		r := newRig(t, Spec{Seed: 5, Tx: f}, wire.Config{})
		for range 200 {
			before := r.next
			for r.send(1) == 0 {
				r.now += 100_000
			}
			rolls = append(rolls, len(r.sent()) == 0)
			require.Equal(t, before+1, r.next)
		}
		return rolls
	}
	require.Equal(t, drops(Faults{Drop: 0.5}), drops(Faults{Drop: 0.5, Stall: 0.2, Rate: 1_000_000}))
	r := newRig(t, Spec{Tx: Faults{Rate: 1_000_000}}, wire.Config{})
	require.EqualValues(t, math.MaxInt64, r.q.Deadline())
}

// How often a device is asked that can take nothing yet keeps it still no more often.
func TestStallsAreOfFramesThatMayPass(t *testing.T) {
	for _, step := range []int64{1_000, 100_000} {
		r := newRig(t, Spec{Seed: 3, Tx: Faults{FrameRate: 5_000, Stall: 0.02, StallFor: 50_000}},
			wire.Config{})
		frames := 0
		for ; frames < 2000; r.now += step {
			frames += r.send(1)
			r.sent()
		}
		_, tx := r.q.Faults()
		require.InDelta(t, 40, float64(tx.Stalls), 30, "a step of %d ns", step)
	}
}
