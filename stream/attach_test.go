package stream

import (
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// tenant is an Upper that takes so many octets and then moves out for a stream.
type tenant struct {
	testhost.Upper
	n    uint64
	opts Options
	out  chan *Conn
}

func (y *tenant) Established() { y.Conn.SetReceiveWindow(y.opts.ReceiveWindow) }
func (y *tenant) Arrive(off uint64, _ []mem.Buf, data [][]byte) (int, stack.Verdict) {
	for i, octets := range data {
		if off += uint64(len(octets)); off > y.n {
			return i + 1, stack.Refused
		}
	}
	return len(data), stack.Taken
}
func (y *tenant) Edge(edge uint64) {
	if edge == y.n {
		y.Conn.Wake()
	}
}
func (y *tenant) Woken() {
	a, _ := Attach(y.Conn.Poller(), y.Conn, y.n, y.opts)
	y.out <- a
}

// attached is a connection whose first n octets towards b were another Upper's.
func (l *lab) attached(n int, opts Options) (a, b *Conn) {
	l.t.Helper()
	const port = 4000
	y := &tenant{n: uint64(n), opts: opts, out: make(chan *Conn, 1)}
	h := l.hosts[1]
	l.do(h, func() {
		require.NoError(l.t, h.Listen(port, 1, func(c *stack.Conn) stack.Upper {
			y.Conn = c
			return y
		}))
	})
	addr := net.TCPAddr{IP: h.addr.AsSlice(), Port: port}
	a = must(Dial(l.ctx, l.hosts[0].mine, addr.AddrPort(), Options{}))(l.t)
	end, _ := l.ctx.Deadline()
	require.NoError(l.t, a.SetDeadline(end))
	must(a.Write(random(1, n)))(l.t)
	select {
	case b = <-y.out:
		require.NotNil(l.t, b)
	case <-l.ctx.Done():
		l.t.Fatal("no stream")
	}
	require.NoError(l.t, b.SetDeadline(end))
	for _, x := range []*Conn{a, b} {
		l.t.Cleanup(func() { _ = abort(x) })
	}
	return a, b
}

// What the old Upper took counts neither as read by the stream's reader, which the window follows,
// nor as a window that came.
func TestWindowAfterAttach(t *testing.T) {
	const n, size = 100_000, 20_000
	l := newLab(t, labConfig{})
	a, b := l.attached(n, Options{ReceiveWindow: size})
	must(b.Write([]byte("x")))(t)
	require.NoError(t, readOne(a))
	window := 0
	l.do(l.hosts[0], func() { window = a.u.conn.Stats().SndWnd })
	require.LessOrEqual(t, window, size, "the window is the stream's")
	var sizes [4]int
	var passNs [2]int64
	l.do(l.hosts[1], func() {
		w, now := &b.u.window, b.u.shared.poller.Now()
		for i := range 3 {
			now += int64(time.Second)
			sizes[i] = w.wanted(b.u.conn, now, n+size-1, n)
		}
		passNs[0] = w.passNs
		sizes[3] = w.wanted(b.u.conn, now+int64(time.Second), n+size, n+size)
		passNs[1] = w.passNs
	})
	require.Equal(t, []int{size, size, size}, sizes[:3], "nothing was read")
	require.Zero(t, passNs[0], "no window came yet")
	require.Greater(t, sizes[3], size)
	require.GreaterOrEqual(t, passNs[1], int64(4*time.Second))
}

// Nor do they make the right edge move before the reader has read a part of the window.
func TestRightEdgeAfterAttach(t *testing.T) {
	const n, size = 2000, 20_000
	l := newLab(t, labConfig{})
	a, b := l.attached(n, Options{ReceiveWindow: size, ReceiveWindowMax: size})
	l.unread(a, b, string(random(2, 2*size/tellShare)))
	moved := func() (at uint64) {
		l.do(l.hosts[1], func() {
			b.u.update(b.u.conn)
			at = b.u.window.told
		})
		return at
	}
	must(io.ReadFull(b, make([]byte, size/tellShare-1)))(t)
	require.EqualValues(t, n, moved())
	require.NoError(t, readOne(b))
	require.EqualValues(t, n+size/tellShare, moved())
}
