package rnic

import (
	"slices"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// pollerState is what the connections of one Poller share: the epoch word their placements announce themselves with, and the
// packet buffers. All but the first two fields belong to the Poller's goroutine.
type pollerState struct {
	poller  *stack.Poller
	reader  *mem.Reader
	reserve mpa.Reserve

	conns     []*pollerTransport
	reclaimAt int64            // no connection is ended for want of Bufs before
	refused   *pollerTransport // since then: octets of this one were refused,
	several   bool             // and of others
}

// When octets that wait for the rest of their frame have used up what they may, a connection whose frames have made no
// progress for hoardTimeout is ended, the one that keeps most first, one every relieveEvery.
const (
	hoardTimeout = 5 * time.Second
	reclaimEvery = 100 * time.Millisecond
)

func newPollerState(p *stack.Poller, r *mem.Reader) *pollerState {
	spare := p.Pool().Size() / spareShare
	return &pollerState{poller: p, reader: r, reserve: mpa.Reserve{
		Spare: spare, Low: min(p.Reserve()/2, spare), Partial: spare / 2,
	}}
}

func (ln *pollerState) enter(u *pollerTransport) { ln.conns = append(ln.conns, u) }

func (ln *pollerState) leave(u *pollerTransport) {
	if i := slices.Index(ln.conns, u); i >= 0 {
		ln.conns = slices.Delete(ln.conns, i, i+1)
	}
}

// reclaim is called when octets of who were refused because Bufs are short. As long as it alone is
// refused, it is not ended.
func (ln *pollerState) reclaim(now int64, who *pollerTransport) {
	if ln.refused == nil {
		ln.refused = who
	}
	ln.several = ln.several || ln.refused != who
	if now < ln.reclaimAt {
		return
	}
	alone := who
	if ln.several {
		alone = nil
	}
	ln.refused, ln.several = nil, false
	ln.reclaimAt = now + int64(reclaimEvery)
	var worst *pollerTransport
	most := uint64(0)
	for _, u := range ln.conns {
		if u == alone {
			continue
		}
		if held := u.up.unfinished(now); held > most {
			worst, most = u, held
		}
	}
	if worst != nil {
		worst.up.fail(ErrHoarding)
	}
}
