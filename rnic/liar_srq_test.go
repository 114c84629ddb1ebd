package rnic

import (
	"math/rand/v2"

	"github.com/stretchr/testify/require"
)

// share has some sieges' QueuePairs take their receive buffers from one queue, and some of these
// complete in a queue that may overflow. It draws from a generator of its own, so that what else
// a seed plays is the same.
func (s *siege) share(seed uint64) {
	rng := rand.New(rand.NewPCG(seed, 8))
	if !oneIn(rng, 3) {
		return
	}
	var err error
	s.opt.SRQ, err = s.adapter.CreateSRQ(SRQOptions{PD: s.opt.PD, Depth: 256})
	require.NoError(s.t, err)
	if oneIn(rng, 2) {
		s.opt.RecvCQ, err = s.adapter.CreateCQ(2)
		require.NoError(s.t, err)
	}
	s.events = s.adapter.Events()
}

// postTo posts a receive buffer where q takes its own from.
func (s *siege) postTo(q *QueuePair, wr WorkRequest) error {
	if s.opt.SRQ == nil {
		return errOf(q.PostRecv(wr))
	}
	if oneIn(s.rng, 50) {
		require.NoError(s.t, s.opt.SRQ.Arm(s.opt.SRQ.Depth()/2))
		require.NoError(s.t, q.Arm(EventReceiveHigh, 3))
		require.NoError(s.t, q.Arm(EventSlowPath, 10))
	}
	return errOf(s.opt.SRQ.PostRecv(wr))
}

// left is how many buffers nobody has taken.
func (s *siege) left() int {
	if s.opt.SRQ == nil {
		return 0
	}
	return s.opt.SRQ.Left()
}
