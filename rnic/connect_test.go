package rnic

import (
	"bytes"
	"context"
	"errors"
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// accepted answers the next request on a goroutine: for blocking calls at the client.
func (r *rig) accepted(answer func(req *ConnRequest) error) (wait func()) {
	done := make(chan error, 1)
	go func() {
		req, err := r.listener.Accept(r.ctx)
		if err == nil {
			err = answer(req)
		}
		done <- err
	}()
	return func() { require.NoError(r.t, <-done) }
}

// Private data of every length travels both ways, unlooked at.
//
// req: D01-6.1-12, D01-6.1-16, D01-6.1-19, D01-6.1.1-15, D01-6.1.1-18, 5044-7.1.1-8, D01-6.1.1-17
func TestPrivateData(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		for _, n := range []int{0, 1, 511, mpa.PrivateDataMax} {
			there, back := randomBytes(1, n), randomBytes(2, n)
			s := r.newEnd(r.server, opts{})
			wait := r.accepted(func(req *ConnRequest) error {
				require.True(t, bytes.Equal(there, req.PrivateData()))
				require.True(t, req.Remote().IsValid())
				return req.Accept(r.ctx, s.qp, s.with(back))
			})
			cq, err := r.client.CreateCQ(4)
			require.NoError(t, err)
			q, err := r.client.Dial(r.ctx, r.addr(),
				QPOptions{PD: r.client.AllocPD(), SendCQ: cq, RecvCQ: cq}, ConnParam{PrivateData: there})
			require.NoError(t, err)
			wait()
			require.Equal(t, RTS, q.State())
			require.Equal(t, r.addr(), q.RemoteAddr().String())
			require.Equal(t, q.LocalAddr(), s.qp.RemoteAddr())
			require.Equal(t, q.RemoteAddr(), s.qp.LocalAddr())
			require.True(t, bytes.Equal(back, q.PeerPrivateData()))
			require.NoError(t, q.Close(r.ctx))
		}
	})
}

// More private data than a frame carries is an error before anything is sent, and leaves things
// as they were.
//
// req: D01-6.1-32
func TestPrivateDataTooLong(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		long := make([]byte, mpa.PrivateDataMax+1)
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
		require.ErrorContains(t, c.qp.StartConnect(r.ctx, r.addr(), c.with(long)),
			"513 octets of private data")
		require.ErrorContains(t, c.qp.Connect(r.ctx, r.addr(), c.with(long)),
			"513 octets of private data")
		require.Equal(t, Idle, c.qp.State())
		_, err := r.client.Dial(r.ctx, r.addr(), QPOptions{PD: c.pd, SendCQ: c.cq, RecvCQ: c.cq},
			ConnParam{PrivateData: long})
		require.ErrorContains(t, err, "513 octets of private data")
		req := r.dial(c, nil)
		require.ErrorContains(t, req.Accept(r.ctx, s.qp, s.with(long)), "513 octets of private data")
		require.ErrorContains(t, req.Reject(r.ctx, long), "513 octets of private data")
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn), "the request is still there")
		c.expectState(RTS)
	})
}

// What the ULP rejects is a RejectedError with its private data; for the Listener it is no failure.
//
// req: D01-6.1-15, D01-6.1-16, D01-6.1-28, D01-6.1.1-11
func TestReject(t *testing.T) {
	for name, private := range map[string][]byte{"bare": nil, "with private data": []byte("no room"),
		"longest": randomBytes(1, 512)} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				c := r.newEnd(r.client, opts{})
				c.postRecv(c.recvAt(1, 0, 1))
				require.NoError(t, r.dial(c, nil).Reject(r.ctx, private))
				c.awaitClosed()
				var re *RejectedError
				require.ErrorAs(t, c.qp.Err(), &re)
				require.True(t, bytes.Equal(private, re.PrivateData))
				require.Equal(t, Closed, c.qp.State())
				require.Equal(t, Flushed, c.await(1)[0].Status)
				r.until("no connection at the server", func() bool { return len(r.server.host.Live()) == 0 })
				require.Empty(t, r.listener.failures)
			})
		})
	}
}

// Connect and Dial return the RejectedError inside a ConnectError.
func TestDialRejected(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		wait := r.accepted(func(req *ConnRequest) error { return req.Reject(r.ctx, []byte("go away")) })
		cq, err := r.client.CreateCQ(4)
		require.NoError(t, err)
		_, err = r.client.Dial(r.ctx, r.addr(), QPOptions{PD: r.client.AllocPD(), SendCQ: cq, RecvCQ: cq},
			ConnParam{})
		wait()
		var ce *ConnectError
		require.ErrorAs(t, err, &ce)
		require.Equal(t, r.addr(), ce.Addr)
		var re *RejectedError
		require.ErrorAs(t, err, &re)
		require.Equal(t, "go away", string(re.PrivateData))
		require.ErrorContains(t, err, "rejected by the peer (7 octets of private data)")
	})
}

// A rejecting Responder that keeps TCP open does not keep the Initiator.
//
// req: D01-6.1.3.2-2
func TestRejectedByPeerThatStays(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		addr, accept := r.peerListens()
		c := r.newEnd(r.client, opts{})
		require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
		p := accept()
		p.write((&mpa.Frame{Kind: mpa.Reply, Rev: 1, CRC: true, Reject: true, PrivateData: []byte("x")}).
			Append(nil))
		c.awaitClosed()
		var re *RejectedError
		require.ErrorAs(t, c.qp.Err(), &re)
		p.untilEnded()
	})
}

