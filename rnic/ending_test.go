package rnic

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/stack"
)

// between runs f once, when the client's (or server's) call next has to wait for its Poller.
func (r *rig) between(a *Adapter, f func()) {
	a.host.Manual = func() {
		a.host.Manual = r.step
		f()
		r.step()
	}
}

// ended is a context that is over.
func ended() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// fillControl leaves no room in the control ring of a Poller that is not turning.
func fillControl(t *testing.T, p *stack.Poller) {
	t.Helper()
	for i := 0; ; i++ {
		if err := p.Submit(func() {}); err != nil {
			require.ErrorIs(t, err, stack.ErrBusy)
			require.Positive(t, i)
			return
		}
	}
}

// Abort and Close that come while Accept waits for the Poller: the connection that then comes
// about is given up.
func TestAbortMeetsAccept(t *testing.T) {
	for name, end := range map[string]func(q *QueuePair){
		"abort": (*QueuePair).Abort, "disconnect": (*QueuePair).Disconnect,
		"close": func(q *QueuePair) { _ = q.Close(ended()) },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{})
			s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
			req := r.dial(c, nil)
			r.between(r.server, func() { end(s.qp) })
			_ = req.Accept(r.ctx, s.qp, s.conn) // it may have been quicker
			s.expectClosedBy(ErrClosed)
			c.awaitClosed()
			require.Empty(t, r.server.host.Live())
		})
	}
}

// A Dial that an Adapter's Close overtakes: it had its place among the connections, but no
// connection yet.
func TestAdapterCloseMeetsDial(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client, opts{})
	fillControl(t, r.hosts[1].poller) // so that the dial waits
	r.between(r.client, func() {
		r.step()
		require.ErrorIs(t, r.client.Close(ended()), context.Canceled)
	})
	require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn))
	c.expectClosedBy(ErrClosed)
	require.NoError(t, r.client.Close(r.ctx))
	require.Empty(t, r.server.host.Live(), "it dialled nevertheless")
}

// A full control ring makes a call wait, not fail.
func TestCallsWaitForRoomInTheControlRing(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
	fillControl(t, r.hosts[1].poller)
	require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn))
	req := r.request()
	fillControl(t, r.hosts[0].poller)
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	c.expectState(RTS)
	fillControl(t, r.hosts[0].poller)
	l := must(r.server.Listen(r.ctx, ":7175", ListenOptions{}))
	l.Close()
	r.exchange(s, c)
	fillControl(t, r.hosts[0].poller)
	require.NoError(t, r.server.Close(r.ctx))
	c.awaitClosed()
}

// It waits no longer than its context. A connection that the Poller was not asked for leaves no
// state, and an Adapter's Close that has seen it does not wait for its end.
func TestDialThatFindsNoRoom(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client, opts{})
	fillControl(t, r.hosts[1].poller)
	ctx, cancel := context.WithCancel(r.ctx)
	var seen *connect.Connection
	r.client.host.Manual = func() { // the Poller stands still
		seen = c.qp.end.Connection.Load()
		cancel()
	}
	require.ErrorIs(t, c.qp.StartConnect(ctx, r.addr(), c.conn), context.Canceled)
	require.True(t, isDone(c.qp))
	require.True(t, isClosed(seen.Gone.C()), "Close would wait for ever")
	require.Empty(t, r.client.host.Live())
	require.NoError(t, r.client.Close(r.ctx))
	r.client.host.Manual = r.step
	r.pass(time.Second)
	require.Empty(t, r.server.host.Live())
}

// Connect returns when its context ends although nobody turns the Poller.
func TestConnectOverAPollerThatStandsStill(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client, opts{})
	r.client.host.Manual = nil
	ctx, cancel := context.WithCancel(r.ctx)
	result := make(chan error, 1)
	go func() { result <- c.qp.Connect(ctx, r.addr(), c.conn) }()
	c.expectState(Connecting)
	cancel()
	select {
	case err := <-result:
		require.ErrorIs(t, err, context.Canceled)
	case <-r.ctx.Done():
		t.Fatal("Connect waits for ever")
	}
	r.client.host.Manual = r.step
	c.expectClosedBy(ErrClosed)
}

// A Responder may not speak before the Initiator's first FPDU. When the peer closes without one,
// what was posted is flushed and the connection ends at once, in order.
func TestPeerClosesBeforeAnyFPDU(t *testing.T) {
	for _, half := range []bool{false, true} { // it has no half to keep open
		r, s, p := served(t, connOpts(ConnParam{AllowHalfClosed: half}))
		s.post(WorkRequest{Op: OpSend, ID: 1, Local: s.source.Slice(0, 100)})
		begin := r.time
		p.closeSend()
		s.expectClosed()
		require.Less(t, r.time-begin, int64(connect.LingerTimeout))
		require.Equal(t, Flushed, s.await(1)[0].Status)
	}
}

// Listen over several Pollers that fails on one leaves none listening.
func TestListenOverSeveralPollers(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	all := must(Open(Config{Pollers: []*stack.Poller{r.hosts[0].poller, r.hosts[1].poller},
		Manual: r.step}))
	second := must(r.client.Listen(r.ctx, ":9000", ListenOptions{}))
	_, err := all.Listen(r.ctx, ":9000", ListenOptions{})
	require.ErrorIs(t, err, stack.ErrPortUsed)
	second.Close()
	r.step()
	l, err := all.Listen(r.ctx, ":9000", ListenOptions{})
	require.NoError(t, err, "the first Poller still listens")
	l.Close()
	r.step()
	require.NoError(t, all.Close(r.ctx))
}

// An accept loop that pauses, as the system refuses it connections, ends with its Listener.
func TestAcceptLoopEndsInItsPause(t *testing.T) {
	r := newRig(t, sockets, rigConfig{})
	tl := must(net.Listen("tcp", "127.0.0.1:0")).(*net.TCPListener)
	l := &Listener{
		adapter: r.server, failures: make(chan ConnFailure, 1000),
		done: make(chan struct{}), stop: func(context.Context) { _ = tl.Close() },
	}
	require.NoError(t, l.serve(ListenOptions{}))
	require.NoError(t, tl.SetDeadline(time.Unix(1, 0))) // every accept fails at once
	over := make(chan struct{})
	go func() {
		l.acceptLoop(tl)
		close(over)
	}()
	require.Error(t, soon(&r.driver, l.failures).Err)
	l.Close()
	soon(&r.driver, over)
}
