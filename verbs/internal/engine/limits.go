package engine

import (
	"sync/atomic"
	"syscall"

	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// limit counts objects of a kind, of which a process may have as many as ibv_query_device says.
type limit struct {
	n   atomic.Int64
	max int64
}

// take counts one more, if there may be one.
func (l *limit) take() error {
	if l.n.Add(1) > l.max {
		l.give()
		return syscall.ENOMEM
	}
	return nil
}

func (l *limit) give() { l.n.Add(-1) }

// giveIf is for the call that has taken, and whose outcome is err.
func (l *limit) giveIf(err *error) {
	if *err != nil {
		l.give()
	}
}

// limits are those of a process. Queue pairs have one each of the doorbells.
type limits struct{ pds, cqs, srqs, mrs, mws limit }

func newLimits() *limits {
	return &limits{
		pds: limit{max: ring.PDsMax}, cqs: limit{max: ring.CQsMax}, srqs: limit{max: ring.SRQsMax},
		mrs: limit{max: ring.MRsMax}, mws: limit{max: ring.MWsMax},
	}
}
