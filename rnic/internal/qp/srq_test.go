package qp

import (
	"runtime"
	"testing"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// A shared buffer that may be claimed is there: what left counts was pushed before.
func TestClaimedBuffersAreThere(t *testing.T) {
	const rounds = 300_000
	s := new(SRQ)
	s.Init(mem.NewMPMC(make([]mem.MPMCSlot[SharedBuffer], 4)), 4, func(int64) {})
	id, wrong := uint64(0), 0
	aside(func() {
		s.Posting.Lock()
		posted := s.Post(id, wq.SGE{}, nil)
		s.Posting.Unlock()
		if posted {
			id++
		} else {
			runtime.Gosched()
		}
	}, func() {
		for i := uint64(0); i < rounds; {
			if !s.claim(1) {
				runtime.Gosched()
				continue
			}
			if s.pop().id != i {
				wrong++
			}
			i++
		}
	})
	require.Zero(t, wrong)
}

// In acknowledged mode, too, a RecvCQ without a place for the completion is told of once.
func TestAcknowledgedOverflowsCQ(t *testing.T) {
	srq, told := new(SRQ), teller{}
	srq.Init(mem.NewMPMC(make([]mem.MPMCSlot[SharedBuffer], 4)), 4, func(int64) {})
	p := newPair(t, func(c *Config, _ *StartOptions) {
		c.SRQ, c.RecvCQ, c.Teller = srq, newCQ(0), &told
	})
	require.True(t, srq.Post(1, wq.SGE{}, nil))
	p.ends[0].post(1, wq.OpSend, 0, 0)
	p.ends[0].pull(1)
	p.ends[1].arrive(1)
	require.ErrorIs(t, p.ends[1].err, ErrCQOverflow)
	require.Equal(t, teller{wq.EventCQOverflow}, told)
}
