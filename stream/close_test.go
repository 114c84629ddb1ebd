package stream

import (
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
)

// wantOp checks that err is what package net would give.
func wantOp(t *testing.T, err error, op string, is error) {
	t.Helper()
	var oe *net.OpError
	require.ErrorAs(t, err, &oe)
	require.Equal(t, op, oe.Op)
	require.Equal(t, "tcp", oe.Net)
	require.ErrorIs(t, err, is)
}

// in runs a call that should block, and says how it ended.
func in(f func() error) <-chan error {
	done := make(chan error, 1)
	go func() { done <- f() }()
	return done
}

func (l *lab) result(ch <-chan error) error {
	l.t.Helper()
	select {
	case err := <-ch:
		return err
	case <-l.ctx.Done():
		l.t.Fatal("blocked")
		return nil
	}
}

func readOne(c net.Conn) error {
	_, err := c.Read(make([]byte, 1))
	return err
}

// readAll is what can be read before an error.
func readAll(c net.Conn) (string, error) {
	b, err := io.ReadAll(c)
	return string(b), err
}

// fillUp writes until no more is taken.
func fillUp(t *testing.T, c *Conn) {
	t.Helper()
	require.NoError(t, c.SetWriteDeadline(time.Now().Add(100*time.Millisecond)))
	for {
		if _, err := c.Write(make([]byte, 64<<10)); err != nil {
			require.ErrorIs(t, err, os.ErrDeadlineExceeded)
			break
		}
	}
	require.NoError(t, c.SetWriteDeadline(time.Time{}))
}

func TestHalfClose(t *testing.T) {
	_, a, b := newPair(t, labConfig{})
	must(a.Write([]byte("question")))(t)
	require.NoError(t, a.CloseWrite())
	got := must(readAll(b))(t)
	require.Equal(t, "question", got)
	wantOp(t, errOf(a.Write([]byte("more"))), "write", syscall.EPIPE)

	must(b.Write([]byte("answer")))(t)
	require.NoError(t, b.Close())
	got = must(readAll(a))(t)
	require.Equal(t, "answer", got)
	require.Equal(t, io.EOF, readOne(a), "again")
}

// req: 9293-MUST-12, 9293-SHLD-3
func TestCloseWithUnreadOctetsResets(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	l.unread(a, b, "unread")
	require.NoError(t, b.Close())
	wantOp(t, readOne(a), "read", syscall.ECONNRESET)
	wantOp(t, errOf(a.Write([]byte("x"))), "write", syscall.ECONNRESET)
	require.Equal(t, uint64(1), CountersOf(l.hosts[1].Poller).UnreadAtClose)
}

// req: 9293-SHLD-3
func TestOctetsAfterCloseReset(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	require.NoError(t, b.Close())
	require.Equal(t, io.EOF, readOne(a))
	must(a.Write([]byte("late")))(t)
	l.until("the reset", func() bool { return a.u.state.Load()&stateDead != 0 })
	wantOp(t, errOf(a.Write([]byte("later"))), "write", syscall.EPIPE) // in CLOSE-WAIT, as Linux
	require.Equal(t, uint64(1), CountersOf(l.hosts[1].Poller).AfterClose)
}

// req: 9293-MUST-12
func TestLingerZeroResetsBothWays(t *testing.T) {
	for _, accepted := range []bool{false, true} {
		l, a, b := newPair(t, labConfig{})
		if accepted {
			a, b = b, a
		}
		l.unread(a, b, "before the reset")
		require.NoError(t, abort(a))
		l.until("the reset", func() bool { return b.u.state.Load()&stateDead != 0 })
		got, err := readAll(b) // what came before it can be read
		require.Equal(t, "before the reset", got)
		wantOp(t, err, "read", syscall.ECONNRESET)
	}
}

