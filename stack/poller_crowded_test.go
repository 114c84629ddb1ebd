package stack

import (
	"math"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/pmd"
)

// A Poller says that it shares its core when another thread ran in its last yield, and for a while
// after it was kept from a Turn; not because it has slept.
func TestCrowded(t *testing.T) {
	word := new(uint32)
	c := crowding{word: word}
	says := func(now int64, shared bool) bool {
		c.turned(now, shared)
		return atomic.LoadUint32(word) == crowdedYes
	}
	now := second
	require.False(t, says(now, false))
	require.True(t, says(now+1, true), "another thread ran")
	require.False(t, says(now+2, false))
	now += 2 + keptMinNs - 1
	require.False(t, says(now, false), "a long Turn")
	now += keptMinNs
	require.True(t, says(now, false), "kept from it")
	for range crowdedNs/(keptMinNs/2) - 1 {
		now += keptMinNs / 2
		require.True(t, says(now, false), "not long ago")
	}
	now += keptMinNs / 2
	require.False(t, says(now, false))
	c.gaveWay()
	now += second
	require.False(t, says(now, false), "it has slept")

	c = crowding{}
	c.turned(now, true) // nobody wants to know
}

// Run tells the program after each Turn, and does not take a sleep for having been kept from one.
func TestRunTellsOfACrowdedCore(t *testing.T) {
	word := new(uint32)
	l := newLab(t, func(i int, cfg *Config) {
		cfg.Idle, cfg.Queue = IdleInterrupt, newQuietDevice(t, cfg.Queue)
		cfg.Bell = &Bell{Asleep: new(uint32), FD: eventfd(t)}
		if i == 0 {
			cfg.Bell.Crowded = word
		}
		cfg.OnTurn = func() int { return 0 }
	})
	p := l.a.Poller
	require.NoError(t, p.rouser.prepare(p.queue.(pmd.Interrupter), p.cfg.Bell))
	defer p.rouser.close()
	p.rouser.maxNs = 1
	r := newRunner(p, false)
	rests := func(empty int) (crowded uint32) {
		l.now += 2 * keptMinNs
		r.wait.empty = empty
		r.after(p.Turn())
		return atomic.LoadUint32(word)
	}
	l.pass(100 * second) // what a host says of itself at first has been said
	r.wait.yieldFrom = math.MaxInt64
	slept := p.n.Sleeps
	require.Zero(t, rests(spinTurns))
	require.Zero(t, rests(spinTurns), "it has slept")
	require.Equal(t, slept+2, p.n.Sleeps)
	r.wait.shared = true
	require.EqualValues(t, crowdedYes, rests(spinTurns))
}
