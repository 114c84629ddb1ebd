package stack

import (
	"sync/atomic"
	"testing"

	"github.com/rnicd/rnicd/pmd"
	"github.com/stretchr/testify/require"
)

// resting is a Poller that sleeps beside a program, and its runner, on the lab's clock.
type resting struct {
	*lab
	*runner
	word uint32 // Bell.Crowded
}

func newResting(t *testing.T) *resting {
	r := &resting{}
	r.lab = newLab(t, func(i int, cfg *Config) {
		cfg.Idle, cfg.Queue = IdleInterrupt, newQuietDevice(t, cfg.Queue)
		cfg.Bell = &Bell{Asleep: new(uint32), FD: eventfd(t)}
		if i == 0 {
			cfg.Bell.Crowded = &r.word
		}
		cfg.OnTurn = func() int { return 0 }
	})
	return r
}

// run has the first Poller run, in steps of the test, beside a thread that computes: yields have
// taken long, so that it sleeps as soon as it has nothing to wait for.
func (r *resting) run(t *testing.T) {
	p := r.a.Poller
	require.NoError(t, p.rouser.Prepare(p.cfg.Queue.(pmd.Interrupter), p.cfg.Bell))
	t.Cleanup(p.rouser.Close)
	p.rouser.MaxNs = 1
	r.runner = newRunner(p, false)
	for before := p.n.Sleeps; p.n.Sleeps == before; {
		r.step(2 * ms)
	}
	require.EqualValues(t, 1, atomic.LoadUint32(&r.word), "another thread ran in its last yield")
}

// step is a Turn after ns, and what follows; it says whether that was a sleep.
func (r *resting) step(ns int64) (slept bool) {
	r.now += ns
	before := r.a.n.Sleeps
	r.after(r.a.Turn())
	return r.a.n.Sleeps > before
}

// sleepsWithin says whether the Poller sleeps before ns are over, in steps of 1 us.
func (r *resting) sleepsWithin(ns int64) bool {
	for at := int64(0); at < ns; at += 1000 {
		if r.step(1000) {
			return true
		}
	}
	return false
}

// Run does not sleep while an answer is to be polled for, and does after that, and before the
// program has posted anything.
func TestRunPollsForTheReply(t *testing.T) {
	r := newResting(t)
	u, v := r.open()
	r.pass(ms)
	r.run(t)
	require.True(t, r.sleepsWithin(10_000))
	exchange := func() {
		u.send(100)
		require.False(t, r.step(1), "a Turn with work")
	}
	exchange()
	require.True(t, r.sleepsWithin(10_000), "no answer is known")
	v.send(100)
	r.b.Turn()
	r.b.Turn()
	require.False(t, r.step(1000), "a Turn with work")
	took := r.now
	require.True(t, r.sleepsWithin(10_000), "it is the program's turn")
	require.Less(t, r.now-took, int64(10_000))
	exchange()
	require.False(t, r.sleepsWithin(10_000), "the answer may come")
	require.True(t, r.sleepsWithin(50_000))
}

// Octets for the ULP are an answer, an acknowledgement is none.
func TestWhatCountsAsAnAnswer(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	l.pass(ms)
	arrivals, asked := l.a.rx.arrivals, l.a.tx.asked
	u.send(100)
	l.pass(second)
	require.EqualValues(t, 100, u.acked)
	require.Equal(t, asked+1, l.a.tx.asked)
	require.Equal(t, arrivals, l.a.rx.arrivals, "an acknowledgement is no answer")
	v.send(100)
	l.pass(second)
	require.Equal(t, arrivals+1, l.a.rx.arrivals)
	require.Equal(t, asked+1, l.a.tx.asked, "and asks for none")
}

// Run tells the program that the Poller shares its core, until a yield shows that it does not.
func TestRunTellsOfACrowdedCore(t *testing.T) {
	r := newResting(t)
	r.pass(100 * second) // what a host says of itself at first has been said
	r.run(t)
	r.now += 10 * second
	for range 10 {
		r.step(1)
	}
	require.Zero(t, atomic.LoadUint32(&r.word))
	r.step(2 * ms)
	require.EqualValues(t, 1, atomic.LoadUint32(&r.word))
}
