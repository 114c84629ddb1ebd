package stack

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// openTwo opens two connections over which octets have been acknowledged: 20,000 and 100.
func (l *lab) openTwo() (u, w *peer) {
	l.t.Helper()
	u, _ = l.open()
	u.send(20_000)
	l.until("acknowledged", func() bool { return u.acked == 20_000 })
	w = l.dial(l.a, l.b, 7)
	l.until("second", func() bool { return w.opened })
	w.send(100)
	l.until("acknowledged", func() bool { return w.acked == 100 })
	return u, w
}

// A connection whose peer takes its time is not ended because it wants more Bufs itself, when the
// pool is short for another reason. It is when another connection wants some.
func TestOwnWantEndsNobody(t *testing.T) {
	for _, other := range []bool{false, true} {
		l := newLab(t, func(_ int, cfg *Config) { cfg.StallNs = second })
		u, w := l.openTwo()

		l.a.nic.lose = every
		sent := l.now
		u.send(1 << 20)
		l.turns()
		require.Positive(t, u.conn.tcp.Held())
		free := l.a.hoard(l.a.pressure.loans.lentMax)
		begin := l.now
		l.until("some seconds", func() bool {
			u.conn.Send()
			if other {
				w.send(1)
			}
			return u.closed > 0 || l.now-begin > 3*second
		})
		require.Equal(t, other, u.closed > 0)
		if other {
			require.ErrorIs(t, u.err, ErrHoarding)
			require.GreaterOrEqual(t, l.now-sent, l.a.cfg.StallNs)
		}
		free()
	}
}

// A peer that acknowledges what is sent again, of much that was lost, is late by the user timeout.
func TestPeerBeingRepairedIsNotLate(t *testing.T) {
	const giveUp = 3 * second
	l := newLab(t, func(_ int, cfg *Config) {
		cfg.StallNs = second
		cfg.TCP.NoSACK, cfg.TCP.NoTimestamps, cfg.TCP.UserTimeoutNs = true, true, giveUp
	})
	u, w := l.openTwo()

	var passed int64 // one segment at a time arrives
	l.a.nic.lose = func([]byte) bool {
		if l.now-passed < second/10 {
			return true
		}
		passed = l.now
		return false
	}
	sent := l.now
	u.send(1 << 20)
	l.turns()
	ended := int64(0)
	l.until("the user timeout", func() bool {
		for l.a.pool.Available() > l.a.pressure.loans.lentMax {
			l.a.pool.Alloc()
		}
		w.send(1)
		if u.closed > 0 && ended == 0 {
			ended = l.now - sent
		}
		return l.now-sent > 2*giveUp
	})
	require.Greater(t, u.acked, uint64(20_000+4*1448))
	require.GreaterOrEqual(t, ended, giveUp)
	require.ErrorIs(t, u.err, ErrHoarding)
	*l.live = nil // its Bufs are kept
}

func TestDemand(t *testing.T) {
	var s pressure
	for _, x := range []struct{ who, by connIndex }{{1, 1}, {1, 1}, {2, noConn}, {1, noConn}} {
		s.need(x.who)
		require.Equal(t, demand{made: true, by: x.by, bufs: true}, s.needs)
	}
	require.Zero(t, s.wants)
	s = pressure{}
	s.want(noConn)
	s.want(3)
	require.Equal(t, demand{made: true, by: noConn, bufs: true}, s.wants)
	s.needRecords()
	require.Equal(t, demand{made: true, by: noConn}, s.needs)
	s.need(3)
	require.Equal(t, demand{made: true, by: noConn, bufs: true}, s.needs)
}

// holder is an Upper that keeps Bufs of octets that others, which its peer has not sent, must come
// before.
type holder struct {
	*peer
	bufs  int
	since int64
}

func (h *holder) Held() (int, int64) { return h.bufs, h.since }

// An Upper that refuses octets for want of Bufs has connections ended whose peer is late with what
// their Uppers' Bufs wait for: the one that keeps most, not while it alone is refused, and not
// where records of sent segments, of which they hold none, are all that is wanted. Late is later
// where the refused octets are beyond a gap: by the user timeout, but never sooner than StallNs.
func TestUpperWantsBufs(t *testing.T) {
	beyondAGap := func(_ *lab, few, _ *holder) { few.conn.WantBufs() }
	for name, x := range map[string]struct {
		want        func(l *lab, few, most *holder)
		late        int64
		ended       bool
		userTimeout int64 // 0: 100 s
	}{
		"another is refused": {func(_ *lab, few, _ *holder) {
			few.conn.NeedBufs()
		}, stallDefaultNs, true, 0},
		"both are": {func(_ *lab, few, most *holder) {
			most.conn.NeedBufs()
			few.conn.NeedBufs()
		}, stallDefaultNs, true, 0},
		"it alone is refused": {func(_ *lab, _, most *holder) {
			most.conn.NeedBufs()
		}, stallDefaultNs, false, 0},
		"none is refused": {func(*lab, *holder, *holder) {}, stallDefaultNs, false, 0},
		"records are wanted": {func(l *lab, _, _ *holder) {
			l.a.pressure.needRecords()
		}, stallDefaultNs, false, 0},
		"its peer has time": {func(_ *lab, few, _ *holder) {
			few.conn.NeedBufs()
		}, stallDefaultNs - 1, false, 0},
		"beyond a gap":                       {beyondAGap, 100 * second, true, 0},
		"beyond a gap, sooner":               {beyondAGap, 100*second - 1, false, 0},
		"a short user timeout, not by it":    {beyondAGap, 2 * second, false, second},
		"a short user timeout, but StallNs":  {beyondAGap, stallDefaultNs, true, second},
		"a long user timeout, late by 100 s": {beyondAGap, 100 * second, false, 200 * second},
		"the longest that there is":          {beyondAGap, 200 * second, false, math.MaxInt64},
		"beyond gaps, and next": {func(_ *lab, few, most *holder) {
			most.conn.WantBufs()
			few.conn.NeedBufs()
		}, stallDefaultNs, true, 0},
	} {
		t.Run(name, func(t *testing.T) {
			l, u, _ := newLab(t, func(_ int, cfg *Config) { cfg.TCP.UserTimeoutNs = x.userTimeout }).opened()
			w := l.another()
			l.pass(200 * second)
			few := &holder{peer: w, bufs: 2, since: 0}
			most := &holder{peer: u, bufs: 3, since: l.now - x.late}
			if !x.ended && name != "it alone is refused" {
				few.bufs = 0
			}
			w.conn.SetUpper(few)
			u.conn.SetUpper(most)
			x.want(l, few, most)
			l.a.Turn()
			l.a.Turn()
			require.Equal(t, x.ended, u.closed > 0)
			if x.ended {
				require.ErrorIs(t, u.err, ErrHoarding)
				require.EqualValues(t, 1, l.a.counters().Reclaimed)
			}
			if name == "it alone is refused" { // another that keeps some is not spared
				require.ErrorIs(t, w.err, ErrHoarding)
			} else {
				require.Zero(t, w.closed)
			}
		})
	}
}

