package stack

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// A connection whose peer takes its time is not ended because it wants more Bufs itself, when the
// pool is short for another reason. It is when another connection wants some.
func TestOwnWantEndsNobody(t *testing.T) {
	for _, other := range []bool{false, true} {
		l := newLab(t, nil)
		u, _ := l.open()
		u.send(20_000)
		l.until("acknowledged", func() bool { return u.acked == 20_000 })
		w := l.dial(l.a, l.b, 7)
		l.until("second", func() bool { return w.opened })
		w.send(100)
		l.until("acknowledged", func() bool { return w.acked == 100 })

		l.a.nic.lose = func([]byte) bool { return true }
		u.send(1 << 20)
		l.turns()
		require.Positive(t, u.conn.tcp.Held())
		var out []mem.Buf
		for l.a.pool.Available() > l.a.Reserve()-1 {
			out = append(out, l.a.pool.Alloc())
		}
		begin := l.now
		l.until("some seconds", func() bool {
			u.conn.Send()
			if other {
				w.send(1)
			}
			return u.closed > 0 || l.now-begin > 20*second
		})
		require.Equal(t, other, u.closed > 0)
		if other {
			require.ErrorIs(t, u.err, ErrHoarding)
		}
		l.a.pool.FreeN(out)
	}
}

func TestWhoWants(t *testing.T) {
	var s pressureState
	for _, x := range []struct{ who, by connIndex }{{1, 1}, {1, 1}, {2, noConn}, {1, noConn}} {
		s.want(x.who)
		require.True(t, s.wanted)
		require.Equal(t, x.by, s.by)
	}
	s.wanted = false
	s.want(noConn)
	s.want(3)
	require.Equal(t, noConn, s.by)
}
