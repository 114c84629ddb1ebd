package waiting

import (
	"testing"

	"github.com/stretchr/testify/require"
)

const us, ms, second = 1000, 1_000_000, 1_000_000_000

// turns is a Poller's Turns, and what follows each.
type turns struct {
	*Poller
	now             int64
	arrivals, asked uint64
	frames          uint64
}

func newTurns(p Policy, shares, beside bool) *turns {
	return &turns{Poller: NewPoller(p, shares, beside), now: 1}
}

// empty is a Turn without work, ns after the last.
func (t *turns) empty(ns int64) Next { return t.turn(ns, false) }

// works is one with work.
func (t *turns) works(ns int64) Next { return t.turn(ns, true) }

func (t *turns) turn(ns int64, work bool) Next {
	t.now += ns
	return t.After(Turned{Now: t.now, Work: work, Arrivals: t.arrivals, Asked: t.asked,
		Frames: t.frames})
}

// until is how many empty Turns pass before that step, and the step.
func (t *turns) until(s Step, ns int64) (n int, next Next) {
	for next = t.empty(ns); next.Step != s && n < 100_000; n++ {
		next = t.empty(ns)
	}
	return n, next
}

func TestAdaptiveSpinsYieldsSleeps(t *testing.T) {
	w := newTurns(Adaptive, false, false)
	n, _ := w.until(Yield, 100)
	require.Equal(t, standard.spinTurns, n)
	n, next := w.until(Nap, 100)
	require.Equal(t, standard.yieldTurns-1, n)
	for want := standard.napMinNs; want < standard.napMaxNs; want *= 2 {
		require.Equal(t, Next{Step: Nap, Ns: want}, next)
		next = w.empty(want)
	}
	require.Equal(t, standard.napMaxNs, next.Ns)
	require.Equal(t, standard.napMaxNs, w.empty(next.Ns).Ns)
	require.Equal(t, Turn, w.works(100).Step)
	n, _ = w.until(Yield, 100)
	require.Equal(t, standard.spinTurns-1+1, n, "work begins it again")
}

// The other policies: one never gives its core up, one only pauses, one sleeps without yields, one
// sleeps until something comes.
func TestPolicies(t *testing.T) {
	for policy, want := range map[Policy][]Step{
		Spin: {Turn}, Pause: {Relax}, Sleep: {Turn, Nap}, Interrupt: {Turn, Yield, Doze},
	} {
		w := newTurns(policy, false, false)
		var got []Step
		for range 3000 {
			if s := w.empty(100).Step; len(got) == 0 || got[len(got)-1] != s {
				got = append(got, s)
			}
		}
		require.Equal(t, want, got, policy)
	}
}

// A yield from which the core came back late is the last for a hundred times as long, whether it
// ended with work or without; a pause of the process does not count for more than awayMaxNs.
func TestDoesNotYieldToThoseWhoCompute(t *testing.T) {
	for _, work := range []bool{false, true} {
		for took, barred := range map[int64]int64{
			standard.longNs: 0, 4 * ms: 400 * ms, 3600 * second: standard.longShare * standard.awayMaxNs,
		} {
			w := newTurns(Adaptive, false, false)
			w.until(Yield, 100)
			w.turn(took, work)
			w.works(0)
			if barred == 0 {
				n, _ := w.until(Yield, 100)
				require.Equal(t, standard.spinTurns, n)
				continue
			}
			_, next := w.until(Nap, 100)
			require.Equal(t, Nap, next.Step)
			w.works(barred - ms)
			_, next = w.until(Nap, 100)
			require.Equal(t, Nap, next.Step)
			w.works(ms)
			n, _ := w.until(Yield, 100)
			require.Equal(t, standard.spinTurns, n, "it is tried again")
		}
	}
}

// A thread that computes on a Poller's core does not wait for it: what the Poller waits for is on
// another core, and it spins for that before it sleeps. A C program may be that thread.
func TestSpinsBesideThoseWhoCompute(t *testing.T) {
	for _, beside := range []bool{false, true} {
		w := newTurns(Interrupt, false, beside)
		w.until(Yield, 100)
		w.works(4 * ms)
		n, _ := w.until(Doze, 100)
		if beside {
			require.Equal(t, standard.spinTurns, n)
		} else {
			require.EqualValues(t, standard.besideNs/100, n)
		}
	}
}

