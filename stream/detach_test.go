package stream

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// toy is an Upper that takes over: it checks that octets come once and continue where the stream
// was cut, and sends some of its own.
type toy struct {
	testhost.Upper
	t      *testing.T
	base   uint64
	want   []byte // what it is to receive, from base on
	got    []bool
	count  int
	edge   uint64
	send   []byte
	keep   int // so many Bufs are kept until the end
	kept   []mem.Buf
	refuse bool
	fin    bool
	err    error
	over   chan struct{}
	all    chan struct{}
}

func newToy(t *testing.T, want, send []byte) *toy {
	return &toy{t: t, want: want, got: make([]bool, len(want)), send: send, over: make(chan struct{}),
		all: make(chan struct{})}
}

func (y *toy) Established() { y.t.Error("Established again") }
func (y *toy) Arrive(off uint64, bufs []mem.Buf, data [][]byte) (n int, v stack.Verdict) {
	if y.refuse {
		return 1, stack.Refused
	}
	for ; v == stack.Taken && n < len(data); n++ {
		v = y.arrive(off, bufs[n], data[n])
		off += uint64(len(data[n]))
	}
	return n, v
}

func (y *toy) arrive(off uint64, b mem.Buf, data []byte) stack.Verdict {
	for i, o := range data {
		at := off - y.base + uint64(i)
		if y.got[at] || y.want[at] != o {
			y.t.Errorf("octet %d: twice or wrong", at)
		}
		y.got[at] = true
	}
	y.count += len(data)
	if len(y.kept) < y.keep {
		y.kept = append(y.kept, b)
		return stack.Kept
	}
	return stack.Taken
}

func (y *toy) Edge(edge uint64) {
	if edge <= y.edge {
		y.t.Errorf("left edge from %d to %d", y.edge, edge)
	}
	for at := y.edge; at < edge; at++ {
		if at >= y.base && !y.got[at-y.base] {
			y.t.Errorf("edge %d passes octet %d, which never came", edge, at)
			break
		}
	}
	y.edge = edge
	y.Conn.SetReceiveWindow(1 << 20)
	if !y.refuse && edge-y.base == uint64(len(y.want)) {
		close(y.all)
	}
}

func (y *toy) Pull(dst [][]byte) stack.Pulled {
	return testhost.Fill(dst, func(room []byte) int {
		n := copy(room, y.send)
		y.send = y.send[n:]
		return n
	})
}
func (y *toy) PeerClosed() { y.fin = true; y.Conn.CloseSend() }
func (y *toy) Closed(e error) {
	for _, b := range y.kept {
		y.Conn.Poller().Pool().Free(b)
	}
	y.err = e
	close(y.over)
}

// take gives the function that installs y, having checked where the stream is cut.
func (y *toy) take(sent, read int) func(Handover) stack.Upper {
	return func(h Handover) stack.Upper {
		if h.Sent != uint64(sent) || h.Read != uint64(read) || h.Edge < h.Read {
			y.t.Errorf("cut at %d sent, %d read (edge %d); want %d and %d", h.Sent, h.Read,
				h.Edge, sent, read)
		}
		y.Conn, y.base, y.edge = h.Conn, h.Read, h.Read
		return y
	}
}

// Streaming mode first, then another Upper at an exact place, both ways, over a network that
// reorders.
func TestDetach(t *testing.T) {
	for name, f := range map[string]*fault.Spec{
		"clean": nil,
		"bad":   {Seed: 9, Tx: fault.Faults{Drop: 0.01, Reorder: 0.1, Delay: 50_000}},
	} {
		t.Run(name, func(t *testing.T) {
			l, a, b := newPair(t, labConfig{faults: f})
			const greeting = "greeting"
			ours, tail, theirs := random(1, 250_000), random(3, 100_000), random(2, 1_000_000)
			var wg sync.WaitGroup
			wg.Go(func() { send(t, b, append([]byte(greeting), theirs...), 1) })
			wg.Go(func() { receive(t, b, append(append([]byte{}, ours...), tail...), 2) })
			must(io.ReadFull(a, make([]byte, len(greeting))))(t)
			l.until("octets wait", func() bool { return a.u.rx.tail.Load() > 10 })
			must(a.Write(ours))(t)
			y := newToy(t, theirs, tail)
			y.keep = 10
			require.NoError(t, a.Detach(l.ctx, y.take(len(ours), len(greeting))))
			l.wait(y.all)
			wg.Wait()
			l.wait(y.over)
			require.NoError(t, y.err)
			require.True(t, y.fin)
			require.Equal(t, len(theirs), y.count)
			wantOp(t, errOf(a.Write([]byte("x"))), "write", ErrDetached)
			wantOp(t, readOne(a), "read", ErrDetached)
			wantOp(t, a.Detach(l.ctx, y.take(0, 0)), "detach", ErrDetached)
			require.NoError(t, a.Close())
			l.idle()
		})
	}
}

