package stream

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// req: 9293-MUST-21
func TestUserTimeout(t *testing.T) {
	v := newVirtual(t, 0, func(_ int, cfg *stack.Config) {
		cfg.TCP.UserTimeoutNs = int64(50 * time.Second)
	})
	for _, c := range []struct {
		option, set time.Duration
		want        time.Duration
	}{{0, 0, 50 * time.Second}, {3 * time.Second, 0, 3 * time.Second},
		{0, 20 * time.Minute, 20 * time.Minute}, {time.Second, 4 * time.Second, 4 * time.Second}} {
		a, b := v.pair(Options{UserTimeout: c.option}, Options{})
		if c.set != 0 {
			require.NoError(t, a.SetUserTimeout(c.set))
		}
		v.hosts[0].nic.lose = func(sentFrame) bool { return true }
		v.write(a, "hello?")
		require.InDelta(t, c.want, v.until("given up", dead(a)), float64(time.Millisecond), "%+v", c)
		wantOp(t, errOf(a.TryRead(make([]byte, 1))), "read", syscall.ETIMEDOUT)
		v.hosts[0].nic.lose = nil
		require.NoError(t, abort(b))
		v.until("closed", dead(b))
	}
	a, _ := v.pair(Options{UserTimeout: -1}, Options{})
	v.hosts[0].nic.lose = func(sentFrame) bool { return true }
	v.write(a, "hello?")
	v.pass(1000 * time.Hour)
	require.False(t, dead(a)())
	require.NoError(t, a.SetUserTimeout(0))
	v.until("given up, as configured", dead(a))
}

// Options that are set now and then, keep-alives among them, do not make a vanished peer one that
// was heard.
func TestKeepAliveOutlastsOptions(t *testing.T) {
	keep := net.KeepAliveConfig{Enable: true, Idle: 10 * time.Second, Interval: 2 * time.Second,
		Count: 3}
	for name, set := range map[string]func(c *Conn) error{
		"none":         func(*Conn) error { return nil },
		"no delay":     func(c *Conn) error { return c.SetNoDelay(true) },
		"TOS":          func(c *Conn) error { return c.SetTOS(8) },
		"user timeout": func(c *Conn) error { return c.SetUserTimeout(time.Hour) },
		"buffers": func(c *Conn) error {
			return errors.Join(c.SetReadBuffer(1<<16), c.SetWriteBuffer(1<<16))
		},
		"congestion":  func(c *Conn) error { return c.SetCongestion("reno") },
		"keep-alives": func(c *Conn) error { return c.SetKeepAliveConfig(keep) },
	} {
		v, a, _ := newVirtualPair(t, 0, nil, Options{KeepAlive: keep})
		v.hosts[1].nic.lose = func(sentFrame) bool { return true }
		for range 15 {
			require.False(t, dead(a)(), name)
			require.NoError(t, set(a), name)
			v.pass(time.Second)
		}
		require.InDelta(t, time.Second, v.until("given up", dead(a)), float64(100*time.Millisecond), name)
		wantOp(t, errOf(a.TryRead(make([]byte, 1))), "read", syscall.ETIMEDOUT)
	}
}

// A setting is told to the stack when it is said, and not with each other one.
func TestSettingsAreToldOnce(t *testing.T) {
	v, a, _ := newVirtualPair(t, 0, nil, Options{Nagle: true, TOS: 8, UserTimeout: time.Hour})
	require.Zero(t, a.u.settings.changed.Load())
	v.during(func() {
		require.NoError(t, submit(context.Background(), v.hosts[0].Poller, func() {
			a.u.conn.SetUserTimeout(int64(time.Second))
		}))
	})
	require.NoError(t, a.SetNoDelay(true))
	v.pass(time.Millisecond)
	v.hosts[0].nic.lose = func(sentFrame) bool { return true }
	v.write(a, "hello?")
	require.InDelta(t, time.Second, v.until("given up", dead(a)), float64(100*time.Millisecond))
}

// A dial's SYNs are bounded as well.
//
// req: 9293-MUST-21
func TestUserTimeoutOfADial(t *testing.T) {
	v := newVirtual(t, 0, nil)
	v.hosts[0].nic.lose = func(sentFrame) bool { return true }
	failed := in(func() error {
		_, err := Dial(context.Background(), v.hosts[0].mine, netip.AddrPortFrom(v.hosts[1].addr, 80),
			Options{UserTimeout: 5 * time.Second})
		return err
	})
	v.during(func() { // Turns, but no time
		for v.hosts[0].Submit(func() {}) != nil {
		}
	})
	for v.conns(0) == 0 {
		v.turn()
	}
	begin := v.now
	v.until("given up", func() bool { return v.conns(0) == 0 })
	require.InDelta(t, 5*time.Second, v.now-begin, float64(time.Second/10))
	var err error
	v.during(func() { err = <-failed })
	wantOp(t, err, "dial", syscall.ETIMEDOUT)
}

