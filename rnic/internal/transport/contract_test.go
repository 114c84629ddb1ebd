package transport

import (
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/flight"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// patience ends a wait of a test that would hang.
const patience = 20 * time.Second

// end is one end of a connection, and the Upper above it, which checks the order of its calls.
type end struct {
	t    *testing.T
	conn Conn
	// tell is a token: something has happened. Calls of the Upper leave one.
	tell chan struct{}

	// Of the goroutine that drives the connection.
	opened, peerEnded, gone, lost, failed bool
	err                                   error
	in                                    []byte
	edge                                  uint64
	refuse                                bool // what arrives
	offers                                int  // that were refused
	later                                 int  // calls of Later
	laterAt                               int  // octets that had arrived at the last
	out                                   []byte
	segment                               int  // octets a Pull; 0: what there is room for
	closing                               bool // our half ends with the Pull of the last octet
	timers                                []int64
	handed                                net.Conn
	base                                  uint64 // of the stream after GiveBack
}

func newEnd(t *testing.T) *end { return &end{t: t, tell: make(chan struct{}, 1)} }

func (e *end) happened(before string, ok bool) {
	if !ok {
		e.t.Errorf("a call out of order: %s", before)
	}
	select {
	case e.tell <- struct{}{}:
	default:
	}
}

func (e *end) Established() {
	e.happened("Established twice", !e.opened && !e.gone)
	e.opened = true
}

func (e *end) Arrive(off uint64, _ []mem.Buf, data [][]byte) (n int, v stack.Verdict) {
	e.happened("Arrive", e.opened && !e.gone && !e.peerEnded && off == e.edge)
	if e.refuse {
		e.offers++
		return 1, stack.Refused
	}
	for _, d := range data {
		e.in = append(e.in, d...)
	}
	return len(data), stack.Taken
}

func (e *end) Edge(edge uint64) {
	e.happened("Edge", edge == uint64(len(e.in)) && edge > e.edge)
	e.edge = edge
}

func (e *end) Pull(dst [][]byte) stack.Pulled {
	return testhost.Fill(dst, func(b []byte) int {
		n := copy(b, e.out)
		if e.segment > 0 {
			n = min(n, e.segment)
		}
		if e.out = e.out[n:]; len(e.out) == 0 {
			if e.happened("", true); e.closing && n > 0 {
				e.conn.CloseSend()
			}
		}
		return n
	})
}

func (e *end) PeerClosed() {
	e.happened("PeerClosed", e.opened && !e.peerEnded && !e.gone)
	e.peerEnded = true
}

func (e *end) Closed(err error) {
	e.happened("Closed twice", !e.gone)
	if e.gone = true; !e.lost { // else Lost has said why
		e.err = err
	}
	e.conn.Gone()
}

func (e *end) Lost(err error) {
	e.happened("Lost", e.opened && !e.gone && err != nil)
	e.lost, e.err = true, err
}

// Fail is what MPA does: it resets the connection.
func (e *end) Fail(error) { e.happened("", true); e.failed = true; e.conn.Abort() }

func (e *end) Timer(now int64)          { e.happened("", true); e.timers = append(e.timers, now) }
func (e *end) Woken()                   { e.conn.Woken() }
func (e *end) Later()                   { e.later++; e.laterAt = len(e.in) }
func (e *end) More() bool               { return len(e.out) > 0 }
func (e *end) Acked(uint64)             {}
func (e *end) FinAcked()                {}
func (e *end) Held() (int, int64)       { return 0, 0 }
func (e *end) Advice(error)             {}
func (e *end) TakeOver(stream.Handover) {}
func (e *end) StreamBase() uint64       { return e.base }
func (e *end) HandBack(nc net.Conn)     { e.happened("", true); e.handed = nc }

// do runs f where the connection is driven.
func (e *end) do(f func()) {
	e.t.Helper()
	done := make(chan struct{})
	require.NoError(e.t, e.conn.Submit(func() { f(); close(done) }))
	<-done
}

// until waits for what holds on the goroutine that drives the connection.
func (e *end) until(what string, holds func() bool) {
	e.t.Helper()
	late := time.After(patience)
	for {
		ok := false
		e.do(func() { ok = holds() })
		if ok {
			return
		}
		select {
		case <-e.tell:
		case <-late:
			require.FailNow(e.t, "waited in vain", what)
		}
	}
}

// send has octets pulled, as MPA does after it was posted to.
func (e *end) send(octets []byte) {
	e.do(func() { e.out = append(e.out, octets...) })
	e.conn.Wake()
}

// transports open a connection each, whose ends are established.
var transports = map[string]func(t *testing.T) [2]*end{"our TCP": overTCP, "sockets": overSockets}

func overSockets(t *testing.T) (ends [2]*end) {
	ours, theirs := socketPair(t)
	slots, l := NewSlots(2, 0), newLoop(t)
	ends[0], _ = kernelEnd(t, l, ours, slots)
	ends[1], _ = kernelEnd(t, l, theirs, slots)
	t.Cleanup(func() {
		for _, e := range ends {
			e.do(e.conn.Abort)
		}
		for _, e := range ends {
			e.until("its end", func() bool { return e.gone || e.handed != nil })
		}
		require.Zero(t, slots.Count(), "slots that were not given back")
	})
	return ends
}

// kernelEnd runs an end over nc, which takes one of the slots.
func kernelEnd(t *testing.T, l *Loop, nc *net.TCPConn, slots *Slots) (*end, *KernelConn) {
	t.Helper()
	at, _, err := slots.Take()
	require.NoError(t, err)
	e := newEnd(t)
	s := must(NewKernelConn(e, l, nc, at, mem.NewTable(1).NewReader()))(t)
	e.conn = s
	s.Run(nil)
	return e, s
}

func newLoop(t *testing.T) *Loop {
	l := must(NewLoop(LoopConfig{Start: time.Now()}))(t)
	return l
}

func overTCP(t *testing.T) (ends [2]*end) {
	link := must(wire.New(wire.Config{MTU: 1500}))(t)
	var pollers [2]*stack.Poller
	var conns [2]*PollerConn
	addrs := [2]netip.Addr{netip.MustParseAddr("10.9.0.1"), netip.MustParseAddr("10.9.0.2")}
	for i := range pollers {
		pollers[i] = testhost.NewPoller(t, link.Port(i), stack.Config{
			Addr: netip.PrefixFrom(addrs[i], 24), MTU: 1500, Pool: testhost.NewPool(t, 1024, 1500),
			ConnsMax: 4, Idle: stack.IdleAdaptive,
		})
		ends[i], conns[i] = newEnd(t), new(PollerConn)
		ends[i].conn = conns[i]
		conns[i].Init(pollers[i], mem.NewTable(1).NewReader(), ends[i])
	}
	testhost.Run(t, pollers[:]...)
	ends[1].do(func() {
		require.NoError(t, pollers[1].Listen(7, 1, func(c *stack.Conn) stack.Upper {
			conns[1].Enter(c)
			return ends[1]
		}))
	})
	ends[0].do(func() {
		conns[0].Dial(netip.AddrPort{}, false, netip.AddrPortFrom(addrs[1], 7))
	})
	for _, e := range ends {
		e.until("established", func() bool { return e.opened })
	}
	return ends
}

// contract runs f over each transport.
func contract(t *testing.T, f func(t *testing.T, a, b *end)) {
	for name, open := range transports {
		t.Run(name, func(t *testing.T) {
			ends := open(t)
			f(t, ends[0], ends[1])
		})
	}
}

// Octets of both directions arrive once and in order, whatever the sizes of segments and however
// often they are refused; both halves then close, and each end hears so once.
func TestContractOctets(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	contract(t, func(t *testing.T, a, b *end) {
		require.Equal(t, a.conn.Local(), b.conn.Remote())
		require.Equal(t, a.conn.Remote(), b.conn.Local())
		want := [2][]byte{}
		for i, e := range []*end{a, b} {
			e.do(func() { e.segment = r.IntN(3) * (1 + r.IntN(2000)) })
			for range 20 {
				octets := make([]byte, r.IntN(20_000))
				for k := range octets {
					octets[k] = byte(r.Uint32())
				}
				want[i] = append(want[i], octets...)
				e.send(octets)
			}
		}
		for i, e := range []*end{b, a} {
			e.until("all octets", func() bool { return len(e.in) == len(want[i]) })
			e.do(func() { require.True(t, string(want[i]) == string(e.in)) })
		}
		a.do(func() {
			s := a.conn.Stats()
			require.Positive(t, s.SegmentsIn)
			require.Positive(t, s.SegmentsOut)
			require.Positive(t, s.EMSS)
			require.Positive(t, a.conn.EMSS())
			require.GreaterOrEqual(t, a.conn.Progress(), uint64(len(a.in)))
		})
		for i, e := range []*end{a, b} {
			e.until("acknowledgements", func() bool {
				pulled, taken := e.conn.Taken()
				require.EqualValues(t, len(want[i]), pulled)
				require.LessOrEqual(t, taken, pulled)
				return taken == pulled
			})
		}

		a.do(a.conn.CloseSend)
		b.until("a's end", func() bool { return b.peerEnded })
		b.do(func() { require.False(t, b.gone, "its own half is open") })
		b.send([]byte("still"))
		a.until("octets after its own end", func() bool { return len(a.in) == len(want[1])+5 })
		b.do(b.conn.CloseSend)
		for _, e := range []*end{a, b} {
			e.until("closed", func() bool { return e.gone })
			e.do(func() {
				require.NoError(t, e.err)
				require.True(t, e.peerEnded)
				require.False(t, e.lost)
			})
		}
	})
}

// CloseSend closes after what was pulled, what the Pull brings in which it is called too: no octet
// is lost.
func TestContractCloseAfterOctets(t *testing.T) {
	contract(t, func(t *testing.T, a, b *end) {
		octets := make([]byte, 300_000)
		a.do(func() { a.closing = true })
		a.send(octets)
		b.until("a's end", func() bool { return b.peerEnded })
		b.do(func() { require.Len(t, b.in, len(octets)) })
	})
}

// Ends that both only send do not wait for each other: each takes what comes while the network
// takes no more of its own.
func TestContractBothSend(t *testing.T) {
	contract(t, func(t *testing.T, a, b *end) {
		octets := make([]byte, 32<<20)
		ends := []*end{a, b}
		for _, e := range ends {
			e.do(func() { e.out = octets })
		}
		for _, e := range ends {
			e.conn.Wake()
		}
		for _, e := range ends {
			e.until("all octets", func() bool { return len(e.in) == len(octets) })
		}
	})
}

// Refused octets are the transport's until they are taken, and come again.
func TestContractRefused(t *testing.T) {
	contract(t, func(t *testing.T, a, b *end) {
		b.do(func() { b.refuse = true })
		a.send([]byte("later"))
		b.until("an offer", func() bool { return b.offers > 0 })
		b.do(func() { require.Empty(t, b.in); b.refuse = false })
		b.until("the octets", func() bool { return string(b.in) == "later" })
	})
}

// A reset ends both ends: the one that asked for it, and the peer, which hears of an error.
func TestContractAbort(t *testing.T) {
	contract(t, func(t *testing.T, a, b *end) {
		a.do(a.conn.Abort)
		a.until("closed", func() bool { return a.gone })
		b.until("closed", func() bool { return b.gone })
		b.do(func() { require.ErrorIs(t, b.err, stack.ErrReset) })
		a.do(a.conn.Abort) // of a connection that is gone: nothing
		a.do(a.conn.CloseSend)
		a.conn.Wake()
		a.do(func() { require.Zero(t, a.conn.Progress()) })
	})
}

// Peers that end while octets are on their way lose none of those that came before the error.
func TestContractOctetsBeforeReset(t *testing.T) {
	contract(t, func(t *testing.T, a, b *end) {
		a.send([]byte("last words"))
		b.until("the octets", func() bool { return string(b.in) == "last words" })
		a.do(a.conn.Abort)
		b.until("closed", func() bool { return b.gone })
		b.do(func() { require.Error(t, b.err) })
	})
}

// One timer: the last time that was set counts, 0 clears it, and it is late rather than early.
func TestContractTimer(t *testing.T) {
	contract(t, func(t *testing.T, a, _ *end) {
		var at int64
		a.do(func() {
			a.conn.SetTimer(a.conn.Now() + int64(time.Hour))
			a.conn.SetTimer(a.conn.Now() + int64(time.Millisecond))
			a.conn.SetTimer(0)
			at = a.conn.Now() + int64(5*time.Millisecond)
			a.conn.SetTimer(at)
		})
		a.until("the timer", func() bool { return len(a.timers) > 0 })
		a.do(func() {
			require.Len(t, a.timers, 1)
			require.GreaterOrEqual(t, a.conn.Now(), at)
		})
	})
}

// A timer that fires while its connection is at something else, which clears it, does nothing any
// more.
func TestContractTimerClearedAsItFires(t *testing.T) {
	contract(t, func(t *testing.T, a, _ *end) {
		a.do(func() {
			a.conn.SetTimer(1) // long ago
			<-time.After(2 * time.Millisecond)
			a.conn.SetTimer(0)
		})
		for range 100 { // turns at the lock; the timer's function has one
			a.do(func() { require.Empty(t, a.timers) })
			runtime.Gosched()
		}
	})
}

// What was recorded is among the events, with how many there were before.
func TestContractEvents(t *testing.T) {
	contract(t, func(t *testing.T, a, _ *end) {
		a.do(func() {
			a.conn.Record(flight.BadCRC, 3, 4)
			all, _ := a.conn.Events()
			require.NotEmpty(t, all)
			last := all[len(all)-1]
			require.Equal(t, [2]uint64{3, 4}, [2]uint64{last.A, last.B})
		})
	})
}

// A connection becomes a stream from the octet on that the Upper names, in the middle of what was
// refused, too; its Upper hears nothing more.
func TestContractGiveBack(t *testing.T) {
	contract(t, func(t *testing.T, a, b *end) {
		a.send([]byte("frames"))
		b.until("the frames", func() bool { return string(b.in) == "frames" })
		b.do(func() { b.refuse = true })
		a.send([]byte("last,octets"))
		b.until("an offer", func() bool { return b.offers > 0 })
		b.do(func() {
			b.base = b.edge + 5
			b.conn.GiveBack()
		})
		b.conn.Wake()
		b.until("the stream", func() bool { return b.handed != nil })
		a.send([]byte(" of it"))
		nc := b.handed
		require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
		got := make([]byte, 12)
		must(io.ReadFull(nc, got))(t)
		require.Equal(t, "octets of it", string(got))
		must(nc.Write([]byte("answer")))(t)
		a.until("the answer", func() bool { return string(a.in) == "answer" })
		require.NoError(t, nc.Close())
		a.until("its end", func() bool { return a.peerEnded })
		b.do(func() { require.False(t, b.gone) })
	})
}

// After Gone our TCP has no connection any more: the stack uses it for another one.
func TestNothingAfterGone(t *testing.T) {
	a := overTCP(t)[0]
	c := a.conn.(*PollerConn)
	a.do(c.Abort)
	a.until("closed", func() bool { return a.gone })
	a.do(func() {
		events, before := c.Events()
		require.Empty(t, events)
		require.Equal(t, [6]any{Stats{}, 0, false, netip.AddrPort{}, netip.AddrPort{}, uint64(0)},
			[6]any{c.Stats(), c.EMSS(), c.Unacked(), c.Local(), c.Remote(), before})
		require.Nil(t, c.waker.Load())
	})
}

// A connection that was to speak and has is in time, and goes on.
func TestContractSpoke(t *testing.T) {
	contract(t, func(t *testing.T, a, b *end) {
		a.do(func() {
			a.conn.Silent()
			require.True(t, a.conn.Spoke())
			require.NoError(t, a.conn.GiveUpAfter(time.Minute))
			a.conn.Nagle()
		})
		b.send([]byte("frame"))
		a.until("the frame", func() bool { return string(a.in) == "frame" })
	})
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
