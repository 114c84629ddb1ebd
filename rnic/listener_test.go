package rnic

import (
	"context"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
)

func TestListenErrors(t *testing.T) {
	over(t, []kind{turned}, rigConfig{}, func(t *testing.T, r *rig) {
		for addr, want := range map[string]string{
			"rnic:7175":     "\"rnic\" is not an address",
			"7174":          "missing port",
			":http":         "not a number from 1",
			":70000":        "not a number from 1",
			"10.9.0.7:7175": "not an address of ours",
			":7174":         "port is in use",
		} {
			_, err := r.server.Listen(r.ctx, addr, ListenOptions{})
			require.ErrorContains(t, err, want)
			require.ErrorContains(t, err, "rnic: listen on ")
		}
		l := must(r.server.Listen(r.ctx, "10.9.0.1:7175", ListenOptions{}))
		require.Equal(t, "10.9.0.1:7175", l.Addr().String())
		l.Close()
		r.step()
		must(r.server.Listen(r.ctx, ":7175", ListenOptions{})).Close() // the port is free again
	})
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) { // port 0 is a free one, on either transport
		ports := map[uint16]bool{}
		for range 3 {
			l := must(r.server.Listen(r.ctx, r.anyPort(), ListenOptions{}))
			ports[l.Addr().Port()] = true
			c := r.newEnd(r.client, opts{})
			require.NoError(t, c.qp.StartConnect(r.ctx, l.Addr().String(), c.conn))
			req := soon(&r.driver, l.requests)
			require.NoError(t, req.Accept(r.ctx, r.newEnd(r.server, opts{}).qp, ConnParam{}))
			c.expectInService()
		}
		require.Len(t, ports, 3)
		require.NotContains(t, ports, uint16(0))
	})
	over(t, []kind{sockets}, rigConfig{}, func(t *testing.T, r *rig) {
		_, err := r.server.Listen(r.ctx, r.addr(), ListenOptions{})
		require.ErrorContains(t, err, "address already in use")
		_, err = r.server.Listen(r.ctx, "nonsense", ListenOptions{})
		require.Error(t, err)
	})
}

// A backlog is memory: what nobody has, or nobody wants, is an error.
func TestListenBacklog(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		for _, n := range []int{-1, BacklogMax + 1, 1 << 30} {
			_, err := r.server.Listen(r.ctx, "127.0.0.1:0", ListenOptions{Backlog: n})
			require.EqualError(t, err, fmt.Sprintf("rnic: ListenOptions.Backlog %d, 1 to 65536 possible, "+
				"or 0 for 128", n))
		}
	})
}

// Accept ends with its context and with the Listener; connections go on without it.
func TestListenerClose(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{})
		ctx, cancel := context.WithCancel(r.ctx)
		cancel()
		_, err := r.listener.Accept(ctx)
		require.ErrorIs(t, err, context.Canceled)
		wait := make(chan error)
		go func() {
			_, err := r.listener.Accept(r.ctx)
			wait <- err
		}()
		r.listener.Close()
		require.ErrorIs(t, <-wait, ErrClosed)
		r.listener.Close()
		r.exchange(s, c)
		require.ErrorIs(t, r.tryConnect(ConnParam{}), stack.ErrRefused)
	})
}

// A request can be decided once.
//
// req: D01-6.1-6, D01-6.1-7
func TestDecideTwice(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s, c, other := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{}), r.newEnd(r.server, opts{})
	used, _ := r.connect(opts{}, opts{})
	req := r.dial(c, []byte("ticket 7"))
	require.ErrorIs(t, req.Accept(r.ctx, used.qp, used.conn), ErrState)
	r.pass(time.Second)
	require.Equal(t, Connecting, c.qp.State(), "no full operation without a queue pair")
	foreign := r.newEnd(r.client, opts{}) // whose table the connection does not know
	require.ErrorContains(t, req.Accept(r.ctx, foreign.qp, foreign.conn), "another adapter")
	require.Equal(t, Idle, foreign.qp.State())
	require.ErrorContains(t, req.Accept(r.ctx, nil, ConnParam{}), "no queue pair given")
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	require.ErrorIs(t, req.Accept(r.ctx, other.qp, other.conn), ErrState)
	require.ErrorIs(t, req.Reject(r.ctx, nil), ErrState)
	require.Equal(t, Closed, other.qp.State(), "a queue pair that failed to connect is spent")
	require.ErrorIs(t, req.Accept(r.ctx, s.qp, s.conn), ErrState, "the queue pair is in service")
	c.expectState(RTS)
	r.exchange(s, c)
}

