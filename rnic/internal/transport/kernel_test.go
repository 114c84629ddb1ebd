package transport

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

func TestSocketError(t *testing.T) {
	other := errors.New("other")
	for _, tc := range []struct{ from, to error }{
		{syscall.ECONNREFUSED, stack.ErrRefused}, {syscall.ECONNRESET, stack.ErrReset},
		{syscall.EPIPE, stack.ErrReset},
		{syscall.ETIMEDOUT, stack.ErrTimeout}, {os.ErrDeadlineExceeded, stack.ErrTimeout},
		{os.ErrDeadlineExceeded, context.DeadlineExceeded}, {context.DeadlineExceeded, stack.ErrTimeout},
		{context.DeadlineExceeded, context.DeadlineExceeded},
		{syscall.EHOSTUNREACH, stack.ErrNoRoute}, {syscall.ENETUNREACH, stack.ErrNetUnreachable},
		{other, other},
	} {
		require.ErrorIs(t, SocketError(&net.OpError{Op: "read", Err: tc.from}), tc.to)
	}
}

// A kernel that does not tell its segment size: the path's MTU less headers, or else Ethernet's
// 1460.
//
// req: D01-3.1.1-7, C02-5.1.1-7, 5044-5.1-1
func TestLikelyEMSS(t *testing.T) {
	for _, tc := range []struct{ maxSeg, mtu, headers, want int }{
		{1448, 9000, headersIPv4, 1448}, {0, 1500, headersIPv4, 1448}, {0, 9000, headersIPv4, 8948},
		{0, 1500, headersIPv6, 1428},
		{0, 0, headersIPv4, 1460}, {-1, 30, headersIPv4, 1460}, {1 << 20, 0, headersIPv4, socketWriteMax},
	} {
		require.Equal(t, tc.want, likelyEMSS(tc.maxSeg, tc.mtu, tc.headers), "%+v", tc)
	}
}

// Each of the kernel's counters has its place, and octets of both ways are progress.
func TestKernelStats(t *testing.T) {
	var st Stats
	st.add(&unix.TCPInfo{Segs_in: 2, Segs_out: 3, Total_retrans: 5, Rcv_ooopack: 7})
	require.Equal(t, Stats{SegmentsIn: 2, SegmentsOut: 3, Retransmits: 5, OutOfOrder: 7}, st)

	s, _, peer := newKernel(t)
	before, stats := s.Progress(), s.Stats()
	require.True(t, stats.Kernel)
	require.Equal(t, s.EMSS(), stats.EMSS)
	must(s.nc.Write(make([]byte, 50)))(t)
	must(io.ReadFull(peer, make([]byte, 50)))(t)
	_, err := peer.Write(make([]byte, 7)) // its segment acknowledges the 50
	require.NoError(t, err)
	must(io.ReadFull(s.nc, make([]byte, 7)))(t)
	require.EqualValues(t, 57, s.Progress()-before)
	require.Greater(t, s.Stats().SegmentsIn, stats.SegmentsIn)
	require.Greater(t, s.Stats().SegmentsOut, stats.SegmentsOut)
	s.loop.do(s.Abort)
	require.Greater(t, s.Stats().SegmentsIn, stats.SegmentsIn, "kept when the socket is gone")
	require.Zero(t, s.Progress())
}

// upper is scripted: it takes octets as it is told and gives segments of given lengths.
type upper struct {
	Upper
	verdicts []stack.Verdict // of the next calls of Arrive; then Taken
	arrived  []arrival
	bufs     []mem.Buf // of these
	edge     uint64
	pulls    []int // lengths of the segments to come; below 0: a full one
	base     uint64
	onArrive func()
}

type arrival struct {
	off  uint64
	buf  bool
	data string
}

func (u *upper) Arrive(off uint64, bufs []mem.Buf, data [][]byte) (int, stack.Verdict) {
	u.bufs = append(u.bufs, bufs[0])
	u.arrived = append(u.arrived, arrival{off, bufs[0] != mem.NoBuf, string(data[0])})
	if u.onArrive != nil {
		u.onArrive()
	}
	if len(u.verdicts) == 0 {
		return 1, stack.Taken
	}
	v := u.verdicts[0]
	u.verdicts = u.verdicts[1:]
	return 1, v
}

func (u *upper) Edge(edge uint64)   { u.edge = edge }
func (u *upper) More() bool         { return len(u.pulls) > 0 }
func (u *upper) StreamBase() uint64 { return u.base }

func (u *upper) Pull(dst [][]byte) (got stack.Pulled) {
	if len(u.pulls) == 0 {
		return got
	}
	n := u.pulls[0]
	if n < 0 {
		n = len(dst[0])
	}
	if u.pulls = u.pulls[1:]; n > 0 {
		dst[0], got.N = dst[0][:n], 1
	}
	got.More = u.More()
	return got
}

// newKernel makes a KernelConn that is not running, on a socket whose other end is peer.
func newKernel(t *testing.T) (*KernelConn, *upper, *net.TCPConn) {
	t.Helper()
	ours, peer := socketPair(t)
	slots := NewSlots(1, 0)
	at, _, err := slots.Take()
	require.NoError(t, err)
	u := &upper{}
	s := must(NewKernelConn(u, newLoop(t), ours, at, mem.NewTable(1).NewReader()))(t)
	t.Cleanup(s.Discard)
	require.Equal(t, AddrPort(peer.RemoteAddr()), s.Local())
	require.Equal(t, AddrPort(peer.LocalAddr()), s.Remote())
	return s, u, peer
}

