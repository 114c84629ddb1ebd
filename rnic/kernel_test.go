package rnic

import (
	"io"
	"net"
	"reflect"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
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
	r.until("the end of all", func() bool { return len(r.server.host.Live()) == 0 })
	_ = r.peerDials() // says nothing, and is still there when the Adapter closes
	r.until("the silent one", func() bool { return len(r.server.host.Live()) == 1 })
	for _, a := range []*Adapter{r.server, r.client} {
		require.NoError(t, a.Close(r.ctx))
		require.Zero(t, a.slotsTaken())
		require.Empty(t, a.host.Live())
		require.Zero(t, reflect.ValueOf(a.table).Elem().FieldByName("readers").Len(),
			"epoch words that Deregister still waits for")
	}
	r.listener.Close()
	// the raw peers' readers
	r.until("all goroutines gone", func() bool { return runtime.NumGoroutine() <= before+2 })
}

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
	must(nc.Write(request(mpa.Frame{Rev: 1, CRC: true})))
	r.accept(s)
	must(io.ReadFull(nc, make([]byte, mpa.FrameLen)))
	p := &peer{}
	p.start(mpa.Mode{CRC: true})
	must(nc.Write(p.frame(writeFPDU(0, 0, ""))))
	return nc
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
			must(nc.Write(request(mpa.Frame{Rev: 1, CRC: true})))
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
