package stack

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// crowd puts as many frames for somebody else on the way to a as it takes in one Turn, and some
// more.
func (l *lab) crowd() {
	for range burstsPerTurnMax*len(l.a.rx.burst) + 1 {
		l.b.nic.inject(make([]byte, 64))
	}
}

// An ACK that is in the device's queue, after more frames than one Turn takes, has come: nothing
// is sent again when the Poller was away for longer than the retransmission timer.
func TestTimersWaitForUnreadFrames(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
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
}

// They do not wait for long: a device that always has more does not stop them.
func TestTimersDoNotWaitForLong(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	u.send(2 * u.conn.EMSS())
	l.a.nic.lose = func(f []byte) bool {
		_, payload, ok := segmentOf(f)
		return ok && len(payload) > 0
	}
	l.turns()
	l.a.nic.lose = nil
	l.now += 5 * second
	for sent := range uint64(2) { // each time again
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
}

// unanswered is a lab in which a has sent segments that b has not read, and a loss probe waits for
// their ACK.
func unanswered(t *testing.T) (l *lab, u *peer) {
	l = newLab(t, nil)
	u, _ = l.open()
	u.send(4 * u.conn.EMSS())
	for u.sent < u.toSend {
		l.a.Turn()
	}
	require.Equal(t, l.now+ms, u.conn.tcp.Deadline(), "the probe")
	return l, u
}

// What keeps a Poller away for longer than a loss probe waits often keeps its peer's away, too. It
// sends nothing again before it has waited for the ACK while it was there.
func TestPauseOfBothPollersCostsNothing(t *testing.T) {
	for _, pause := range []int64{ms + 1, 3 * ms, 30 * ms, 300 * ms} {
		l, u := unanswered(t)
		for range 3 { // and again, before the peer is back
			l.now += pause
			l.a.Turn()
			l.now += 10_000
			l.a.Turn()
		}
		require.Zero(t, u.conn.Stats().Retransmits)
		l.turns()
		require.Equal(t, u.toSend, u.acked)
		require.Zero(t, u.conn.Stats().Retransmits)
		l.stop()
	}
}

// A probe that was put off waits for what was left of its time, and not for ever where the Poller
// is away between any two Turns.
func TestProbeGoesAfterPauses(t *testing.T) {
	l, u := unanswered(t)
	for range 50 {
		l.now += 10_000
		l.a.Turn()
	}
	l.now += 20 * ms
	l.a.Turn()
	for range 49 {
		l.now += 10_000
		l.a.Turn()
	}
	require.Zero(t, u.conn.Stats().Retransmits, "half of its time was left")
	l.now += 10_000
	l.a.Turn()
	require.EqualValues(t, 1, u.conn.Stats().LossProbes)
	l.turns()
	l.stop()

	l, u = unanswered(t)
	began := l.now
	for u.conn.Stats().LossProbes == 0 {
		l.now += ms - 1000
		l.a.Turn()
		require.LessOrEqual(t, l.now-began, 8*ms)
	}
	require.Zero(t, u.conn.Stats().Timeouts)
	l.turns()
}

// A Poller that slept until the probe was due was not away, however long it slept, nor one that
// has something to do in every Turn.
func TestProbeIsNotPutOffBySleep(t *testing.T) {
	l, u := unanswered(t)
	due := u.conn.tcp.Deadline()
	l.a.sleeps(due)
	l.now = due + awayMin/2
	l.a.Turn()
	require.EqualValues(t, 1, u.conn.Stats().LossProbes)
	l.turns()
	l.stop()

	l, u = unanswered(t)
	for due = u.conn.tcp.Deadline(); l.now < due; l.a.Turn() {
		l.now = l.a.Deadline() + awayMin/2 // what turns it may sleep that long, too
	}
	require.EqualValues(t, 1, u.conn.Stats().LossProbes)
	l.turns()
	l.stop()

	l, u = unanswered(t)
	for end := l.now + ms + awayMin; l.now < end; l.now += awayMin - 1000 {
		l.a.Turn()
	}
	require.EqualValues(t, 1, u.conn.Stats().LossProbes)
	l.turns()
}

func TestUpperTimer(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	at := l.now + 5*ms
	u.conn.SetTimer(at)
	l.pass(20 * ms)
	require.Equal(t, []int64{at}, u.timer, "once, in time")

	u.conn.SetTimer(l.now + 5*ms)
	u.conn.SetTimer(0)
	l.pass(20 * ms)
	require.Len(t, u.timer, 1, "0 clears")

	u.conn.SetTimer(l.now + 5*ms)
	l.turns()
	u.conn.SetTimer(l.now + 50*ms) // later than it stood: the early entry must not fire
	l.pass(20 * ms)
	require.Len(t, u.timer, 1)
	u.conn.SetTimer(l.now - 1) // passed: with the next Turn
	l.pass(1 * ms)
	require.Len(t, u.timer, 2)
}

// An Upper's timer that comes due while the Poller is away does not fire with what has come:
// whoever was away, too, has as long to answer, up to a second. Whether the Poller was at work or
// asleep when the pause began, and whenever it did.
func TestUpperTimerOutlastsAPause(t *testing.T) {
	for _, asleep := range []bool{false, true} {
		for _, ran := range []int64{0, 200 * ms, 399 * ms} {
			for _, pause := range []int64{450 * ms, 700 * ms, 20 * second} {
				l, u, _ := newLab(t, nil).opened()
				at := l.now + 400*ms
				u.conn.SetTimer(at)
				l.a.Turn()
				l.now += ran
				if asleep {
					l.a.sleeps(at)
				} else {
					l.a.Turn()
				}
				began := max(l.now, l.a.backAt)
				l.now += pause
				resumed := l.now
				l.a.Turn()
				require.Empty(t, u.timer)
				l.pass(3 * second)
				require.Equal(t, []int64{resumed + min(resumed-began, second)}, u.timer)
				l.stop()
			}
		}
	}
}

// It is put off once, also where the Poller is away between any two Turns; and not where it was
// away only for a moment, nor where it passed before.
func TestUpperTimerIsPutOffOnce(t *testing.T) {
	l, u, _ := newLab(t, nil).opened()
	for n := 1; n < 4; n++ { // each time again
		began := l.now
		u.conn.SetTimer(began + 100*ms)
		for len(u.timer) < n {
			l.now += 150 * ms
			l.a.Turn()
		}
		require.Equal(t, began+300*ms, l.now)
	}

	u.conn.SetTimer(l.now + 100*ms)
	l.a.Turn()
	l.now += 99 * ms
	l.a.Turn()
	l.now += awayLongMin - 1
	l.a.Turn()
	require.Len(t, u.timer, 4, "a moment")

	u.conn.SetTimer(l.now - 100*ms)
	l.a.Turn()
	l.now += 50 * ms
	l.a.Turn()
	require.Len(t, u.timer, 5, "it passed before")
}

// An Upper's timer does not fire after Closed, and a Poller without connections has no deadline.
func TestTimersEndWithTheirConnection(t *testing.T) {
	l, u, v := newLab(t, nil).opened()
	u.conn.SetTimer(l.now + second)
	v.conn.SetTimer(l.now + second)
	l.finish(u, v)
	require.Equal(t, 1, l.a.counters().TimeWait)
	require.Equal(t, int64(math.MaxInt64), l.b.timers.first())
	before := l.a.counters().Timers
	l.pass(2 * second)
	require.Equal(t, before, l.a.counters().Timers)
	require.Empty(t, u.timer)
}

// An Upper that has aborted its connection hears of no timer, not in the same Turn either.
func TestNoTimerAfterAbort(t *testing.T) {
	for _, abort := range []bool{false, true} {
		l, u, _ := newLab(t, nil).opened()
		u.conn.SetTimer(l.now + 5)
		l.turns()
		l.now += 5
		if abort {
			u.conn.Abort()
		}
		l.a.Turn()
		require.Equal(t, abort, len(u.timer) == 0)
		l.stop()
	}
}
