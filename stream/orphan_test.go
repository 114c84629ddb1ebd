package stream

import (
	"io"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

const finWait2 = 30 * time.Second

func shortFinWait2(_ int, cfg *stack.Config) { cfg.TCP.FinWait2Ns = int64(finWait2) }

// A peer that acknowledges our FIN but keeps its half open does not hold a closed connection for
// ever: FIN-WAIT-2 ends after tcp.Config.FinWait2Ns, without a word, and a peer that speaks later
// finds the connection closed, as with Linux.
//
// req: 9293-MAY-1, 9293-SHLD-3
func TestFinWait2EndsAfterClose(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, shortFinWait2, Options{FlushTimeout: time.Second})
	v.write(a, "last words")
	require.NoError(t, a.Close())
	v.until("FIN-WAIT-2", func() bool { return v.hosts[0].stateOf(a) == tcp.FinWait2 })
	v.sizes(0)
	require.InDelta(t, finWait2, v.until("the end", dead(a)), float64(time.Millisecond))
	require.ErrorIs(t, a.u.err, stack.ErrTimeout)
	require.Equal(t, uint64(1), CountersOf(v.hosts[0].Poller).FinWait2Timeouts)
	require.Zero(t, CountersOf(v.hosts[0].Poller).FlushTimeouts)
	require.Empty(t, v.hosts[0].nic.sent, "nothing is said")
	require.Zero(t, v.conns(0))

	require.Equal(t, "last words", v.read(b))
	require.Equal(t, io.EOF, errOf(b.TryRead(make([]byte, 1))))
	v.write(b, "late")
	v.until("the reset", dead(b))
	wantOp(t, errOf(b.TryWrite([]byte("x"))), "write", syscall.EPIPE)
}

// CloseWrite alone waits for the peer as long as it likes: somebody reads. The time counts from
// Close.
//
// req: 9293-3.6-1
func TestFinWait2WaitsForAReader(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, shortFinWait2, Options{FlushTimeout: time.Second})
	require.NoError(t, a.CloseWrite())
	v.pass(100 * time.Hour)
	require.Equal(t, tcp.FinWait2, v.info(a).TCP.State)
	v.write(b, "still talking")
	v.pass(0)
	require.Equal(t, "still talking", v.read(a))
	require.NoError(t, a.CloseRead()) // no more than half a wish to go
	v.pass(100 * time.Hour)
	require.Equal(t, tcp.FinWait2, v.info(a).TCP.State)

	require.NoError(t, a.Close())
	require.InDelta(t, finWait2, v.until("the end", dead(a)), float64(time.Millisecond))
	require.Equal(t, uint64(1), CountersOf(v.hosts[0].Poller).FinWait2Timeouts)
}

// SetFinWait2 has a time for one connection, before CloseWrite or after; below 0 there is none.
func TestFinWait2OfOneConnection(t *testing.T) {
	for want, set := range map[time.Duration]time.Duration{
		finWait2: 0, 5 * time.Second: 5 * time.Second, time.Second: 1, 0: -1,
		90 * time.Second: 90 * time.Second,
	} {
		for _, late := range []bool{false, true} {
			v, a, b := newVirtualPair(t, 0, shortFinWait2, Options{FlushTimeout: time.Second})
			if !late {
				require.NoError(t, a.SetFinWait2(set))
			}
			require.NoError(t, a.CloseWrite())
			v.pass(time.Minute)
			require.Equal(t, tcp.FinWait2, v.info(a).TCP.State)
			if late {
				require.NoError(t, a.SetFinWait2(set))
			}
			require.NoError(t, a.Close())
			require.InDelta(t, want, v.until("the end", dead(a)), float64(time.Millisecond), "%v", set)
			require.Empty(t, v.sizes(0))
			v.write(b, "late")
			v.until("the reset", dead(b))
		}
	}
	v := newVirtual(t, 0, shortFinWait2) // the FIN comes with the acknowledgment of ours
	a, b := v.pair(Options{}, Options{})
	require.NoError(t, a.SetFinWait2(-1))
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	v.until("both", func() bool { return dead(a)() && dead(b)() })
	require.Zero(t, CountersOf(v.hosts[0].Poller).FinWait2Timeouts)
}

// The peer's FIN within the time leads to an ordinary TIME-WAIT.
func TestFinWait2EndsWithTheFIN(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, shortFinWait2)
	require.NoError(t, a.Close())
	v.pass(finWait2 - time.Second)
	require.NoError(t, b.Close())
	v.until("closed", func() bool { return dead(a)() && dead(b)() })
	require.NoError(t, a.u.err)
	require.Zero(t, CountersOf(v.hosts[0].Poller).FinWait2Timeouts)
}