// req: 9293-MUST-48, 9293-SHLD-21
func TestTOS(t *testing.T) {
	v := newVirtual(t, 0, nil)
	for _, to := range []netip.Addr{v.hosts[1].addr, netip.MustParseAddr("fd00::2")} {
		v.sizes(0)
		v.sizes(1)
		a, b := v.pairAt(netip.AddrPortFrom(to, 80), Options{TOS: 0xb9}, Options{TOS: 0x28})
		wantTOS := func(i int, tos uint8, flags tcp.Flags) {
			t.Helper()
			n := 0
			for _, f := range v.hosts[i].nic.sent {
				if f.seg.Flags&flags != 0 {
					require.Equal(t, tos, f.tos, "%v: %+v", to, f)
					n++
				}
			}
			require.Positive(t, n)
			v.sizes(i)
		}
		wantTOS(0, 0xb8, tcp.SYN|tcp.ACK) // ECN's bits are not taken
		v.write(a, "x")
		v.pass(time.Second)
		v.sizes(1)
		v.write(b, "y")
		v.pass(time.Second)
		wantTOS(0, 0xb8, tcp.ACK)
		wantTOS(1, 0x28, tcp.ACK)
		require.NoError(t, a.SetTOS(0x48))
		v.write(a, "z")
		v.pass(time.Second)
		wantTOS(0, 0x48, tcp.ACK)
		for _, c := range []*Conn{a, b} {
			require.NoError(t, abort(c))
		}
		v.until("closed", func() bool { return dead(a)() && dead(b)() })
	}
}

// SetReadBuffer fixes the window: a smaller one as the left edge moves, a larger one at once, and
// either for good.
//
// req: 9293-SHLD-14
func TestReadBuffer(t *testing.T) {
	const large, small = 200_000, 10_000
	v, a, b := newVirtualPair(t, 0, nil)
	window := func() int { v.pass(time.Second); return v.info(a).TCP.SndWnd }
	require.InDelta(t, windowDefault, window(), 64)
	require.NoError(t, b.SetReadBuffer(large))
	v.write(a, "x") // an ACK says so, if nothing did before
	require.InDelta(t, large, window(), 64)
	require.InDelta(t, large, v.info(b).TCP.RcvWnd, 64)

	require.NoError(t, b.SetReadBuffer(small))
	require.InDelta(t, large, window(), 64, "what was promised stands")
	must(a.Write(make([]byte, large-small)))(t)
	v.until("it has come", func() bool { return b.Unread() == 1+large-small })
	require.InDelta(t, small, window(), 64)
	for range 4 { // it does not grow, however fast the reader is
		for b.Unread() > 0 {
			v.read(b)
		}
		v.pass(0)
		must(a.Write(make([]byte, small)))(t)
		v.until("it has come", func() bool { return b.Unread() == small })
	}
	v.read(b)
	require.InDelta(t, small, window(), 64)

	require.NoError(t, b.SetReadBuffer(1<<30))
	require.InDelta(t, pollerStateOf(v.hosts[1].Poller).windowMax(), window(), 64,
		"a quarter of the pool")
	for _, bad := range []int{0, -1, bufferMax + 1} {
		wantOp(t, b.SetReadBuffer(bad), "set", syscall.EINVAL)
		wantOp(t, b.SetWriteBuffer(bad), "set", syscall.EINVAL)
	}
}

// SetWriteBuffer says how much Write may leave to be sent; a Write that waits goes on when it
// grows.
func TestWriteBuffer(t *testing.T) {
	v, a, b := newVirtualPair(t, 0, nil, Options{SendBuffer: 64 << 10})
	v.hosts[0].nic.lose = func(sentFrame) bool { return true }
	total := 0
	fill := func() (took int) {
		for {
			n, err := a.TryWrite(make([]byte, 1<<20))
			if err != nil {
				wantOp(t, err, "write", syscall.EAGAIN)
				total += took
				return took
			}
			took += n
		}
	}
	require.Equal(t, 64<<10, fill())
	require.NoError(t, a.SetWriteBuffer(100_001)) // no power of two
	require.Equal(t, 100_001-64<<10, fill(), "what waits already counts")
	require.NoError(t, a.SetWriteBuffer(200_000))
	require.Equal(t, 200_000-100_001, fill())
	writing := in(func() error { _, err := a.Write(make([]byte, 300<<10)); return err })
	v.during(func() {
		for !a.u.writer.waiting.Load() {
		}
	})
	require.Empty(t, writing)
	require.NoError(t, a.SetWriteBuffer(1<<20))
	v.during(func() { require.NoError(t, <-writing) })

	// Smaller than what is written already: nothing is lost, and nothing more is taken until it has
	// gone.
	total += 300 << 10
	require.NoError(t, a.SetWriteBuffer(1))
	require.Zero(t, fill())
	v.hosts[0].nic.lose = nil
	got := 0
	v.until("all of it", func() bool { got += len(v.read(b)); return got == total })
	v.pass(time.Second)
	v.hosts[0].nic.lose = func(sentFrame) bool { return true }
	require.Equal(t, sendBufferMin, fill())
}

// After Close no setting makes sense.
func TestSettingsAfterClose(t *testing.T) {
	_, a, _ := newVirtualPair(t, 0, nil)
	require.NoError(t, abort(a))
	for name, err := range map[string]error{
		"SetUserTimeout": a.SetUserTimeout(time.Second), "SetTOS": a.SetTOS(1),
		"SetReadBuffer": a.SetReadBuffer(1), "SetWriteBuffer": a.SetWriteBuffer(1),
		"SetCork": a.SetCork(true), "SetCongestion": a.SetCongestion("reno"),
		"SetLinger": a.SetLinger(1), "SetNoDelay": a.SetNoDelay(true),
		"SetFinWait2": a.SetFinWait2(time.Second),
	} {
		wantOp(t, err, "set", net.ErrClosed)
		require.Error(t, err, name)
	}
	require.Error(t, a.SetCongestion("nonsense"))
}
