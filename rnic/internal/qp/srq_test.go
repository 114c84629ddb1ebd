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

// Take has a buffer with all of its ranges, from the source if there is one, and none twice.
func TestTakeSharedBuffer(t *testing.T) {
	s := new(SRQ)
	low := false
	s.Init(mem.NewMPMC(make([]mem.MPMCSlot[SharedBuffer], 4)), 4, func(int64) { low = true })
	ranges := []wq.SGE{{Offset: 1, Length: 2, STag: 3}, {Offset: 4, Length: 5, STag: 6}}
	waits := 1
	s.TakeFrom(func() {
		for ; waits > 0; waits-- {
			require.True(t, s.Post(7, ranges[0], ranges[1:]))
		}
	})
	s.Arm(1)
	require.False(t, low)
	r := wq.Request{List: make([]wq.SGE, SharedSGEMax)}
	require.True(t, s.Take(&r))
	require.Equal(t, wq.WQE{ID: 7, Op: wq.OpRecv, Local: ranges[0], More: 1}, r.WQE)
	require.Equal(t, ranges[1], r.List[0])
	require.True(t, low)
	require.False(t, s.Take(&r))
	waits = 1
	require.True(t, s.Take(&r))
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
