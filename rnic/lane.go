package rnic

import (
	"slices"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// lane is what the connections of one Poller share: the epoch word their placements announce themselves with, and the
// packet buffers. All but the first two fields belong to the Poller's goroutine.
type lane struct {
	poller  *stack.Poller
	reader  *mem.Reader
	reserve mpa.Reserve

	conns     []*onPoller
	relieveAt int64     // no connection is ended for want of Bufs before
	refused   *onPoller // since then: octets of this one were refused,
	several   bool      // and of others
}

// When octets that wait for the rest of their frame have used up what they may, a connection whose frames have made no
// progress for hoardTimeout is ended, the one that keeps most first, one every relieveEvery.
const (
	hoardTimeout = 5 * time.Second
	relieveEvery = 100 * time.Millisecond
)

func newLane(p *stack.Poller, r *mem.Reader) *lane {
	spare := p.Pool().Size() / spareShare
	return &lane{poller: p, reader: r, reserve: mpa.Reserve{
		Spare: spare, Low: min(p.Reserve()/2, spare), Partial: spare / 2,
	}}
}

func (ln *lane) enter(u *onPoller) { ln.conns = append(ln.conns, u) }

func (ln *lane) leave(u *onPoller) {
	if i := slices.Index(ln.conns, u); i >= 0 {
		ln.conns = slices.Delete(ln.conns, i, i+1)
	}
}

// relieve is called when octets of who were refused because Bufs are short. As long as it alone is
// refused, it is not ended.
func (ln *lane) relieve(now int64, who *onPoller) {
	if ln.refused == nil {
		ln.refused = who
	}
	ln.several = ln.several || ln.refused != who
	if now < ln.relieveAt {
		return
	}
	alone := who
	if ln.several {
		alone = nil
	}
	ln.refused, ln.several = nil, false
	ln.relieveAt = now + int64(relieveEvery)
	var worst *onPoller
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
