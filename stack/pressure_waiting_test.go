package stack

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// Many connections that wait for Bufs cost a Turn nothing, and go on when there are some; one that
// ends meanwhile, by TIME-WAIT or at once, leaves no trace in the list.
func TestWaitingForBufs(t *testing.T) {
	l := newLab(t, nil)
	us := l.openMany(6)
	var kept []mem.Buf
	for l.a.pool.Available() > l.a.pressure.loans.lentMax {
		kept = append(kept, l.a.pool.Alloc())
	}
	for _, u := range us {
		u.send(1000)
	}
	l.a.Turn()
	before := l.a.counters().NoBufWaits
	require.NotZero(t, before)
	l.a.Turn()
	require.Zero(t, l.a.Turn())
	require.Equal(t, before, l.a.counters().NoBufWaits, "they are asked again and again")

	free := func(n int) {
		for ; l.a.pool.Available() < n; kept = kept[1:] {
			l.a.pool.Free(kept[0])
		}
		l.a.Turn()
	}
	enough := l.a.pressure.loans.lentMax + 2 // every second guest is of those that wait in that list
	free(enough - 2)
	require.Equal(t, before, l.a.counters().NoBufWaits, "they are asked for nothing")
	sent := l.a.counters().Segments
	free(enough)
	require.Equal(t, sent+1, l.a.counters().Segments, "one of them has the Buf")

	ended := us[1]
	ended.toSend = 0
	l.finish(ended, l.accepted[1])
	us[2].conn.Abort()
	l.until("gone", func() bool { return us[2].closed == 1 })
	require.Equal(t, 5, l.a.counters().Conns)

	l.a.pool.FreeN(kept)
	require.Equal(t, l.now+retryNs, l.a.Deadline(), "they are not asked soon")
	l.until("the others", func() bool {
		for _, i := range []int{0, 3, 4, 5} {
			if l.accepted[i].edge != 1000 {
				return false
			}
		}
		return true
	})
	require.Equal(t, noConn, l.a.pressure.waiting.first)
	require.Equal(t, noConn, l.a.pressure.waiting.last)
	l.pass(100 * second) // TIME-WAIT ends where it should: in its own list
	require.Equal(t, noConn, l.a.slab.lingering.first)
	require.Equal(t, 4, l.a.counters().Conns)
}

// One that still stands in a list when its peer has acknowledged something waits with those from
// then on.
func TestUnprovenNoMore(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	p, c := l.a, u.conn
	p.pressure.await(c)
	require.Equal(t, [2]int{0, 1}, [2]int{p.pressure.waiting.n, p.pressure.unproven.n})
	c.acked = 1
	p.pressure.await(c)
	require.Equal(t, [2]int{1, 0}, [2]int{p.pressure.waiting.n, p.pressure.unproven.n})
	p.pressure.stopWaiting(c)
	require.Equal(t, [2]int{0, 0}, [2]int{p.pressure.waiting.n, p.pressure.unproven.n})
	c.acked = 0
}

// One connection that waits is enough to ask for Bufs; without one nobody is asked.
func TestOneThatWaitsAsksForBufs(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	p := l.a
	p.pressure.retry(p.n.Turns, &p.active)
	require.False(t, p.pressure.demanded())
	defer p.hoard(p.pressure.loans.lentMax)()
	p.pressure.await(u.conn)
	p.pressure.retry(p.n.Turns, &p.active)
	require.Equal(t, 1, p.pressure.waiting.n+p.pressure.unproven.n)
	require.True(t, p.pressure.demanded())
}

// One that waits on each list are two, not none: Bufs are asked for, the next Turn is soon, and
// both go on when there are Bufs.
func TestBothListsWait(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 16)
	proven, unproven := l.dial(l.a, l.b, 7, 1), l.dial(l.a, l.b, 7)
	l.until("open", func() bool { return proven.acked == 1 && unproven.opened })
	l.turns() // nothing is under way that would give a Buf back
	p := l.a
	free := p.hoard(p.pressure.loans.lentMax)
	proven.send(1000)
	unproven.send(1000)
	p.Turn()
	require.Equal(t, [2]int{1, 1}, [2]int{p.pressure.waiting.n, p.pressure.unproven.n})
	p.pressure.needs, p.pressure.wants = demand{}, demand{}
	p.pressure.retry(p.n.Turns, &p.active)
	require.True(t, p.pressure.demanded())
	p.pressure.needs, p.pressure.wants = demand{}, demand{}
	require.Equal(t, max(l.now+retryNs, p.pressure.lookAt), p.Deadline())
	free()
	p.Turn()
	require.Equal(t, [2]int{0, 0}, [2]int{p.pressure.waiting.n, p.pressure.unproven.n})
	l.until("there", func() bool { return proven.acked == 1001 && unproven.acked == 1000 })
}

// One that waits for its first Buf has the next free one, but only where it may take it: of an
// unproven peer what is left to proven ones is not for it.
func TestFreeBufsAreClaimed(t *testing.T) {
	p := newLab(t, nil).a.Poller
	proven := p.pressure.budget.Proven
	for _, tc := range []struct {
		waiting, unproven, free int
		want                    bool
	}{
		{0, 0, proven, false}, {1, 0, 0, true}, {2, 0, 0, true}, {1, 1, 0, true},
		{0, 1, proven - 1, false}, {0, 1, proven, true}, {0, 2, proven + 1, true},
	} {
		p.pressure.waiting.n, p.pressure.unproven.n = tc.waiting, tc.unproven
		require.Equal(t, tc.want, p.pressure.claimed(tc.free), "%+v", tc)
	}
}
