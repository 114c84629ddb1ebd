package rnic

import (
	"bytes"
	"io"
	"net"
	"reflect"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Whatever way connections over sockets end, their goroutines, timers, slots and epoch words go
// with them.
func TestSocketsLeaveNothing(t *testing.T) {
	before := runtime.NumGoroutine()
	r := newRig(t, sockets, rigConfig{listen: ListenOptions{OnFailure: func(ConnFailure) {}}})
	for i := range 20 {
		s, c := r.connect(opts{}, opts{})
		switch i % 5 {
		case 0:
			r.close(s, c)
		case 1:
			c.qp.Abort()
		case 2:
			c.post(WorkRequest{Op: OpWrite, Local: c.source.Slice(0, 1), RemoteSTag: 1})
		case 3:
			s.qp.Abort()
		case 4:
			require.NoError(t, r.dial(r.newEnd(r.client, opts{}), nil).Reject(r.ctx, nil))
			c.qp.Disconnect()
		}
	}
	p := r.peerDials()
	p.write([]byte("nonsense"))
	p.expectReset()
	_ = r.peerDials() // says nothing, and is still there when the Adapter closes
	for _, a := range []*Adapter{r.server, r.client} {
		require.NoError(t, a.Close(r.ctx))
		r.until("all slots", func() bool { return a.host.Slots.Count() == 0 })
		require.Empty(t, a.host.Live())
		require.Zero(t, reflect.ValueOf(a.table).Elem().FieldByName("readers").Len(),
			"epoch words that Deregister still waits for")
	}
	r.listener.Close()
	// the raw peers' readers
	r.until("all goroutines gone", func() bool { return runtime.NumGoroutine() <= before+2 })
}

// A kernel that takes only part of what it is given gets the rest later, in order.
func TestSocketPartialWrites(t *testing.T) {
	const n = 1 << 20
	r := newRig(t, sockets, rigConfig{})
	s := r.newEndOf(r.server, opts{}, n)
	p := r.peerDials()
	raw := p.peerStream.(*socketStream)
	require.NoError(t, raw.nc.SetReadBuffer(64<<10))
	p.write(request(mpa.Frame{Rev: 1}))
	r.accept(s)
	p.start(mpa.Mode{CRC: true, Markers: p.expectFrame(mpa.Reply).Markers})
	require.NoError(t, s.qp.end.Connection.Load().Transport.(*transport.KernelConn).Socket().
		SetWriteBuffer(16<<10))
	p.inject(writeFPDU(0, 0, ""))
	for i := range 4 {
		s.post(s.sendQuietly(i*n/4, n/4))
	}
	var got []byte
	for len(got) < n {
		got = append(got, p.nextFPDU().payload...)
	}
	require.True(t, bytes.Equal(s.source.Bytes(), got))
}

// What a peer said before it reset the connection is taken, whichever goroutine learns of the
// reset first: the kernel tells the writer at once, and the reader after the last octet.
func TestSocketResetAfterMessages(t *testing.T) {
	const n, messages = 30000, 4
	r := newRig(t, sockets, rigConfig{})
	s := r.newEndOf(r.server, opts{}, n*messages)
	p := r.peerDials()
	p.write(request(mpa.Frame{Rev: 1}))
	for i := range messages {
		s.postRecv(s.recvAt(uint64(i), i*n, n))
	}
	r.accept(s)
	p.start(mpa.Mode{CRC: true, Markers: p.expectFrame(mpa.Reply).Markers})
	o := s.qp.end.Connection.Load().Transport.(*transport.KernelConn)
	require.NoError(t, o.Submit(func() { // the reader comes as far as its first octets
		for i := range messages {
			p.inject(sendFPDU(uint32(i+1), make([]byte, n)))
		}
		p.reset()
		r.until("the kernel knows of the reset", func() bool {
			var state uint8
			require.NoError(t, o.Control(func(fd uintptr) {
				info := must(unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO))
				state = info.State
			}))
			return state == tcpClose
		})
		o.SendFailed(syscall.EPIPE)
	}))
	s.expectEach(messages, Completion{Len: n, Op: OpRecv})
	s.expectClosedBy(stack.ErrReset)
}

// tcpClose is TCP_CLOSE of the kernel's net/tcp_states.h.
const tcpClose = 7