// StartAccept puts the QueuePair into service soon, or has it say why not. It does not wait for the
// Poller.
func TestStartAccept(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s, c, other := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{}), r.newEnd(r.server, opts{})
	req := r.dial(c, nil)
	require.ErrorContains(t, req.StartAccept(r.ctx, c.qp, c.conn), "another adapter")
	require.NoError(t, req.StartAccept(r.ctx, s.qp, s.conn))
	require.Equal(t, Connecting, s.qp.State())
	require.ErrorIs(t, req.StartAccept(r.ctx, s.qp, s.conn), ErrState, "it was taken")
	c.expectState(RTS)
	s.expectState(RTS)
	r.exchange(s, c)
	require.NoError(t, req.StartAccept(r.ctx, other.qp, other.conn))
	other.expectState(Closed)
	require.ErrorIs(t, other.qp.Err(), ErrState, "the request was decided")
}

// Accept whose context has ended either puts the QueuePair into service or has spent it: never
// both.
func TestAcceptContextEnds(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(r.ctx)
		cancel()
		for range 30 {
			s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
			req := r.dial(c, nil)
			if err := req.Accept(ctx, s.qp, s.conn); err != nil {
				require.ErrorIs(t, err, context.Canceled)
				require.True(t, isDone(s.qp))
				require.ErrorIs(t, s.qp.Err(), context.Canceled)
				require.NoError(t, req.Reject(r.ctx, nil), "the request was not touched")
				c.awaitClosed()
				continue
			}
			c.expectState(RTS)
			r.exchange(s, c)
			r.close(s, c)
		}
	})
}

// A Poller's turn may come long after the caller gave up: what it then finds must not be carried
// out.
func TestAcceptGivenUpBeforeItsTurn(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
	req := r.dial(c, nil)
	r.server.host.Manual = nil // the Poller does not turn while Accept waits
	ctx, cancel := context.WithCancel(r.ctx)
	cancel()
	require.ErrorIs(t, req.Accept(ctx, s.qp, s.conn), context.Canceled)
	require.True(t, isDone(s.qp))
	r.server.host.Manual = r.step
	r.pass(time.Second)
	require.Equal(t, Connecting, c.qp.State())
	other := r.newEnd(r.server, opts{})
	require.NoError(t, req.Accept(r.ctx, other.qp, other.conn))
	c.expectState(RTS)
	r.exchange(other, c)
}

// A request keeps its addresses when its connection has ended, which the driver's goroutine notices
// while another one may ask.
func TestRequestKeepsItsAddresses(t *testing.T) {
	over(t, []kind{turned, sockets}, rigConfig{}, func(t *testing.T, r *rig) {
		c := r.newEnd(r.client, opts{})
		req := r.dial(c, nil)
		local, remote := req.Local(), req.Remote()
		require.True(t, local.IsValid() && remote.IsValid())
		c.qp.Abort()
		require.NoError(t, r.server.host.Wait(r.ctx, req.connection.Gone.C()))
		require.Equal(t, local, req.Local())
		require.Equal(t, remote, req.Remote())
	})
}

// ConnsMax bounds the connections over kernel sockets: accepted ones and dialled ones.
//
// req: 5041-8.3.2-4, 5042-6.4.1-1
func TestConnsMax(t *testing.T) {
	r := newRig(t, sockets, rigConfig{server: Config{ConnsMax: 2}})
	s1, c1 := r.connect(opts{}, opts{})
	s2, c2 := r.connect(opts{}, opts{})

	nc, err := net.Dial("tcp", r.addr())
	if err == nil { // the reset may be faster
		r.newPeer(newSocketStream(r, nc.(*net.TCPConn))).expectReset()
	}
	f := r.failure()
	require.ErrorIs(t, f.Err, stack.ErrConnMax)
	require.ErrorContains(t, f.Err, "ConnsMax is 2")
	require.True(t, f.Remote.IsValid())
	out := r.newEnd(r.server, opts{})
	require.ErrorIs(t, out.qp.Connect(r.ctx, r.addr(), out.conn), stack.ErrConnMax)
	require.Equal(t, StartupRefusals{Connections: 1}, r.server.StartupCounters().Refused)

	r.close(s1, c1)
	s3, c3 := r.connect(opts{}, opts{})
	r.exchange(s2, c2)
	r.exchange(s3, c3)
}

// Reports that nobody takes in time are dropped and counted, and hold nothing up.
func TestFailureReportsDropped(t *testing.T) {
	release := make(chan struct{})
	var once sync.Once
	free := func() { once.Do(func() { close(release) }) }
	defer free()
	r := newRig(t, sockets, rigConfig{listen: ListenOptions{OnFailure: func(ConnFailure) {
		<-release
	}}})
	const n = 80 // one is being told, 64 wait
	for range n {
		p := r.peerDials()
		p.write([]byte("nonsense"))
		p.expectReset()
	}
	r.until("dropped reports", func() bool { return r.listener.Dropped() == n-65 })
	s, c := r.connect(opts{}, opts{})
	r.exchange(s, c)
	free()
}