// Small segments share Bufs, which are offered once each, and the FIN that came is told.
func TestDetachOfMergedSegmentsAndFIN(t *testing.T) {
	l := newLab(t, labConfig{})
	const n, read = 5000, 10
	c := l.dripInto(3, n, Options{})
	must(io.ReadFull(c, make([]byte, read)))(t)
	l.until("all octets", func() bool { return c.u.state.Load()&stateEOF != 0 })
	want := make([]byte, n-read)
	for i := range want {
		want[i] = byte(i + read)
	}
	y := newToy(t, want, nil)
	y.keep = 100
	require.NoError(t, c.Detach(l.ctx, y.take(0, read)))
	l.wait(y.over)
	require.True(t, y.fin)
	require.Equal(t, n-read, y.count)
}

// Octets that were spilled are in Bufs again when they are handed over.
func TestDetachOfSpilledOctets(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	l.do(l.hosts[0], func() { pollerStateOf(l.hosts[0].Poller).shorten(4) })
	want := random(1, 30_000)
	send(t, b, want, 1)
	l.until("all octets", func() bool { return a.u.state.Load()&stateEOF != 0 })
	require.Positive(t, CountersOf(l.hosts[0].Poller).Spilled)
	y := newToy(t, want, nil)
	y.keep = 10
	require.NoError(t, a.Detach(l.ctx, y.take(0, 0)))
	l.wait(y.over)
	require.Equal(t, len(want), y.count)
}

func TestDetachReleasesReader(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	reading := in(func() error { return readOne(a) })
	l.until("reader waits", a.u.reader.waiting.Load)
	y := newToy(t, []byte("xyz"), nil)
	require.NoError(t, a.Detach(l.ctx, y.take(0, 0)))
	wantOp(t, l.result(reading), "read", ErrDetached)
	send(t, b, []byte("xyz"), 1)
	l.wait(y.over)
	require.Equal(t, 3, y.count)
}

func TestDetachEndsWithItsContext(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	fillUp(t, a) // what was written cannot go out
	ctx, cancel := context.WithTimeout(l.ctx, 20*time.Millisecond)
	defer cancel()
	err := a.Detach(ctx, func(Handover) stack.Upper { t.Error("taken"); return nil })
	wantOp(t, err, "detach", context.DeadlineExceeded)
	must(b.Write([]byte("x")))(t)
	require.NoError(t, readOne(a), "a stream as before")

	detaching := in(func() error {
		return a.Detach(l.ctx, func(Handover) stack.Upper { t.Error("taken"); return nil })
	})
	l.until("it waits", func() bool { return a.u.detach.Load() != nil })
	require.NoError(t, abort(b))
	wantOp(t, l.result(detaching), "detach", syscall.ECONNRESET)
	wantOp(t, a.Detach(l.ctx, func(Handover) stack.Upper { return nil }), "detach", syscall.ECONNRESET)
	require.NoError(t, a.Close())
	wantOp(t, a.Detach(l.ctx, func(Handover) stack.Upper { return nil }), "detach", net.ErrClosed)
}

// A connection that is not taken is the stream it was, with what was unread, beyond a gap too; a
// caller that turns the Poller itself need not wait.
func TestDetachNotTaken(t *testing.T) {
	l, a, b := newPair(t, labConfig{
		faults: &fault.Spec{Seed: 3, Tx: fault.Faults{Drop: 0.05, Reorder: 0.1}}})
	want := random(4, 200_000)
	done := in(func() error { send(t, b, want, 1); return nil })
	l.until("octets there", func() bool { return a.u.rx.tail.Load() > 0 })
	for range 20 {
		d := must(a.StartDetach(func(h Handover) stack.Upper {
			if h.Conn == nil || h.Read != 0 || h.Edge == 0 || h.Early != a.u.early.n {
				t.Errorf("%+v, %d Bufs beyond a gap", h, a.u.early.n)
			}
			return nil
		}))(t)
		wantOp(t, readOne(a), "read", ErrDetached)
		l.wait(d.Done())
		wantOp(t, d.Wait(l.ctx), "detach", ErrNotTaken)
		wantOp(t, d.Wait(l.ctx), "detach", ErrNotTaken)
	}
	require.Same(t, l.hosts[0].Poller, a.Poller())
	receive(t, a, want, 2)
	require.NoError(t, l.result(done))
}

// Octets that were acknowledged cannot be refused: the connection ends.
func TestUpperThatRefusesWhatIsHandedOver(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	l.unread(b, a, "x")
	y := newToy(t, []byte("x"), nil)
	y.refuse = true
	require.NoError(t, a.Detach(l.ctx, func(h Handover) stack.Upper { return y }))
	l.wait(y.over)
	require.True(t, errors.Is(y.err, stack.ErrAborted))
	wantOp(t, readOne(b), "read", syscall.ECONNRESET)
}