// An answer that came soon is polled for the next time, for twice as long; one that came late, or
// for which the program does not wait, is not.
func TestPollsForTheReply(t *testing.T) {
	w := newTurns(Interrupt, false, true)
	w.until(Yield, 100)
	w.works(4 * ms) // from here on it dozes as soon as it does not poll
	polls := func() (ns int64) {
		for from := w.now; w.empty(1*us).Step == Turn || w.now-from <= int64(1+standard.spinTurns)*us; {
			ns = w.now - from
			if ns > second {
				break
			}
		}
		return ns
	}
	ask := func() { w.asked++; w.works(0) }
	answer := func(ns int64) { w.arrivals++; w.works(ns) }
	short := int64(1+standard.spinTurns) * us
	ask()
	require.LessOrEqual(t, polls(), short, "nothing is known yet")
	w.asked++
	w.works(0)
	answer(10 * us)
	require.LessOrEqual(t, polls(), short, "it is the program's turn")
	ask()
	require.Greater(t, polls(), int64(19*us))
	ask()
	answer(standard.replyMaxNs + 1)
	ask()
	require.LessOrEqual(t, polls(), short, "that one came late")
	answer(1 * us)
	ask()
	answer(40 * us)
	ask()
	ns := polls()
	require.Greater(t, ns, standard.replyMaxNs-5*us)
	require.LessOrEqual(t, ns, standard.replyMaxNs+short, "never longer")
	ask()
	require.LessOrEqual(t, polls(), short, "it posts on")
}

// A Poller says that it shares its core when another thread ran in its last yield, and for a while
// after it was kept from a Turn; not because it has slept.
func TestCrowded(t *testing.T) {
	w := newTurns(Interrupt, false, true)
	crowded := func() bool { return w.Crowded(w.now) }
	w.until(Yield, 100)
	w.empty(standard.ranNs)
	require.False(t, crowded(), "a quick yield")
	w.empty(standard.ranNs + 1)
	require.True(t, crowded(), "another thread ran")
	w.works(100)
	require.False(t, crowded())
	w.works(standard.longNs - 1)
	require.False(t, crowded(), "a long Turn")
	w.works(standard.longNs)
	require.True(t, crowded(), "kept from it")
	w.works(1)
	for range 99 {
		w.works(standard.keptNs / 100)
		require.True(t, crowded(), "not long ago")
	}
	w.works(standard.keptNs / 100)
	require.False(t, crowded())
	w.until(Doze, 100)
	w.empty(second)
	require.False(t, crowded(), "it has slept")
}

// Other goroutines may use the Poller's thread after every fourth Turn without work and every 64th
// with, and not if it has one of its own; those that kept it for long, after as long.
func TestLetsGoroutinesRun(t *testing.T) {
	w := newTurns(Adaptive, true, false)
	for n := 1; n <= 256; n++ {
		require.Equal(t, n%standard.letBusyEvery == 0, w.works(100).Step == Let, n)
	}
	for n := 1; n <= 64; n++ {
		require.Equal(t, n%standard.letEvery == 0, w.empty(100).Step == Let, n)
	}
	own := newTurns(Adaptive, false, false)
	n, _ := own.until(Let, 100)
	require.Equal(t, 100_000, n)

	for took, barred := range map[int64]int64{10 * ms: 10 * ms, 60 * second: standard.awayMaxNs} {
		w = newTurns(Adaptive, true, false)
		w.until(Let, 100)
		w.works(took)
		from := w.now
		w.until(Let, us)
		require.Greater(t, w.now-from, barred-us)
		require.Less(t, w.now-from, barred+int64(standard.letEvery)*us)
	}
}

// A Poller has company if others ran both times when it last let them: once, the Turn may have been
// slow. Then its sleeps leave them the thread.
func TestCompany(t *testing.T) {
	for took, company := range map[int64]bool{
		standard.letAloneNs: false, standard.letAloneNs + 1: true,
	} {
		w := newTurns(Sleep, true, false)
		next := w.empty(100)
		for w.now < ms || next.Step != Nap {
			ns := int64(100)
			if next.Step == Let {
				ns = took
			}
			next = w.empty(ns)
		}
		require.Equal(t, company, next.Company, took)
	}
}

// A Poller that its bell woke soon after it had begun to sleep, and to which no frame has come,
// sleeps for a moment in which it does not hear the bell: once, and only beside a C program.
func TestIsDeafForAMoment(t *testing.T) {
	for _, beside := range []bool{true, false} {
		w := newTurns(Interrupt, false, beside)
		doze := func() bool { // whether the next one is deaf
			_, next := w.until(Doze, 0)
			return next.Ns == standard.bellDeafNs
		}
		rung := func(ns int64, frames uint64) bool { // whether the one after it is
			w.Dozed(true, true)
			w.frames += frames
			w.works(ns)
			return doze()
		}
		w.until(Yield, 100)
		w.works(4 * ms) // yields are barred
		w.works(standard.bellSoonNs)
		require.False(t, doze(), "the first")
		require.False(t, rung(standard.bellSoonNs, 0), "not soon")
		require.False(t, rung(standard.bellSoonNs-1, 1), "a frame")
		require.Equal(t, beside, rung(standard.bellSoonNs-1, 0))
		w.Dozed(true, false)
		w.works(1)
		require.False(t, doze(), "never twice")
		w.Dozed(false, false)
		w.works(1)
		require.False(t, doze(), "it did not ring")
		w.Dozed(false, true)
		w.works(1)
		require.False(t, doze(), "it rang before the sleep, which there was not")
	}
}
