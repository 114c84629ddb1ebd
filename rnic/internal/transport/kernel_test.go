package transport

import (
	"bytes"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// What the kernel says it took tells msgVec how far it is.
func TestMsgVecAdvance(t *testing.T) {
	v := newMsgVec(3)
	out := make([]byte, 60)
	for i, at := range [][2]int{{0, 10}, {10, 30}, {30, 60}} {
		v.iov[i].Base = &out[at[0]]
		v.iov[i].SetLen(at[1] - at[0])
	}
	for _, step := range []struct{ done, n, last, want int }{
		{0, 1, 4, 0},  // a part of the first
		{0, 2, 15, 1}, // its rest, and a part of the second
		{1, 2, 30, 3}, // the rest
	} {
		v.hdr[step.done+step.n-1].len = uint32(step.last)
		require.Equal(t, step.want, v.advance(step.done, step.n))
	}
	require.Same(t, &out[4], v.iov[0].Base)
	require.Same(t, &out[25], v.iov[1].Base)
	require.Equal(t, uint64(5), v.iov[1].Len)
}

func TestSocketError(t *testing.T) {
	other := errors.New("other")
	for _, tc := range []struct{ from, to error }{
		{syscall.ECONNREFUSED, stack.ErrRefused}, {syscall.ECONNRESET, stack.ErrReset},
		{syscall.EPIPE, stack.ErrReset},
		{syscall.ETIMEDOUT, stack.ErrTimeout}, {os.ErrDeadlineExceeded, stack.ErrTimeout},
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

// Segments of any sizes arrive whole and in order, however little the socket takes at a time; the
// error of a socket that takes nothing more is the kernel's.
func TestMsgVecSend(t *testing.T) {
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	r := rand.New(rand.NewPCG(seed, 0))
	a, b := socketPair(t)
	require.NoError(t, a.SetWriteBuffer(4<<10))
	raw, err := a.SyscallConn()
	require.NoError(t, err)
	const most = 40
	v := newMsgVec(most)
	var sent []byte
	got := make(chan []byte)
	go func() {
		all, _ := io.ReadAll(b)
		got <- all
	}()
	for range 30 {
		var out []byte
		var ends []int
		for range 1 + r.IntN(most) {
			for range 1 + r.IntN(3000) {
				out = append(out, byte(len(sent)+len(out)*7))
			}
			ends = append(ends, len(out))
		}
		require.NoError(t, v.send(raw, out, ends))
		sent = append(sent, out...)
	}
	require.NoError(t, a.CloseWrite())
	require.True(t, bytes.Equal(sent, <-got))
	require.ErrorIs(t, v.send(raw, sent[:1], []int{1}), syscall.EPIPE)
	require.NoError(t, a.Close())
	require.Error(t, v.send(raw, sent[:1], []int{1}))
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
	_, err := s.nc.Write(make([]byte, 50))
	require.NoError(t, err)
	_, err = io.ReadFull(peer, make([]byte, 50))
	require.NoError(t, err)
	_, err = peer.Write(make([]byte, 7)) // its segment acknowledges the 50
	require.NoError(t, err)
	_, err = io.ReadFull(s.nc, make([]byte, 7))
	require.NoError(t, err)
	require.EqualValues(t, 57, s.Progress()-before)
	require.Greater(t, s.Stats().SegmentsIn, stats.SegmentsIn)
	require.Greater(t, s.Stats().SegmentsOut, stats.SegmentsOut)
	s.Abort()
	require.Greater(t, s.Stats().SegmentsIn, stats.SegmentsIn, "kept when the socket is gone")
	require.Zero(t, s.Progress())
}

// upper is scripted: it takes octets as it is told and gives segments of given lengths.
type upper struct {
	Upper
	verdicts []stack.Verdict // of the next calls of Arrive; then Taken
	arrived  []arrival
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
	at, err := slots.Take()
	require.NoError(t, err)
	u := &upper{}
	s, err := NewKernelConn(u, ours, at, mem.NewTable(1).NewReader(), time.Now())
	require.NoError(t, err)
	require.Equal(t, AddrPort(peer.RemoteAddr()), s.Local())
	require.Equal(t, AddrPort(peer.LocalAddr()), s.Remote())
	return s, u, peer
}

// fill writes runs of full segments as one, and ends the kernel's segment after one that is not
// full. In start-up it has room for one segment, and makes that only where there is one.
func TestKernelFill(t *testing.T) {
	s, u, _ := newKernel(t)
	var w segments
	n, fin, over := s.fill(&w)
	require.True(t, n == 0 && !fin && !over)
	require.Empty(t, w.out)

	u.pulls = []int{20, 30}
	s.finOut = true
	n, fin, _ = s.fill(&w)
	require.Equal(t, []int{20}, w.ends, "one segment")
	require.False(t, fin, "not before the rest is out")
	require.Equal(t, 20, n)
	_, _, _ = s.fill(&w)
	_, fin, over = s.fill(&w)
	require.True(t, fin)
	require.False(t, over)

	s.EnterFull(3)
	emss := s.EMSS()
	u.pulls = []int{5, -1, -1, 6, -1, 0, 7}
	if 4*emss > socketWriteMax {
		u.pulls = []int{5, -1, 6, 0, 7}
	}
	n, fin, _ = s.fill(&w)
	require.False(t, fin)
	want := []int{5, 5 + 2*emss + 6, 5 + 3*emss + 6}
	if 4*emss > socketWriteMax {
		want = []int{5, 5 + emss + 6}
	}
	require.Equal(t, want, w.ends)
	require.Equal(t, want[len(want)-1], n)
	require.Equal(t, []int{7}, u.pulls, "an empty one ends it")

	u.pulls = slices.Repeat([]int{64}, 2*socketEndsMax)
	n, _, _ = s.fill(&w)
	require.LessOrEqual(t, len(w.ends), socketEndsMax)
	require.GreaterOrEqual(t, n, min(socketWriteMax-emss, 64*socketEndsMax))

	u.pulls = nil
	s.GiveBack()
	n, _, over = s.fill(&w)
	require.True(t, n == 0 && over)
	u.pulls = []int{9}
	_, _, over = s.fill(&w)
	require.False(t, over, "what is left goes first")
	s.Abort()
	u.pulls = []int{9}
	n, fin, over = s.fill(&w)
	require.True(t, n == 0 && !fin && over)
}

// Octets of start-up have no Buf; what full operation refuses for that comes again in one. A Buf
// that is kept is replaced for the next read. What comes after the peer was given its stream back
// is the stream's.
func TestKernelTake(t *testing.T) {
	s, u, _ := newKernel(t)
	b, more := s.take(0, mem.NoBuf, []byte("start"))
	require.True(t, b == mem.NoBuf && more)
	require.EqualValues(t, 5, u.edge)
	require.Equal(t, []arrival{{0, false, "start"}}, u.arrived)

	u.arrived, u.verdicts = nil, []stack.Verdict{stack.Refused, stack.Taken}
	u.onArrive = func() {
		s.EnterFull(2)
		u.onArrive = nil
	}
	b, more = s.take(5, mem.NoBuf, []byte("full"))
	require.True(t, b != mem.NoBuf && more)
	require.Equal(t, []arrival{{5, false, "full"}, {5, true, "full"}}, u.arrived)
	require.EqualValues(t, 9, u.edge)

	u.arrived, u.verdicts = nil, []stack.Verdict{stack.Kept}
	data := s.pool.Slot(b)[mem.Headroom:][:2]
	next, more := s.take(9, b, data)
	require.True(t, more)
	require.NotEqual(t, b, next)
	require.NotEqual(t, mem.NoBuf, next)

	u.verdicts, u.base = []stack.Verdict{stack.Refused}, 13
	s.giving = true
	copy(s.pool.Slot(next)[mem.Headroom:], "abcdef")
	b, more = s.take(11, next, s.pool.Slot(next)[mem.Headroom:][:6])
	require.True(t, b == mem.NoBuf && !more)
	require.Equal(t, "cdef", string(s.rest))
	require.EqualValues(t, 11, u.edge, "refused octets are not taken")
	_, more = s.take(17, next, data)
	require.False(t, more, "giving")

	s.giving = false
	u.verdicts, s.sendErr = []stack.Verdict{stack.Refused}, errors.New("sending failed")
	b, more = s.take(17, next, data)
	require.True(t, b == mem.NoBuf && !more, "nobody decides any more")
	s.Abort()
	u.arrived = nil
	_, more = s.take(17, next, data)
	require.False(t, more)
	require.Empty(t, u.arrived)
}

// receive gives what was read before first, in pieces where the room is short.
func TestKernelPutBack(t *testing.T) {
	s, _, peer := newKernel(t)
	s.PutBack([]byte("abc"))
	_, err := peer.Write([]byte("d"))
	require.NoError(t, err)
	var got string
	for range 3 {
		b := make([]byte, 2)
		n, err := s.receive(b)
		require.NoError(t, err)
		got += string(b[:n]) + "|"
	}
	require.Equal(t, "ab|c|d|", got)
}

// Nagle's algorithm is off until it is asked for, so that what is written begins a segment at once.
// A user timeout bounds what is not acknowledged, and keep-alives find a dead peer within it: the
// first after half of it, the others an eighth apart.
//
// req: D01-3.1.1-6, 5044-5.1-2
// req: C02-5.1.1-6
func TestKernelOptions(t *testing.T) {
	s, _, _ := newKernel(t)
	of := func(level, o int) (v int) {
		require.NoError(t, s.raw.Control(func(fd uintptr) {
			v, _ = unix.GetsockoptInt(int(fd), level, o)
		}))
		return v
	}
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
		at, err := slots.Take()
		require.NoError(t, err)
		u := &ender{over: make(chan error, 2), back: make(chan net.Conn, 2)}
		u.s, err = NewKernelConn(u, ours, at, mem.NewTable(1).NewReader(), time.Now())
		require.NoError(t, err)
		require.NoError(t, u.s.Submit(func() { u.s.SetTimer(u.s.Now() + int64(time.Hour)) }))
		return u, peer, slots
	}
	t.Run("orderly", func(t *testing.T) {
		u, peer, slots := start(t)
		u.pulls = []int{5}
		u.s.Run()
		all := make([]byte, 5)
		_, err := io.ReadFull(peer, all)
		require.NoError(t, err)
		_, err = peer.Write([]byte("abc"))
		require.NoError(t, err)
		require.NoError(t, peer.CloseWrite())
		require.NoError(t, <-u.over)
		require.Zero(t, slots.Count())
		rest, err := io.ReadAll(peer)
		require.NoError(t, err)
		require.Empty(t, rest)
		require.EqualValues(t, 3, u.edge)
		require.True(t, u.s.finished && !u.s.aborted && !u.s.timer.Stop())
	})
	t.Run("gave way", func(t *testing.T) {
		u, peer, slots := start(t)
		u.s.Run()
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
		u.s.Run()
		_, err := peer.Write([]byte("abcd"))
		require.NoError(t, err)
		<-given
		nc := <-u.back
		require.Zero(t, slots.Count())
		_, err = peer.Write([]byte("ef"))
		require.NoError(t, err)
		require.NoError(t, peer.CloseWrite())
		got, err := io.ReadAll(nc)
		require.NoError(t, err)
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
	e := newEnd(t)
	at, err := NewSlots(1, 0).Take()
	require.NoError(t, err)
	s, err := NewKernelConn(e, ours, at, mem.NewTable(1).NewReader(), time.Now())
	require.NoError(t, err)
	e.conn = s
	s.Run()
	e.do(func() { // the reader comes as far as its first octets
		_, err := peer.Write(make([]byte, n))
		require.NoError(t, err)
		require.NoError(t, peer.SetLinger(0))
		require.NoError(t, peer.Close())
		require.Eventually(t, func() (reset bool) {
			require.NoError(t, s.raw.Control(func(fd uintptr) {
				info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
				require.NoError(t, err)
				reset = info.State == tcpClose
			}))
			return reset
		}, patience, time.Millisecond)
		s.sendFailed(syscall.EPIPE)
	})
	e.until("closed", func() bool { return e.gone })
	e.do(func() {
		require.Len(t, e.in, n)
		require.ErrorIs(t, e.err, stack.ErrReset)
	})
}