func TestLingerGivesUp(t *testing.T) {
	_, a, b := newPair(t, labConfig{})
	fillUp(t, a)
	require.NoError(t, a.SetLinger(1))
	start := time.Now()
	require.NoError(t, a.Close())
	require.GreaterOrEqual(t, time.Since(start), time.Second)
	require.NoError(t, b.Close())
}

func TestFlushIsBounded(t *testing.T) {
	l, a, b := newPair(t, labConfig{}, Options{FlushTimeout: 50 * time.Millisecond})
	fillUp(t, a)
	require.NoError(t, a.Close()) // and b does not read
	l.until("the reset", func() bool { return b.u.state.Load()&stateDead != 0 })
	require.ErrorIs(t, b.u.err, stack.ErrReset)
	require.Equal(t, uint64(1), CountersOf(l.hosts[0].Poller).FlushTimeouts)
}

// req: 9293-MAY-1
func TestCloseRead(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	l.unread(a, b, "unread")
	require.NoError(t, b.CloseRead())
	require.Equal(t, io.EOF, readOne(b))
	want := random(1, 3<<20) // beyond all windows: thrown away as it comes
	must(a.Write(want))(t)
	l.until("all of it was thrown away", func() bool {
		return b.u.told.Load() == uint64(len("unread")+len(want))
	})
	must(b.Write([]byte("still talking")))(t)
	require.NoError(t, b.Close()) // nothing is unread: no RST
	got := must(readAll(a))(t)
	require.Equal(t, "still talking", got)
}

func TestCloseReadReleasesReader(t *testing.T) {
	l, a, _ := newPair(t, labConfig{})
	done := in(func() error { return readOne(a) })
	l.until("reader waits", a.u.reader.waiting.Load)
	require.NoError(t, a.CloseRead())
	require.Equal(t, io.EOF, l.result(done))
}

func TestCloseReleasesBlockedCalls(t *testing.T) {
	l, a, _ := newPair(t, labConfig{})
	fillUp(t, a)
	reading := in(func() error { return readOne(a) })
	writing := in(func() error { _, err := a.Write(make([]byte, 1<<20)); return err })
	l.until("both wait", func() bool { return a.u.reader.waiting.Load() && a.u.writer.waiting.Load() })
	require.NoError(t, abort(a))
	wantOp(t, l.result(reading), "read", net.ErrClosed)
	wantOp(t, l.result(writing), "write", net.ErrClosed)
	for op, err := range map[string]error{"close": a.Close(), "set": a.SetNoDelay(false),
		"read": readOne(a)} {
		wantOp(t, err, op, net.ErrClosed)
	}
	require.ErrorIs(t, a.SetDeadline(time.Now()), net.ErrClosed)
	require.ErrorIs(t, a.CloseWrite(), net.ErrClosed)
	require.ErrorIs(t, a.CloseRead(), net.ErrClosed)
}

func TestCloseWriteReleasesWriter(t *testing.T) {
	l, a, _ := newPair(t, labConfig{})
	fillUp(t, a)
	writing := in(func() error { _, err := a.Write(make([]byte, 1<<20)); return err })
	l.until("writer waits", a.u.writer.waiting.Load)
	require.NoError(t, a.CloseWrite())
	wantOp(t, l.result(writing), "write", syscall.EPIPE)
}

