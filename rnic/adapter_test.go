package rnic

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

func TestOpen(t *testing.T) {
	for _, cfg := range []Config{{RegionsMax: -1}, {ConnsMax: -1}} {
		_, err := Open(cfg)
		require.ErrorContains(t, err, "must be positive")
	}
	for _, n := range []int{-1, connsMaxDefault + 1} {
		_, err := Open(Config{PeerMax: n})
		require.ErrorContains(t, err, "PeerMax")
	}
	_, err := Open(Config{RegionsMax: mem.EntriesMax + 1})
	require.EqualError(t, err, "rnic: RegionsMax 1048577, 1048576 at most")
	_, err = Open(Config{Pollers: []*stack.Poller{nil}})
	require.EqualError(t, err, "rnic: Config.Pollers[0] is nil")
	p := newRig(t, turned, rigConfig{}).hosts[0].poller
	_, err = Open(Config{Pollers: []*stack.Poller{p, p}})
	require.ErrorContains(t, err, "is named twice")
	a := must(Open(Config{}))
	require.Equal(t, RegionsMaxDefault, a.cfg.RegionsMax)
	require.Equal(t, connsMaxDefault, a.cfg.ConnsMax)
	require.NoError(t, a.Close(context.Background()), "nothing to close")
}

// Close ends every connection, in whatever phase it is, and flushes its work; closed is closed:
// nothing new comes in or goes out.
func TestAdapterClose(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{})
		s.postRecv(s.recvAt(1, 0, 1))
		waiting := r.newEnd(r.client, opts{})
		req := r.dial(waiting, nil) // not decided
		r.peerDials()               // no Request
		r.until("three ends at the server", func() bool { return len(r.server.host.Live()) == 3 })
		out, spare := r.newEnd(r.server, opts{}), r.newEnd(r.server, opts{})
		require.NoError(t, r.server.Close(r.ctx))
		require.Empty(t, r.server.host.Live())
		require.True(t, isDone(s.qp))
		require.ErrorIs(t, s.qp.Err(), ErrClosed)
		s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
		c.expectClosedBy(stack.ErrReset)
		waiting.expectClosedBy(stack.ErrReset)
		require.Error(t, req.Accept(r.ctx, spare.qp, spare.conn))

		addr := "10.9.0.2:1"
		if r.kind == sockets {
			addr, _ = r.peerListens()
		}
		require.ErrorIs(t, out.qp.StartConnect(r.ctx, addr, out.conn), ErrClosed)
		require.ErrorIs(t, r.tryConnect(ConnParam{}), stack.ErrRefused)
		require.NoError(t, r.server.Close(r.ctx), "twice")
		require.Zero(t, r.server.slotsTaken())
	})
}

// Close closes the Listeners: an Accept that waits is told, the port is free, and nothing is made
// on a closed Adapter.
func TestAdapterCloseEndsListeners(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		accepted := make(chan error, 1)
		go func() {
			_, err := r.listener.Accept(context.Background())
			accepted <- err
		}()
		other := r.newEnd(r.server, opts{})
		require.NoError(t, r.server.Close(r.ctx))
		require.ErrorIs(t, soon(&r.driver, accepted), ErrClosed)
		require.Nil(t, r.listener.Poll())
		r.listener.Close()

		_, err := r.server.Listen(r.ctx, r.addr(), ListenOptions{})
		require.ErrorIs(t, err, ErrClosed)
		_, err = r.server.CreateQP(other.qp.opt)
		require.ErrorIs(t, err, ErrClosed)
		_, err = r.server.Dial(r.ctx, r.addr(), other.qp.opt, ConnParam{})
		require.ErrorIs(t, err, ErrClosed)
		if r.kind == sockets {
			again, err := net.Listen("tcp", r.addr())
			require.NoError(t, err, "the port is free")
			require.NoError(t, again.Close())
		}
	})
}

// While Close waits for a Listener to end, nothing new begins.
func TestAdapterCloseShutsAtOnce(t *testing.T) {
	a := must(Open(Config{}))
	cq := must(a.CreateCQ(4))
	l := must(a.Listen(t.Context(), "127.0.0.1:0", ListenOptions{}))
	waits, goOn := make(chan struct{}), make(chan struct{})
	stop := l.stop
	l.stop = func(ctx context.Context) { close(waits); <-goOn; stop(ctx) }
	closed := make(chan error, 1)
	go func() { closed <- a.Close(context.Background()) }()
	<-waits
	_, qpErr := a.CreateQP(QPOptions{PD: a.AllocPD(), SendCQ: cq, RecvCQ: cq})
	_, listenErr := a.Listen(t.Context(), "127.0.0.1:0", ListenOptions{})
	close(goOn)
	require.NoError(t, <-closed)
	require.ErrorIs(t, qpErr, ErrClosed)
	require.ErrorIs(t, listenErr, ErrClosed)
}

// OnFailure is told what went wrong, and may close the Adapter.
func TestAdapterCloseInOnFailure(t *testing.T) {
	var r *rig
	told, closed, ready := make(chan error, 1), make(chan error, 1), make(chan struct{})
	r = newRig(t, sockets, rigConfig{listen: ListenOptions{OnFailure: func(f ConnFailure) {
		<-ready
		told <- f.Err
		closed <- r.server.Close(r.ctx)
	}}})
	close(ready)
	r.peerDials().write([]byte("nonsense"))
	require.ErrorIs(t, soon(&r.driver, told), mpa.ErrKey)
	require.NoError(t, soon(&r.driver, closed))
}

// Close waits no longer than its context.
func TestAdapterCloseContext(t *testing.T) {
	r, s, _ := connected(t, opts{}, opts{})
	r.server.host.Manual = nil // the Poller stands still
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	require.ErrorIs(t, r.server.Close(ctx), context.Canceled)
	r.server.host.Manual = r.step
	s.awaitClosed()
}

// A Poller that stops ends its connections: those that wait are told, what was posted is flushed,
// counters stay.
func TestPollerStops(t *testing.T) {
	r := newRig(t, running, rigConfig{})
	s, c := r.connect(opts{}, opts{})
	r.exchange(s, c)
	s.postRecv(s.recvAt(1, 0, 1))
	r.hosts[0].poller.Stop()
	<-r.hosts[0].poller.Done()
	s.expectClosedBy(stack.ErrStopped)
	require.Equal(t, Flushed, s.await(1)[0].Status)
	s.post(WorkRequest{Op: OpSend, ID: 2})
	require.Equal(t, Flushed, s.await(1)[0].Status)
	require.Equal(t, uint64(6000), r.stats(s.qp).PayloadSent)
	s.qp.Abort()
	s.qp.Disconnect()
	require.ErrorIs(t, s.qp.Close(r.ctx), stack.ErrStopped)
	c.expectClosedBy(stack.ErrReset)
	out := r.newEnd(r.server, opts{})
	require.ErrorIs(t, out.qp.Connect(r.ctx, "10.9.0.2:1", out.conn), stack.ErrStopped)
	_, err := r.server.Listen(r.ctx, ":99", ListenOptions{})
	require.ErrorIs(t, err, stack.ErrStopped)
}

// What a peer sends during start-up is copied: a request may be looked at long after its Buf was
// used again.
func TestRequestOutlivesItsBuf(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	p := r.peerDials()
	p.write(request(mpa.Frame{Rev: 1, CRC: true, PrivateData: []byte("keep this")}))
	req := r.request()
	s, c := r.connect(opts{}, opts{})
	for range 50 {
		r.exchange(s, c)
	}
	require.Equal(t, "keep this", string(req.PrivateData()))
}