// A writer that the peer does not read from is ended by abort, and so is one whose peer is gone.
func TestSocketBlockedWriter(t *testing.T) {
	const n = 32 << 20
	for name, end := range map[string]func(s *end, peer *net.TCPConn){
		"own abort": func(s *end, _ *net.TCPConn) { s.qp.Abort() },
		"peer's reset": func(_ *end, peer *net.TCPConn) {
			_ = peer.SetLinger(0)
			_ = peer.Close() // a reset, for there is unread data
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, sockets, rigConfig{})
			s := r.newEndOf(r.server, opts{}, n)
			p := r.dialBlocked(s)
			s.post(s.send(1, 0, n), s.send(2, 0, n))
			var last uint64
			r.until("a writer that stands still", func() bool {
				now := r.stats(s.qp).PayloadSent
				stands := now == last && now > 0
				last = now
				return stands
			})
			end(s, p)
			s.awaitClosed()
			s.expectEach(2, Completion{ID: 1, Op: OpSend, Status: Flushed})
		})
	}
}

// dialBlocked is a raw Initiator that reads the Reply and nothing more.
func (r *rig) dialBlocked(s *end) *net.TCPConn {
	r.t.Helper()
	c := must(net.Dial("tcp", r.addr()))
	nc := c.(*net.TCPConn)
	r.t.Cleanup(func() { _ = nc.Close() }) // the test may have
	require.NoError(r.t, nc.SetDeadline(time.Now().Add(patience)))
	_, err := nc.Write(request(mpa.Frame{Rev: 1, CRC: true}))
	require.NoError(r.t, err)
	r.accept(s)
	_, err = io.ReadFull(nc, make([]byte, mpa.FrameLen))
	require.NoError(r.t, err)
	p := &peer{}
	p.start(mpa.Mode{CRC: true})
	_, err = nc.Write(p.frame(writeFPDU(0, 0, "")))
	require.NoError(r.t, err)
	return nc
}

// A run of FPDUs begins where a segment of the kernel's begins.
//
// req: D01-3.1.1-6, 5044-5.1-2
// req: C02-5.1.1-6
func TestSocketSegments(t *testing.T) {
	r := newRig(t, sockets, rigConfig{})
	s, c := r.connect(opts{}, opts{})
	r.exchange(s, c)
	transport := c.qp.end.Connection.Load().Transport.(*transport.KernelConn)
	require.NoError(t, transport.Submit(func() {
		require.Greater(t, transport.EMSS(), 500)
		require.Positive(t, transport.Progress())
	}))
	noDelay, err := 0, error(nil)
	require.NoError(t, transport.Control(func(fd uintptr) {
		noDelay, err = syscall.GetsockoptInt(int(fd), syscall.IPPROTO_TCP, syscall.TCP_NODELAY)
	}))
	require.NoError(t, err)
	require.NotZero(t, noDelay, "Nagle's algorithm is on")
}

// A peer that connects and says nothing, or waits for its Request to be decided, takes no Bufs:
// those come with full operation.
func TestUnprovenPeersOverSocketsTakeNoBufs(t *testing.T) {
	const n, each = 60, 16 << 10
	heap := func() uint64 {
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	r := newRig(t, sockets, rigConfig{})
	before := heap()
	for i := range n {
		nc := must(net.Dial("tcp", r.addr()))
		defer func() { _ = nc.Close() }()
		if i%2 == 0 {
			_, err := nc.Write(request(mpa.Frame{Rev: 1, CRC: true}))
			require.NoError(t, err)
		}
	}
	r.until("all connections", func() bool {
		return len(r.server.host.Live()) == n && len(r.listener.requests) == n/2
	})
	require.Less(t, heap(), before+n*each)

	s := r.newEnd(r.server, opts{})
	require.NoError(t, r.listener.Poll().Accept(r.ctx, s.qp, s.conn))
	require.NotNil(t, s.qp.end.Connection.Load().Pool)
}

// A timer that fires while its connection is at something else, which clears it, does nothing any
// more.
func TestSocketTimerClearedAsItFires(t *testing.T) {
	r := newRig(t, sockets, rigConfig{})
	s, c := r.connect(opts{}, opts{})
	r.exchange(s, c)
	l := c.qp.end.Connection.Load()
	require.NoError(t, l.Transport.Submit(func() {
		l.Transport.SetTimer(1) // long ago
		<-time.After(2 * time.Millisecond)
		l.Transport.SetTimer(0)
	}))
	for range 100 { // turns at the lock; the timer's function has one
		var seen uint64
		require.NoError(t, l.Transport.Submit(func() { seen = l.ProgressSeen() }))
		require.Zero(t, seen, "the connection's timer ran")
		runtime.Gosched()
	}
	r.close(s, c)
}
