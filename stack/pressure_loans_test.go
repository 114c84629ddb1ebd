package stack

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// The level falls from all Bufs to two as more is lent, and no step of it is to less than half
// until it is at a few.
func TestLoanLevel(t *testing.T) {
	for _, size := range []int{1, 3, 64, 2048, 1 << 20} {
		b := newBudget(size, 32)
		l := newLoans(size, &b)
		require.Equal(t, max(l.all, heldMin), l.level())
		for before := l.level(); l.lent < l.lentMax; before = l.level() {
			l.lent++
			require.LessOrEqual(t, l.level(), before)
			if size == 2048 && before > 16 {
				require.GreaterOrEqual(t, l.level(), before/2)
			}
		}
		require.Equal(t, heldMin, l.level())
		require.LessOrEqual(t, l.guestsMax*heldMin, max(l.lentMax, heldMin))
	}
}

// A connection takes back what it has given, and no other may have that meanwhile; above the level,
// half of it at least, until what was lent is made up for.
func TestTakeBack(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	p, c := l.a, u.conn
	spare := p.pressure.spare()
	take := func(n int) int {
		p.pressure.gave(c, n)
		require.Equal(t, spare-n, p.pressure.spare())
		n = p.pressure.takeBack(c)
		require.Equal(t, spare, p.pressure.spare())
		return n
	}
	require.Equal(t, 9, take(9), "nothing is lent")
	p.pressure.loans.lent = p.pressure.loans.lentMax - 1
	require.Equal(t, heldMin, p.pressure.loans.level())
	require.Equal(t, 1, take(1))
	require.Equal(t, 2, take(2), "the level")
	require.Equal(t, 2, take(3))
	require.Equal(t, 4, take(9))
	require.Equal(t, p.pressure.loans.lentMax-1-1-5, p.pressure.loans.lent)
	p.pressure.loans.lent = 1
	require.Equal(t, 100, take(100), "below the level")
	p.pressure.loans.lent = p.pressure.loans.lentMax
	p.pressure.waiting.n++ // somebody waits, and nothing is left to lend
	require.Equal(t, 0, take(2))
	p.pressure.waiting.n--
	require.Equal(t, p.pressure.loans.lentMax-2, p.pressure.loans.lent)
	p.pressure.loans.lent = 0
	p.pressure.gave(c, 5)
	c.Abort()
	l.turns()
	require.Zero(t, p.pressure.promised, "it ends")
}

// Who flows is lent Bufs up to the level, others two at a time, never the last half of the reserve.
func TestLend(t *testing.T) {
	l := newLab(t, func(_ int, cfg *Config) { cfg.ConnsMax = 128; cfg.SynMax = 128 })
	us, p, guests := l.openMany(40), l.a, 0
	for _, u := range us {
		if p.pressure.lends(u.conn) {
			guests++
			require.True(t, p.pressure.lends(u.conn))
		}
	}
	require.Equal(t, p.pressure.loans.guestsMax, guests)
	require.Equal(t, guests, p.pressure.loans.guests)

	c := us[0].conn
	p.pressure.gave(c, 1)
	require.Equal(t, guests, p.pressure.loans.guests, "it has not sent much yet")
	c.acked = trustOctets
	p.pressure.gave(c, 1)
	require.Equal(t, guests-1, p.pressure.loans.guests)
	for ; p.pressure.loans.lent < p.pressure.loans.lentMax; p.pressure.loans.lent++ {
		require.True(t, p.pressure.lends(c))
	}
	require.False(t, p.pressure.lends(c))

	p.pressure.loans.lent = 0
	var kept []mem.Buf
	for p.pool.Available() > p.pressure.loans.lentMax {
		require.True(t, p.pressure.lends(c))
		kept = append(kept, p.pool.Alloc())
	}
	require.False(t, p.pressure.lends(c))
	p.pool.FreeN(kept)
	p.pressure.takeBack(c)
	c.acked = 0

	for _, u := range us {
		u.conn.Send()
	}
	l.turns()
	require.Zero(t, p.pressure.loans.guests, "they have nothing to send")
	require.Zero(t, p.pressure.loans.lent)
}