// Addresses that lead nowhere are errors that name the address, and end the QueuePair.
func TestConnectNowhere(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		refused := "10.9.0.1:9"
		if r.kind == sockets {
			l, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			refused = l.Addr().String()
			require.NoError(t, l.Close())
		}
		for _, tc := range []struct {
			addr string
			want error
		}{{refused, stack.ErrRefused}, {"nonsense", nil}, {"127.0.0.1:port", nil}, {"[::1", nil}} {
			c := r.newEnd(r.client, opts{})
			c.postRecv(c.recvAt(1, 0, 1))
			err := c.qp.Connect(r.ctx, tc.addr, c.conn)
			var ce *ConnectError
			require.ErrorAs(t, err, &ce)
			require.Equal(t, tc.addr, ce.Addr)
			if tc.want != nil {
				require.ErrorIs(t, err, tc.want)
			}
			require.Equal(t, Closed, c.qp.State())
			require.Error(t, c.qp.Err())
			require.Equal(t, Flushed, c.await(1)[0].Status)
		}
		require.Empty(t, r.client.host.Live())
		require.Zero(t, r.client.host.Slots.Count())
	})
}

// Connect gives up when its context ends, and the peer sees the connection go.
func TestConnectContext(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		ctx, cancel := context.WithCancel(r.ctx)
		c := r.newEnd(r.client, opts{})
		wait := r.accepted(func(req *ConnRequest) error { // neither accepts nor rejects in time
			cancel()
			<-req.connection.Gone.C()
			return nil
		})
		err := c.qp.Connect(ctx, r.addr(), c.conn)
		require.ErrorIs(t, err, context.Canceled)
		c.expectClosedBy(ErrClosed)
		wait()
		err = r.newEnd(r.client, opts{}).qp.Connect(ctx, r.addr(), ConnParam{})
		require.ErrorIs(t, err, context.Canceled, "it had ended before")
	})
}

// A connection that is still coming about can be given up, at any moment.
func TestAbortWhileConnecting(t *testing.T) {
	for name, end := range map[string]func(q *QueuePair){"abort": (*QueuePair).Abort,
		"disconnect": (*QueuePair).Disconnect} {
		t.Run(name, func(t *testing.T) {
			over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
				for i := range 20 {
					c := r.newEnd(r.client, opts{})
					c.postRecv(c.recvAt(1, 0, 1))
					require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn))
					for range i % 8 {
						if r.kind == turned {
							r.step()
						} else {
							yield()
						}
					}
					end(c.qp)
					c.expectClosedBy(ErrClosed)
					require.Equal(t, Closed, c.qp.State())
					require.Equal(t, Flushed, c.await(1)[0].Status)
				}
				r.until("no links", func() bool {
					return len(r.client.host.Live()) == 0 && len(r.server.host.Live()) == 0
				})
			})
		})
	}
}

// A kernel that is still at its handshake is not waited for.
func TestAbortDuringHandshake(t *testing.T) {
	fd, err := syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	defer func() { require.NoError(t, syscall.Close(fd)) }()
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	// room for one that nobody accepts; the next one's SYN is dropped
	require.NoError(t, syscall.Listen(fd, 0))
	name, err := syscall.Getsockname(fd)
	require.NoError(t, err)
	addr := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}),
		uint16(name.(*syscall.SockaddrInet4).Port)).String()
	filler, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	defer func() { require.NoError(t, filler.Close()) }()

	r := newRig(t, sockets, rigConfig{})
	for _, end := range []func(q *QueuePair) error{
		func(q *QueuePair) error { q.Abort(); return nil },
		func(q *QueuePair) error { return q.Close(r.ctx) },
	} {
		c := r.newEnd(r.client, opts{})
		result := make(chan error, 1)
		go func() { result <- c.qp.Connect(r.ctx, addr, c.conn) }()
		r.until("the dial", func() bool {
			return c.qp.State() == Connecting && r.client.host.Slots.Count() == 1
		})
		_ = end(c.qp) // Close tells why the connection ended, as Connect does
		var ce *ConnectError
		require.ErrorAs(t, <-result, &ce)
		require.NoError(t, r.ctx.Err(), "it waited for the kernel")
		c.awaitClosed()
		require.Zero(t, r.client.host.Slots.Count())
	}
}

// The kernel's words for what ends a connection become the stack's, so that both transports fail
// alike.
func TestErrorsSpeak(t *testing.T) {
	require.ErrorContains(t, &TerminateError{Remote: true, Cause: errors.New("x")},
		"peer terminated the stream: x")
	require.ErrorContains(t, &TerminateError{Cause: errors.New("x")}, "rnic: stream terminated: x")
	require.ErrorContains(t, &ConnectError{Addr: "a:1", Err: stack.ErrRefused},
		"rnic: connect to a:1: stack: connection refused")
	require.ErrorContains(t, &RevisionError{Revision: 2}, "MPA revision 2")
}

// Before start-up has settled markers there is no answer.
func TestPayloadMaxWhileConnecting(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
		_, err := c.qp.PayloadMax(r.ctx)
		require.ErrorIs(t, err, ErrState)
		req := r.dial(c, nil)
		_, err = c.qp.PayloadMax(r.ctx)
		require.ErrorIs(t, err, ErrState)
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		c.expectInService()
		n, err := c.qp.PayloadMax(r.ctx)
		require.NoError(t, err)
		require.Positive(t, n)
	})
}
