package stack

import (
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// While the device takes nothing no Upper is told that its connection is over: its program might
// end, and the peer wait for what has not left. Its slot is nobody's until then.
func TestClosedWaitsForTheDevice(t *testing.T) {
	r := dice(t)
	for name, end := range map[string]func(l *lab, u, v *peer){
		"reset":              func(l *lab, u, v *peer) { u.conn.Abort() },
		"the peer ends last": func(l *lab, u, v *peer) { u.closeSend(); l.turns(); v.closeSend() },
		"no room for an ACK": func(l *lab, u, v *peer) {
			u.closeSend()
			l.turns()
			v.closeSend()
			none := 0
			l.a.nic.ring = &none
			others := l.dial(l.a, l.b, 7)
			others.toSend = 1 << 20
			for n := l.a.tx.n; n < len(l.a.tx.frames); n++ { // all that waits is for others, and it is full
				b := l.a.pool.Alloc()
				l.a.pool.Desc(b).Len = 60
				l.a.tx.reply(b, inet.MAC{2, 5: 9})
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			l, u, v := newLab(t, nil).opened()
			u.onClosed = func() { require.False(t, l.a.tx.hasFrames(u.conn)) }
			end(l, u, v)
			none := 0
			l.a.nic.ring = &none
			for range 3 + r.IntN(20) {
				l.a.Turn()
				l.b.Turn()
				require.Zero(t, u.closed)
			}
			l.a.nic.ring = nil
			l.until("told", func() bool { return u.closed == 1 && v.closed == 1 })
			require.Empty(t, l.a.leavers.all)
			l.pass(61 * second)
			l.whole()
		})
	}
}

// So many may wait; the others are told at once, and all when the Poller ends, or after a second.
func TestFewWaitForTheDevice(t *testing.T) {
	const conns = leavingMax + 10
	l := newLab(t, func(_ int, cfg *Config) {
		cfg.ConnsMax, cfg.BurstMax, cfg.PendingMax = 2*conns, 128, 512
	})
	l.listen(l.b, 7, conns)
	var all []*peer
	for range conns {
		all = append(all, l.dial(l.a, l.b, 7))
		l.until("open", func() bool { return all[len(all)-1].opened })
	}
	none := 0
	l.a.nic.ring = &none
	for _, u := range all {
		u.conn.Abort()
	}
	told := func() (n int) {
		for _, u := range all {
			n += u.closed
		}
		return n
	}
	for range 10 {
		l.a.Turn()
	}
	require.Equal(t, conns-leavingMax, told())
	if stop := time.Now().UnixNano()&1 == 0; stop {
		t.Log("the Poller ends")
		l.stop()
	} else {
		l.now += leavingNs
		l.a.Turn()
	}
	require.Equal(t, conns, told())
}

// What the device has refused it takes late, though an ACK that came afterwards goes first.
func TestRefusedFramesAreLateBehindOthers(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	w := l.dial(l.a, l.b, 7)
	l.until("open", func() bool { return w.opened && len(l.accepted) == 2 })
	none, many := 0, 100
	l.a.nic.ring = &none
	u.send(5 * u.conn.EMSS())
	l.a.Turn()
	require.Equal(t, 5, l.a.tx.refused)
	refused := append([]mem.Buf(nil), l.a.tx.frames[:5]...)
	l.now += 2 * ms
	l.accepted[1].send(2 * u.conn.EMSS())
	l.b.Turn()
	l.a.nic.ring = &many
	l.a.Turn()
	require.Zero(t, l.a.tx.n)
	for i, b := range refused {
		require.NotZero(t, l.a.tx.meta[b].late, "segment %d", i)
	}
	l.a.nic.ring = nil
}
