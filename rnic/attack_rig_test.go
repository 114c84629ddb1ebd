package rnic

import (
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rdmap"
)

// The attacks of RFC 5042 that a peer who was let in can try: attack_stag_test.go has those on memory, attack_queue_test.go those on
// queues and time. docs/reference/attacks.md lists them beside what bounds each. In every one two things are looked at: what becomes of the
// attacker's stream, and that a connection of the same Adapter beside it is as it was.

// assault is a connection whose peer attacks, and an innocent one beside it.
type assault struct {
	*rig
	s        *end // the attacked QueuePair
	p        *rawInitiator
	innocent [2]*end
}

// assault connects both. opt is the attacked QueuePair's.
func (r *rig) assault(opt opts) *assault {
	r.t.Helper()
	a := &assault{rig: r}
	a.innocent[0], a.innocent[1] = r.connect(opts{}, opts{})
	r.exchange(a.innocent[0], a.innocent[1])
	a.again(opt)
	return a
}

// again makes a new connection to attack.
func (a *assault) again(opt opts) {
	a.t.Helper()
	a.s = a.newEnd(a.server, opt)
	a.p, _ = a.startRaw(a.s, false)
}

// repelled: the attacker hears why, and its stream ends; nobody else's does.
func (a *assault) repelled(cause rdmap.Cause) {
	a.t.Helper()
	require.Equal(a.t, cause, a.p.terminate().Cause, "%v", a.s.qp.Err())
	a.p.closeSend()
	a.untilDone(a.s.qp)
	a.goesOn()
}

// goesOn: the innocent connection works both ways.
func (a *assault) goesOn() {
	a.t.Helper()
	a.exchange(a.innocent[0], a.innocent[1])
}
