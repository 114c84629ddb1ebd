package rnic

import (
	"testing"

	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/stretchr/testify/require"
)

// states turns the rig until q has ended, and returns what states it was in from now on.
func (r *rig) states(q *QueuePair) []State {
	r.t.Helper()
	seen := []State{q.State()}
	r.until("the end", func() bool {
		if s := q.State(); s != seen[len(seen)-1] {
			seen = append(seen, s)
		}
		return isDone(q)
	})
	return seen
}

// Which states an end goes through says how the connection ended: Terminating with a Terminate,
// whichever end found the error, Error when this end gave it up without one, neither when it
// ended in order or the transport was lost.
func TestStates(t *testing.T) {
	for _, tc := range []struct {
		name string
		do   func(r *rig, s, c *end)
		c, s []State
	}{
		{"own close", func(_ *rig, _, c *end) {
			c.qp.Disconnect()
		}, []State{RTS, Closing, Closed}, []State{RTS, Closing, Closed}},
		{"error of ours that the peer finds", func(r *rig, _, c *end) {
			c.post(WorkRequest{Op: OpWrite, Local: c.source.Slice(0, 1), RemoteSTag: 0xbad})
		}, []State{RTS, Terminating, Closed}, []State{RTS, Terminating, Closed}},
		{"local error", func(r *rig, _, c *end) {
			c.post(WorkRequest{Op: OpSend, Local: SGE{STag: 0xbad, Length: 1}})
		}, []State{RTS, Error, Closed}, []State{RTS, Closed}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			for _, looked := range []int{0, 1} {
				r := newRig(t, turned, rigConfig{})
				s, c := r.connect(opts{}, opts{})
				tc.do(r, s, c)
				if looked == 0 {
					require.Equal(t, tc.c, r.states(c.qp))
				} else {
					require.Equal(t, tc.s, r.states(s.qp))
				}
				c.awaitClosed()
				s.awaitClosed()
				require.Equal(t, [2]State{Closed, Closed}, [2]State{c.qp.State(), s.qp.State()})
			}
		})
	}
}

// Giving a connection up is Error from service and from Closing; a Terminate that was exchanged
// before is still what it was.
func TestErrorState(t *testing.T) {
	for _, tc := range []struct {
		before, after State
	}{{RTS, Error}, {Closing, Error}, {Terminating, Terminating}} {
		t.Run(tc.before.String(), func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s, c := r.connect(opts{}, opts{})
				l := c.qp.end.Connection.Load()
				seen := make(chan State, 1)
				require.NoError(t, connect.Order(l.Transport.Submit, func() {
					c.qp.engine.Leave(tc.before)
					l.Fail(ErrHoarding)
					seen <- c.qp.State()
				}))
				c.awaitClosed()
				s.awaitClosed()
				require.Equal(t, tc.after, <-seen)
				require.Equal(t, Closed, c.qp.State())
				require.ErrorIs(t, c.qp.Err(), ErrHoarding)
			})
		})
	}
}

// The peer speaks on while our half is closing, so that an error is found then, too; a further
// close changes nothing about it.
func TestTerminatingFromClosing(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s, c := r.connect(opts{}, opts{ConnParam: ConnParam{AllowHalfClosed: true}})
	r.exchange(s, c)
	s.qp.Disconnect()
	c.expectState(Closing)
	c.post(WorkRequest{Op: OpWrite, Local: c.source.Slice(0, 1), RemoteSTag: 0xbad})
	s.expectState(Terminating)
	s.qp.Disconnect()
	require.Equal(t, []State{Terminating, Closed}, r.states(s.qp))
	var te *TerminateError
	require.ErrorAs(t, s.qp.Err(), &te)
}
