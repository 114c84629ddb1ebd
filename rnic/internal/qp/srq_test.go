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