func TestStoppedPollerEndsBlockedCalls(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	l.unread(b, a, "still to be read")
	fillUp(t, a)
	ln := must(Listen(l.hosts[0].mine, 80, Options{}))(t)
	accepting := in(func() error { _, err := ln.Accept(); return err })
	writing := in(func() error { _, err := a.Write(make([]byte, 1<<20)); return err })
	dialing := in(func() error {
		_, err := (&Dialer{Pollers: l.hosts[0].mine}).Dial("tcp", "10.0.0.77:1") // nobody there
		return err
	})
	l.until("writer waits", a.u.writer.waiting.Load)
	l.hosts[0].Stop()
	wantOp(t, l.result(accepting), "accept", syscall.ENETDOWN)
	wantOp(t, l.result(writing), "write", syscall.ENETDOWN)
	require.Error(t, l.result(dialing))
	l.wait(l.hosts[0].Done())
	require.Equal(t, l.hosts[0].pool.Size(), l.hosts[0].pool.Available(),
		"Bufs are back although octets are unread")
	got, err := readAll(a)
	require.Equal(t, "still to be read", got)
	wantOp(t, err, "read", syscall.ENETDOWN)
	_, err = Dial(l.ctx, l.hosts[0].mine, b.LocalAddr().(*net.TCPAddr).AddrPort(), Options{})
	wantOp(t, err, "dial", syscall.ENETDOWN)
	require.NoError(t, ln.Close())
}

func TestDeadlines(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	for range 50 { // changed while blocked: earlier, later, away; and always in time
		require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Hour)))
		done := in(func() error { return readOne(a) })
		var wg sync.WaitGroup
		wg.Go(func() { _ = a.SetReadDeadline(time.Now().Add(time.Minute)) })
		wg.Go(func() { _ = a.SetReadDeadline(time.Time{}) })
		wg.Wait()
		require.NoError(t, a.SetReadDeadline(time.Now().Add(time.Millisecond)))
		err := l.result(done)
		wantOp(t, err, "read", os.ErrDeadlineExceeded)
		var ne net.Error
		require.ErrorAs(t, err, &ne)
		require.True(t, ne.Timeout())
	}
	l.unread(b, a, "x")
	require.ErrorIs(t, readOne(a), os.ErrDeadlineExceeded, "past, and octets are there")
	require.NoError(t, a.SetReadDeadline(time.Time{}))
	require.NoError(t, readOne(a))
	fillUp(t, a)
	done := in(func() error { _, err := a.Write(make([]byte, 1<<20)); return err })
	l.until("writer waits", a.u.writer.waiting.Load)
	require.NoError(t, a.SetWriteDeadline(time.Unix(1, 0)))
	wantOp(t, l.result(done), "write", os.ErrDeadlineExceeded)
}

func TestKeepAliveOptions(t *testing.T) {
	_, a, _ := newPair(t, labConfig{},
		Options{KeepAlive: net.KeepAliveConfig{Enable: true, Idle: time.Second}})
	require.Equal(t, &keepAlive{int64(time.Second), int64(keepIntervalDefault), keepCountDefault},
		a.u.settings.keepAlive.Load())
	require.NoError(t, a.SetKeepAlive(true))
	require.NoError(t, a.SetKeepAlivePeriod(time.Minute))
	require.NoError(t, a.SetKeepAlive(false))
	require.Equal(t, &keepAlive{}, a.u.settings.keepAlive.Load())
	require.NoError(t, a.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: time.Second,
		Interval: time.Minute, Count: 5}))
	require.NoError(t, a.SetKeepAliveConfig(net.KeepAliveConfig{Enable: true, Idle: -1, Count: -1}),
		"as they were")
	require.Equal(t, &keepAlive{int64(time.Second), int64(keepIntervalDefault), 5},
		a.u.settings.keepAlive.Load())
}

// A peer that has gone away without a word is found out by keep-alives, and a Read that waits for
// it returns.
//
// req: 9293-MUST-24, 9293-MUST-27
func TestKeepAliveFindsADeadPeer(t *testing.T) {
	l, a, _ := newPair(t, labConfig{},
		Options{KeepAlive: net.KeepAliveConfig{Enable: true, Idle: 20 * time.Millisecond,
			Interval: 10 * time.Millisecond, Count: 3}}, Options{})
	wake := make(chan struct{})
	defer close(wake)
	require.NoError(t, l.hosts[1].Submit(func() { <-wake })) // deaf and mute
	wantOp(t, errOf(a.Read(make([]byte, 1))), "read", syscall.ETIMEDOUT)
}