// One refusal has all connections looked at, however many there may be; and none that becomes late
// after that is ended.
func TestDemandStandsUntilAllWereLookedAt(t *testing.T) {
	for _, late := range []bool{true, false} {
		l, u, _ := newLab(t, func(_ int, cfg *Config) { cfg.ConnsMax = 20 * stallLooksMax }).opened()
		w := l.another()
		l.pass(200 * second)
		keeps := &holder{peer: u, bufs: 3, since: l.now}
		u.conn.SetUpper(keeps)
		if late {
			keeps.since -= l.a.cfg.StallNs
			l.a.pressure.hand = int(u.conn.index) // it is the last to be looked at
		}
		w.conn.NeedBufs()
		begin := l.now
		l.pass(stallLookNs * 30)
		require.Equal(t, late, u.closed > 0)
		require.LessOrEqual(t, l.now-begin, l.a.cfg.StallNs/2)
		require.False(t, l.a.pressure.demanded())
		if l.pass(10 * second); !late {
			require.Zero(t, u.closed)
		}
	}
}

// Where octets beyond a gap are all that is refused, a connection is not ended whose peer has not
// acknowledged what was in flight for StallNs.
func TestWantsLeaveUnackedAlone(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	w := l.another()
	l.a.nic.lose = every
	u.send(1)
	w.send(1)
	l.pass(2 * l.a.cfg.StallNs)
	u.conn.WantBufs()
	w.conn.WantBufs()
	l.pass(second)
	require.Zero(t, u.closed+w.closed)
	u.conn.NeedBufs()
	l.pass(second)
	require.Equal(t, [2]int{0, 1}, [2]int{u.closed, w.closed})
}

// A connection with an initial window in flight wants more, one with less needs it.
func TestWhoNeeds(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	u.send(20_000)
	l.until("acknowledged", func() bool { return u.acked == 20_000 })
	l.a.nic.lose = every
	for {
		l.a.pressure.needs, l.a.pressure.wants = demand{}, demand{}
		l.a.pressure.demand(u.conn)
		held := u.conn.tcp.Held()
		require.Equal(t, held < 10, l.a.pressure.needs.made)
		require.Equal(t, held >= 10, l.a.pressure.wants.made)
		if held >= 10 {
			break
		}
		u.send(1)
		l.turns()
		require.Greater(t, u.conn.tcp.Held(), held)
	}
}

// A peer that does some of what it owes is no less late; one that does all is timed again.
func TestPeerClock(t *testing.T) {
	var k PeerClock
	_, owes := k.Owes(0)
	require.False(t, owes)
	k.Advance(10, 20, 1)
	for _, x := range []struct {
		reached, owed uint64
		now, since    int64
		owes          bool
	}{{15, 30, 2, 1, true}, {19, 40, 3, 1, true}, {20, 40, 4, 4, true}, {40, 40, 5, 5, false}} {
		k.Advance(x.reached, x.owed, x.now)
		since, owes := k.Owes(x.reached)
		require.Equal(t, x.since, since, "%+v", x)
		require.Equal(t, x.owes, owes, "%+v", x)
	}
}

// The shares of a pool leave room for reception and for each other, whatever its size.
func TestBudget(t *testing.T) {
	require.Equal(t, Budget{
		Reserve: 128, Proven: 896, Unread: 4096, OutOfOrder: 3072, Squeeze: 3072, Grow: 2048,
		Window: 2048, Spare: 2048, SpareInOrder: 64, PartialMax: 1024,
	}, newBudget(8192, 32))
	for size := 1; size < 3000; size++ {
		b := newBudget(size, 32)
		require.LessOrEqual(t, b.Reserve+b.Proven+b.Unread, size)
		require.LessOrEqual(t, b.OutOfOrder, b.Unread)
		require.LessOrEqual(t, b.SpareInOrder, b.Spare)
	}
}
