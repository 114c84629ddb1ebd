package stack

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/pmd"
)

// exchange is a Poller's Turns as reply sees them.
type exchange struct {
	reply
	now             int64
	arrivals, asked uint64
}

// After ns a Turn sends, or has something arrive, or neither.
func (x *exchange) sends(ns int64)   { x.asked++; x.turns(ns) }
func (x *exchange) arrives(ns int64) { x.arrivals++; x.turns(ns) }
func (x *exchange) turns(ns int64)   { x.now += ns; x.turned(x.now, x.arrivals, x.asked) }
func (x *exchange) polls() bool      { return x.soon(x.now) }

// An answer that came soon is polled for the next time, for twice as long.
func TestReplyIsPolledFor(t *testing.T) {
	x := exchange{now: 5}
	x.sends(0)
	require.False(t, x.polls(), "nothing is known yet")
	x.arrives(10_000)
	require.False(t, x.polls(), "it is the program's turn")
	x.sends(7)
	x.turns(19_999)
	require.True(t, x.polls())
	x.turns(1)
	require.False(t, x.polls(), "long enough")
	x.arrives(5000)
	x.sends(1)
	x.turns(49_999)
	require.True(t, x.polls(), "the later one counts")
	x.arrives(1)
	x.sends(1)
	x.turns(replyMaxNs - 1)
	require.True(t, x.polls())
	x.turns(1)
	require.False(t, x.polls(), "never longer")
	x.arrives(1)
	x.sends(1)
	require.False(t, x.polls(), "that one came late")
}

// A program that posts one after the other is not kept from it, nor is one whose peer only
// acknowledges.
func TestNoReplyIsPolledForInBulk(t *testing.T) {
	x := exchange{now: 5}
	x.sends(0)
	x.arrives(1000)
	x.sends(1)
	require.True(t, x.polls())
	x.sends(1)
	require.False(t, x.polls(), "it posts on")
	x.arrives(1000)
	x.sends(1)
	require.True(t, x.polls(), "and has stopped")
}

// Octets for the ULP are an answer, an acknowledgement is none: as Turns of two ends tell it.
func TestReplyOfAConnection(t *testing.T) {
	l := newLab(t, nil)
	u, v := l.open()
	l.pass(ms)
	var r reply
	turned := func() { r.turned(l.now, l.a.arrivals, l.a.asked) }
	turned()
	l.now++
	u.send(100)
	l.a.Turn()
	turned()
	require.Equal(t, l.now, r.sentAt)
	sent := l.now
	l.pass(second) // acknowledged
	require.EqualValues(t, 100, u.acked)
	turned()
	require.Equal(t, sent, r.sentAt, "nothing has arrived")
	before := l.a.n.Segments
	v.send(100)
	l.turns()
	turned()
	require.Zero(t, r.sentAt)
	l.pass(second)
	require.Greater(t, l.a.n.Segments, before)
	turned()
	require.Zero(t, r.sentAt, "an acknowledgement asks for nothing")
}

// Run does not sleep while an answer is to be polled for, and does after that, and before the
// program has posted anything.
func TestRunPollsForTheReply(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		cfg.Idle, cfg.Queue = IdleInterrupt, newQuietDevice(t, cfg.Queue)
		cfg.Bell = &Bell{Asleep: new(uint32), FD: eventfd(t)}
		cfg.OnTurn = func() int { return 0 }
	})
	u, v := l.open()
	l.pass(ms)
	p := l.a.Poller
	require.NoError(t, p.rouser.prepare(p.queue.(pmd.Interrupter), p.cfg.Bell))
	defer p.rouser.close()
	p.rouser.maxNs = 1
	r := newRunner(p, false)
	r.wait.empty, r.wait.yieldFrom = spinTurns, math.MaxInt64 // it does not yield to one that computes
	rests := func(ns int64) (slept bool) {
		l.now += ns
		before := p.n.Sleeps
		r.wait.empty = spinTurns
		r.after(p.Turn())
		return p.n.Sleeps > before
	}
	ask := func() {
		u.send(100)
		require.False(t, rests(1), "a Turn with work")
	}
	answer := func() {
		v.send(100)
		l.b.Turn()
		l.b.Turn()
		require.False(t, rests(10_000), "a Turn with work") // and 1 after it was asked
		require.True(t, rests(1))
	}
	require.True(t, rests(1))
	ask()
	require.True(t, rests(1), "no answer is known")
	require.Equal(t, spinTurns, r.wait.spins())
	answer()
	require.Equal(t, spinShared, r.wait.spins(), "it is the program's turn")
	ask()
	require.False(t, rests(2*10_001-1))
	require.True(t, rests(1))
}
