package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// What Config.OnTurn posts leaves in the Turn that calls it, what came in before has been delivered
// by then, and the work it tells of counts.
func TestEachRunsBetweenReceptionAndTransmission(t *testing.T) {
	var calls int
	var app func() int
	l := newLab(t, func(i int, c *Config) {
		if i == 0 {
			c.OnTurn = func() int {
				calls++
				if app == nil {
					return 0
				}
				return app()
			}
		}
	})
	l.listen(l.b, 7, 4)
	u := l.dial(l.a, l.b, 7, 0)
	l.until("open", func() bool { return u.opened && len(l.accepted) == 1 })
	l.turns()
	require.Positive(t, calls, "from the first Turn on")

	app = func() int {
		app = nil
		u.toSend = 100
		u.conn.Wake()
		return 3
	}
	before := l.a.n.Segments
	require.GreaterOrEqual(t, l.a.Turn(), 3)
	require.Equal(t, before+1, l.a.n.Segments, "sent in the same Turn")
	require.Equal(t, 1, u.woken)

	v := l.accepted[0]
	v.toSend = 50
	v.conn.Send()
	l.b.Turn()
	var seen uint64
	app = func() int { seen = u.edge; return 0 }
	l.a.Turn()
	require.Equal(t, uint64(50), seen, "delivered before")

	l.stop()
	calls = 0
	l.a.Turn()
	require.Zero(t, calls, "not after the end")
}

// An Upper that has said that it has no more is not asked again in the same Turn.
func TestPullStopsWhereMoreSaysSo(t *testing.T) {
	l := newLab(t, nil)
	l.listen(l.b, 7, 4)
	u := l.dial(l.a, l.b, 7, 0)
	l.until("open", func() bool { return u.opened })
	l.turns()
	pulls := 0
	u.onPull = func() { pulls++ }
	u.toSend = uint64(u.conn.EMSS()) + 10
	u.conn.Send()
	l.a.Turn()
	require.Equal(t, u.toSend, u.sent)
	require.Equal(t, 2, pulls)
}
