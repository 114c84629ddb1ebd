package stream

import (
	"context"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// drip is a bare Upper that sends octets in segments of so many.
type drip struct {
	testhost.Upper
	segment, left int
	at            byte
	closed        chan struct{}
}

func (d *drip) Established() { d.Conn.SetNoDelay(true); d.Conn.Send() }
func (d *drip) Pull(dst [][]byte) stack.Pulled {
	got := testhost.Fill(dst, d.fill)
	got.More = d.left > 0
	return got
}

// fill fills one segment.
func (d *drip) fill(room []byte) int {
	n := min(d.segment, d.left, len(room))
	for i := range n {
		room[i] = d.at
		d.at++
	}
	if d.left -= n; d.left == 0 {
		d.Conn.CloseSend()
	}
	return n
}
func (d *drip) Closed(error) { close(d.closed) }

// dripInto lets host 0 send n octets in segments of so many to a stream of host 1.
func (l *lab) dripInto(segment, n int, opts Options) *Conn {
	l.t.Helper()
	ln := l.listen(opts)
	d := &drip{segment: segment, left: n, closed: make(chan struct{})}
	l.do(l.hosts[0], func() {
		c := must(l.hosts[0].Dial(ln.Addr().(*net.TCPAddr).AddrPort(), d))(l.t)
		d.Conn = c
	})
	c := must(ln.AcceptStream())(l.t)
	l.t.Cleanup(func() { _ = c.Close() })
	return c
}

// kept is how many Bufs wait for readers on h.
func (l *lab) kept(h *host) (n int) {
	l.do(h, func() { n = pollerStateOf(h.Poller).kept })
	return n
}

func TestPeerOfSingleOctetsHoldsFewBufs(t *testing.T) {
	l := newLab(t, labConfig{})
	const n = 60_000 // within the window: all arrive before anything is read
	c := l.dripInto(1, n, Options{})
	l.until("all octets", func() bool { return c.u.state.Load()&stateEOF != 0 })
	require.LessOrEqual(t, l.kept(l.hosts[1]), 2*n/1700+1)
	require.Greater(t, CountersOf(l.hosts[1].Poller).Merged, uint64(n*9/10))
	requireCounting(t, c, n)
}

func TestPeerOfSingleOctetsOutOfOrder(t *testing.T) {
	bad := fault.Faults{Drop: 0.02, Reorder: 0.2, Duplicate: 0.05}
	l := newLab(t, labConfig{faults: &fault.Spec{Seed: 3, Tx: bad}})
	const n = 8_000
	c := l.dripInto(1, n, Options{})
	requireCounting(t, c, n)
	require.Less(t, l.kept(l.hosts[1]), 100)
}

func requireCounting(t *testing.T, c net.Conn, n int) {
	t.Helper()
	b := must(io.ReadAll(c))(t)
	require.Len(t, b, n)
	for i := range b {
		if b[i] != byte(i) {
			t.Fatalf("octet %d is %d", i, b[i])
		}
	}
}

func TestSlowReaderClosesTheWindowAndReopensIt(t *testing.T) {
	l, a, b := newPair(t, labConfig{}, Options{},
		Options{ReceiveWindow: 20_000, ReceiveWindowMax: 20_000})
	want := random(1, 1<<20)
	var wg sync.WaitGroup
	wg.Go(func() { send(t, a, want, 1) })
	l.until("the window closes", func() bool {
		closed := false
		l.do(l.hosts[0], func() { closed = a.u.conn.Stats().SndWnd < 1448 })
		return closed
	})
	l.until("writer waits", a.u.writer.waiting.Load)
	// The first window was the SYN's, of 65535 octets, and never shrinks from the right.
	require.LessOrEqual(t, l.kept(l.hosts[1]), 65535/1448+2)
	receive(t, b, want, 2)
	wg.Wait()
}

func TestWindowGrowsWithTheReader(t *testing.T) {
	delay := fault.Faults{Delay: int64(2 * time.Millisecond)}
	l, a, b := newPair(t, labConfig{
		faults: &fault.Spec{Tx: delay}, tcp: tcp.Config{SentMax: 2048},
	}, Options{}, Options{ReceiveWindowMax: 800_000})
	first := b.u.windowSize.Load()
	require.LessOrEqual(t, first, int64(65535))
	exchange(t, a, b, 16<<20)
	require.Greater(t, b.u.windowSize.Load(), 4*first, "the reader was fast")
	require.LessOrEqual(t, b.u.windowSize.Load(), int64(800_000))
	require.Positive(t, CountersOf(l.hosts[1].Poller).WindowGrown)
}

// A reader that takes little in a round trip keeps a small window, however much it takes in all.
func TestWindowStaysSmallForASlowReader(t *testing.T) {
	_, a, b := newPair(t, labConfig{
		faults: &fault.Spec{Tx: fault.Faults{Delay: int64(time.Millisecond)}}})
	const piece, n = 1000, 300
	buf := make([]byte, piece)
	for range n {
		must(a.Write(buf))(t)
		must(io.ReadFull(b, buf))(t)
	}
	require.LessOrEqual(t, b.u.windowSize.Load(), int64(65535))
}

// The ACK of the handshake is lost, and what comes in its place comes late: the round trip that the
// handshake measured is far too long. What comes in it is not what comes in a round trip.
func TestWindowStaysSmallAfterASlowHandshake(t *testing.T) {
	v := newVirtual(t, 0, nil)
	v.hosts[0].nic.lose = func(f sentFrame) bool { return f.seg.Flags&tcp.SYN == 0 }
	var ln *Listener
	var a, b *Conn
	var err error
	v.during(func() {
		ln = must(Listen(v.hosts[1].mine, 80, Options{}))(t)
		a, err = Dial(context.Background(), v.hosts[0].mine, netip.AddrPortFrom(v.hosts[1].addr, 80),
			Options{})
		require.NoError(t, err)
	})
	v.pass(500 * time.Millisecond)
	v.hosts[0].nic.lose = nil
	piece := strings.Repeat("x", 1000)
	v.write(a, piece)
	v.during(func() {
		b = must(ln.AcceptStream())(t)
		require.NoError(t, ln.Close())
	})
	require.Equal(t, int64(500*time.Millisecond), v.info(b).TCP.SRTTNs)
	for range 300 {
		v.pass(2 * time.Millisecond)
		require.Equal(t, piece, v.read(b))
		v.write(a, piece)
	}
	require.LessOrEqual(t, b.u.windowSize.Load(), int64(windowDefault))
}

// Connections that are not read take a part of the pool only: others go on meanwhile.
func TestHoardersLeaveBufsToOthers(t *testing.T) {
	l := newLab(t, labConfig{bufs: 512})
	ln := l.listen(Options{})
	var slow []*Conn
	for range 10 {
		c := l.dial(ln, Options{})
		s := must(ln.AcceptStream())(t)
		fillUp(t, c)
		slow = append(slow, c, s)
	}
	held := l.kept(l.hosts[1])
	require.LessOrEqual(t, held, 512/2)
	require.Positive(t, CountersOf(l.hosts[1].Poller).Spilled, "or there is no shortage to test")
	a, b := l.pair(Options{}, Options{})
	exchange(t, a, b, 1<<20)
	for i := 1; i < len(slow); i += 2 { // what was spilled comes in its place
		n := must(io.CopyN(io.Discard, slow[i], 100_000))(t)
		require.EqualValues(t, 100_000, n)
	}
	for _, c := range slow {
		require.NoError(t, abort(c))
	}
}

func TestWindowShrinksWhenBufsAreShort(t *testing.T) {
	l := newLab(t, labConfig{})
	h := l.hosts[1]
	l.do(h, func() { pollerStateOf(h.Poller).shorten(48) })
	a1, _ := l.pair(Options{}, Options{})
	fillUp(t, a1) // and nobody reads
	require.Greater(t, l.kept(h), 36)
	a2, b2 := l.pair(Options{}, Options{})
	want := random(1, 300_000)
	var wg sync.WaitGroup
	wg.Go(func() { must(a2.Write(want))(t) })
	got := make([]byte, len(want))
	must(io.ReadFull(b2, got))(t)
	wg.Wait()
	require.Equal(t, want, got)
	window := 0
	l.do(l.hosts[0], func() { window = a2.u.conn.Stats().SndWnd })
	require.LessOrEqual(t, window, pressureSegments*1460)
	require.Positive(t, window)
}

// The window opens while the reader still has something to read, not only when it waits.
func TestWindowOpensBeforeAllIsRead(t *testing.T) {
	l, a, b := newPair(t, labConfig{faults: &fault.Spec{}})
	fillUp(t, a)
	l.silence() // nothing that arrives reminds the Poller
	before := b.u.told.Load()
	must(io.ReadFull(b, make([]byte, 40_000)))(t)
	l.until("the Poller is told", func() bool { return b.u.told.Load() == before+40_000 })
	l.do(l.hosts[1], func() {
		require.NoError(t, l.hosts[1].faulty.Set(fault.Faults{}, fault.Faults{}))
	})
	l.until("the window opens", func() bool {
		edge := uint64(0)
		l.do(l.hosts[1], func() { edge = b.u.edge })
		return edge > windowDefault+20_000
	})
}

// While readers wait for octets no Buf is held, although the connection is open.
func TestWaitingReaderHoldsNoBufs(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	got := make(chan byte)
	go func() {
		defer close(got)
		for one := make([]byte, 1); ; got <- one[0] {
			if _, err := b.Read(one); err != nil {
				return
			}
		}
	}()
	for i := range byte(3) {
		must(a.Write([]byte{i}))(t)
		require.Equal(t, i, <-got)
		l.idle()
	}
	require.NoError(t, a.CloseWrite())
	_, more := <-got
	require.False(t, more)
}