// FlushTimeout bounds the wait for octets that are not acknowledged, and for our FIN.
func TestFlushTimeoutIsForWhatIsUnacknowledged(t *testing.T) {
	v, a, _ := newVirtualPair(t, 0, nil, Options{FlushTimeout: 7 * time.Second})
	v.hosts[0].nic.lose = func(f sentFrame) bool { return f.seg.Flags&tcp.FIN != 0 }
	require.NoError(t, a.Close())
	require.InDelta(t, 7*time.Second, v.until("given up", dead(a)), float64(time.Millisecond))
	require.Equal(t, uint64(1), CountersOf(v.hosts[0].Poller).FlushTimeouts)
}

// stateOf is c's TCP state.
func (h *virtualHost) stateOf(c *Conn) tcp.State {
	if c.u.conn == nil {
		return tcp.Closed
	}
	return c.u.conn.State()
}

// lingering closes c, which waits for so long at the most; the channel tells when it has returned.
// The Poller has not been turned yet.
func lingering(t *testing.T, c *Conn, seconds int) <-chan error {
	require.NoError(t, c.SetLinger(seconds))
	closing := in(c.Close)
	for end := time.Now().Add(patience); c.u.requests.Load()&requestClose == 0; runtime.Gosched() {
		require.True(t, time.Now().Before(end), "nobody is asked")
	}
	return closing
}

// SO_LINGER: Close returns when the FIN is acknowledged, not when all octets are; until then it
// waits.
func TestLingerWaitsForTheFIN(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil)
	v.write(a, "octets")
	v.until("acknowledged", func() bool { return v.info(a).Acked == 6 })
	silent := true
	v.hosts[1].nic.lose = func(sentFrame) bool { return silent }
	closing := lingering(t, a, 3600)
	v.until("FIN-WAIT-1", func() bool { return v.hosts[0].stateOf(a) == tcp.FinWait1 })
	v.pass(20 * time.Second)
	require.Equal(t, tcp.FinWait1, v.hosts[0].stateOf(a))
	require.Empty(t, closing, "the FIN is not acknowledged")
	silent = false
	v.until("FIN-WAIT-2", func() bool { return v.hosts[0].stateOf(a) == tcp.FinWait2 })
	v.during(func() { require.NoError(t, <-closing) })
	require.Equal(t, "octets", v.read(b))
	require.NoError(t, b.Close())
	v.until("closed", dead(a))

	// octets that are acknowledged after Close are not enough either
	a, b = v.pair(Options{}, Options{})
	lose := true
	v.hosts[0].nic.lose = func(f sentFrame) bool { return lose && f.seg.Flags&tcp.FIN != 0 }
	v.write(a, "octets")
	closing = lingering(t, a, 3600)
	v.until("it is there", func() bool { return b.Unread() == 6 })
	v.pass(20 * time.Second)
	require.Equal(t, uint64(6), v.info(a).Acked)
	require.Empty(t, closing)
	lose = false
	v.until("FIN-WAIT-2", func() bool { return v.hosts[0].stateOf(a) == tcp.FinWait2 })
	v.during(func() { require.NoError(t, <-closing) })
}

// The same where the peer has closed first, where both close at once, and where the connection
// breaks.
func TestLingerReturnsAtTheEnd(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil)
	require.NoError(t, b.Close())
	v.until("CLOSE-WAIT", func() bool { return v.hosts[0].stateOf(a) == tcp.CloseWait })
	closing := lingering(t, a, 3600)
	v.during(func() { require.NoError(t, <-closing) })
	v.until("closed", func() bool { return dead(a)() && dead(b)() })

	a, b = v.pair(Options{}, Options{})
	closing = lingering(t, a, 3600)
	other := lingering(t, b, 3600)
	v.during(func() { require.NoError(t, <-closing); require.NoError(t, <-other) })
	v.until("closed", func() bool { return dead(a)() && dead(b)() })

	a, b = v.pair(Options{}, Options{})
	require.NoError(t, b.SetLinger(0))
	v.hosts[1].nic.lose = func(f sentFrame) bool { return f.seg.Flags&tcp.RST == 0 }
	closing = lingering(t, a, 3600)
	v.until("FIN-WAIT-1", func() bool { return v.hosts[0].stateOf(a) == tcp.FinWait1 })
	require.NoError(t, b.Close())
	v.during(func() { require.NoError(t, <-closing) })
	require.ErrorIs(t, a.u.err, stack.ErrReset)
	v.hosts[1].nic.lose = nil

	a, _ = v.pair(Options{}, Options{}) // closed for writing long ago: nothing to wait for
	require.NoError(t, a.CloseWrite())
	v.until("FIN-WAIT-2", func() bool { return v.hosts[0].stateOf(a) == tcp.FinWait2 })
	closing = lingering(t, a, 3600)
	v.during(func() { require.NoError(t, <-closing) })
}
