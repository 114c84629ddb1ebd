package stack

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// crowd puts as many frames for somebody else on the way to a as it takes in one Turn, and some
// more.
func (l *lab) crowd() {
	for range burstsPerTurnMax*len(l.a.rx) + 1 {
		l.b.nic.inject(make([]byte, 64))
	}
}

// An ACK that is in the device's queue, after more frames than one Turn takes, has come: nothing
// is sent again when the Poller was away for longer than the retransmission timer.
func TestTimersWaitForUnreadFrames(t *testing.T) {
	l := newLab(t, nil)
	u, _ := l.open()
	u.send(2 * u.conn.EMSS())
	for u.sent < u.toSend {
		l.a.Turn()
	}
	l.crowd()
	l.b.Turn() // its ACK goes after them
	l.now += 5 * second
	for u.acked < u.toSend {
		require.NotZero(t, l.a.Turn())
	}
	require.Zero(t, u.conn.Stats().Retransmits)
	l.stop()
}

// They do not wait for long: a device that always has more does not stop them.
func TestTimersDoNotWaitForLong(t *testing.T) {
	l := newLab(t, nil)
	u, _ := l.open()
	u.send(2 * u.conn.EMSS())
	l.a.nic.lose = func(f []byte) bool { _, payload, ok := segmentOf(f); return ok && len(payload) > 0 }
	l.turns()
	l.a.nic.lose = nil
	l.now += 5 * second
	for sent := range uint64(2) { // each time anew
		turns := 0
		for u.conn.Stats().Retransmits == sent {
			l.crowd()
			l.a.Turn()
			turns++
			require.LessOrEqual(t, turns, timersWaitMax+1)
		}
		require.Equal(t, timersWaitMax+1, turns)
		l.now += 5 * second
	}
	l.stop()
}