// Nagle's algorithm is off until it is asked for, so that what is written begins a segment at once.
// A user timeout bounds what is not acknowledged, and keep-alives find a dead peer within it: the
// first after half of it, the others an eighth apart.
//
// req: D01-3.1.1-6, 5044-5.1-2
// req: C02-5.1.1-6
func TestKernelOptions(t *testing.T) {
	s, _, _ := newKernel(t)
	of := s.socket.option
	option := func(o int) int { return of(unix.IPPROTO_TCP, o) }
	require.Equal(t, 100_000, option(unix.TCP_USER_TIMEOUT))
	require.Equal(t, 1, option(unix.TCP_NODELAY))
	for _, tc := range []struct {
		d                    time.Duration
		timeout, idle, apart int
	}{
		{80 * time.Second, 80_000, 40, 10},
		{time.Microsecond, 1, 1, 1},
		{1 << 62, math.MaxInt32, 32767, 32767},
	} {
		require.NoError(t, s.GiveUpAfter(tc.d))
		require.Equal(t, []int{tc.timeout, tc.idle, tc.apart, 4}, []int{option(unix.TCP_USER_TIMEOUT),
			option(unix.TCP_KEEPIDLE), option(unix.TCP_KEEPINTVL), option(unix.TCP_KEEPCNT)}, "%v", tc.d)
	}
	require.Equal(t, 1, of(unix.SOL_SOCKET, unix.SO_KEEPALIVE))
	s.Nagle()
	require.Zero(t, option(unix.TCP_NODELAY))
}

// ender is an upper that closes when the peer does, and tells how the connection ended.
type ender struct {
	upper
	s     *KernelConn
	over  chan error
	back  chan net.Conn
	fails []error
}

func (u *ender) Established() {}
func (u *ender) PeerClosed()  { u.s.CloseSend() }
func (u *ender) Lost(error)   {}
func (u *ender) Timer(int64)  {}

func (u *ender) Fail(err error) {
	u.fails = append(u.fails, err)
	u.s.Abort()
}

func (u *ender) Closed(err error)     { u.over <- err }
func (u *ender) HandBack(nc net.Conn) { u.back <- nc }

// A connection ends once, when both halves have, or when its slot is another's; as a stream it is
// given back instead, with what was read too early first. The slot is free by then in each case.
func TestKernelEnds(t *testing.T) {
	start := func(t *testing.T) (*ender, *net.TCPConn, *Slots) {
		ours, peer := socketPair(t)
		slots := NewSlots(1, 0)
		at, _, err := slots.Take()
		require.NoError(t, err)
		u := &ender{over: make(chan error, 2), back: make(chan net.Conn, 2)}
		u.s, err = NewKernelConn(u, newLoop(t), ours, at, mem.NewTable(1).NewReader())
		require.NoError(t, err)
		require.NoError(t, u.s.Submit(func() { u.s.SetTimer(u.s.Now() + int64(time.Hour)) }))
		return u, peer, slots
	}
	t.Run("orderly", func(t *testing.T) {
		u, peer, slots := start(t)
		u.pulls = []int{5}
		u.s.Run(nil)
		all := make([]byte, 5)
		_, err := io.ReadFull(peer, all)
		require.NoError(t, err)
		must(peer.Write([]byte("abc")))(t)
		require.NoError(t, peer.CloseWrite())
		require.NoError(t, <-u.over)
		require.Zero(t, slots.Count())
		rest := must(io.ReadAll(peer))(t)
		require.Empty(t, rest)
		require.EqualValues(t, 3, u.edge)
		require.True(t, u.s.finished && !u.s.aborted && !u.s.timer.Stop())
	})
	t.Run("gave way", func(t *testing.T) {
		u, peer, slots := start(t)
		u.s.Run(nil)
		u.s.GiveWay()
		require.NoError(t, <-u.over)
		require.Equal(t, []error{stack.ErrGaveWay}, u.fails)
		require.Zero(t, slots.Count())
		_, err := io.ReadAll(peer)
		require.ErrorIs(t, err, syscall.ECONNRESET)
	})
	t.Run("as a stream", func(t *testing.T) {
		u, peer, slots := start(t)
		u.verdicts = []stack.Verdict{stack.Refused}
		u.base = 2
		given := make(chan struct{})
		u.onArrive = func() {
			u.s.GiveBack()
			close(given)
		}
		u.s.Run(nil)
		_, err := peer.Write([]byte("abcd"))
		require.NoError(t, err)
		<-given
		nc := <-u.back
		require.Zero(t, slots.Count())
		must(peer.Write([]byte("ef")))(t)
		require.NoError(t, peer.CloseWrite())
		got := must(io.ReadAll(nc))(t)
		require.Equal(t, "cdef", string(got))
		require.Empty(t, u.over)
		require.NoError(t, nc.Close())
	})
}

// What the peer sent before it reset the connection is taken, whichever goroutine learns of the
// reset first: the kernel tells the writer at once, and the reader after the last octet.
func TestKernelResetAfterOctets(t *testing.T) {
	const n, tcpClose = 30_000, 7 // of the kernel's net/tcp_states.h
	ours, peer := socketPair(t)
	e, s := kernelEnd(t, newLoop(t), ours, NewSlots(1, 0))
	e.do(func() { // the reader comes as far as its first octets
		_, err := peer.Write(make([]byte, n))
		require.NoError(t, err)
		require.NoError(t, peer.SetLinger(0))
		require.NoError(t, peer.Close())
		require.Eventually(t, func() bool {
			return s.socket.info().State == tcpClose
		}, patience, time.Millisecond)
		s.sendFailed(syscall.EPIPE)
	})
	e.until("closed", func() bool { return e.gone })
	e.do(func() {
		require.Len(t, e.in, n)
		require.ErrorIs(t, e.err, stack.ErrReset)
	})
}
