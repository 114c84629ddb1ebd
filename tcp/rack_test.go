package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The minimum of the last period or two: a path that has become longer is believed in time.
//
// req: 8985-6.2-1
func TestMinimumIsWindowed(t *testing.T) {
	var m minimum
	now := int64(0)
	add := func(after, v, want int64) {
		t.Helper()
		now += after
		m.add(now, v)
		require.Equal(t, want, m.value(), "at %d s minimum", now/sc)
	}
	require.Zero(t, m.value(), "a minimum of nothing")
	add(0, 50, 50)
	add(sc, 40, 40)
	add(sc, 90, 40)
	for range 14 {
		add(10*sc, 90, 40)
	}
	add(10*sc, 90, 40) // a new period; the old one still counts
	add(minRTTPeriodMs*ms, 90, 90)
	add(sc, 70, 70)
	add(3*minRTTPeriodMs*ms, 80, 80)

	m = minimum{}
	seen := map[int64]int64{}
	// never above the least of the last period, never below that of the last two
	for i := range int64(5000) {
		now = i * sc / 2
		v := (i*7919)%1000 + 100
		seen[now] = v
		m.add(now, v)
		if i%50 != 0 {
			continue
		}
		one, two := int64(never), int64(never)
		for at, v := range seen {
			if now-at < minRTTPeriodMs*ms {
				one = min(one, v)
			}
			if now-at <= 2*minRTTPeriodMs*ms {
				two = min(two, v)
			}
		}
		if got := m.value(); got > one && got != m.this || got < two {
			t.Fatalf("at %d s: %d, of one period %d, of two %d", now/sc, got, one, two)
		}
	}
}

// 16 recoveries after the last D-SACK the window is a quarter of the round trip again.
//
// req: 8985-6.2-6
func TestReorderingWindowNarrowsAgain(t *testing.T) {
	s := ten(t, sackOnly())
	k := &s.c.reo
	s.c.adapt(true, false)
	s.c.sndUna = s.c.sndNxt
	s.c.adapt(true, false)
	require.EqualValues(t, 3, k.mult)
	for i := range reoWndPersistFull {
		require.EqualValues(t, 3, k.mult, "after %d recoveries", i)
		s.c.adapt(false, true)
	}
	require.EqualValues(t, 1, k.mult)
	s.c.sndUna = 0
}

// Of the timers for reordering, probe, retransmission and zero window at most one runs: there is
// one deadline, with a kind.
//
// req: 8985-8-1
func TestOneLossTimer(t *testing.T) {
	s := ten(t, sackOnly())
	want := func(kind timerKind, in int64) {
		t.Helper()
		if tm := &s.c.timers; tm.kind != kind || tm.rtxAt-s.now != in || s.c.Deadline() != tm.rtxAt {
			t.Errorf("kind %d in %d us, want %d in %d", tm.kind, (tm.rtxAt-s.now)/us, kind, in/us)
		}
	}
	want(timerLossProbe, 10*ms)
	s.in(". 1 ack 1 sack 1001:2001")
	want(timerReorder, 2500*us)
	s.in(". 1 ack 2001")
	want(timerLossProbe, 20*ms)
	s.advance(20 * ms)
	want(timerRetransmit, 210*ms)
	s.in(". 1 ack 10001 win 0")
	s.push(1000)
	want(timerPersist, 210*ms)
}
