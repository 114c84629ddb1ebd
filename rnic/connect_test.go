package rnic

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

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
				return req.Accept(r.ctx, s.qp, s.with(back))
			})
			opt := r.newEnd(r.client, opts{}).qp.opt
			q := must(r.client.Dial(r.ctx, r.addr(), opt, ConnParam{PrivateData: there}))
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

// What the ULP rejects is a RejectedError with its private data, which Connect and Dial return
// inside a ConnectError; for the Listener it is no failure.
//
// req: D01-6.1-15, D01-6.1-16, D01-6.1-28, D01-6.1.1-11
func TestDialRejected(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		for _, n := range []int{0, 7, mpa.PrivateDataMax} {
			private := randomBytes(1, n)
			c := r.newEnd(r.client, opts{})
			c.postRecv(c.recvAt(1, 0, 1))
			for _, connect := range []func() error{
				func() error { return c.qp.Connect(r.ctx, r.addr(), c.conn) },
				func() error {
					_, err := r.client.Dial(r.ctx, r.addr(), c.qp.opt, ConnParam{})
					return err
				},
			} {
				wait := r.accepted(func(req *ConnRequest) error { return req.Reject(r.ctx, private) })
				err := connect()
				wait()
				require.Equal(t, r.addr(), errorAs[*ConnectError](t, err).Addr)
				require.True(t, bytes.Equal(private, errorAs[*RejectedError](t, err).PrivateData))
				require.ErrorContains(t, err,
					fmt.Sprintf("rejected by the peer (%d octets of private data)", n))
			}
			require.Equal(t, Closed, c.qp.State())
			c.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
		}
		r.until("no connection at the server", func() bool { return len(r.server.host.Live()) == 0 })
		require.Empty(t, r.listener.failures)
	})
}

// Addresses that lead nowhere are errors that name the address, and end the QueuePair.
func TestConnectNowhere(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		refused := map[bool]string{true: "127.0.0.1:1", false: "10.9.0.1:9"}[r.kind == sockets]
		for addr, want := range map[string]string{refused: stack.ErrRefused.Error(), "nonsense": "",
			"127.0.0.1:port": "", "[::1": ""} {
			c := r.newEnd(r.client, opts{})
			c.postRecv(c.recvAt(1, 0, 1))
			err := c.qp.Connect(r.ctx, addr, c.conn)
			require.Equal(t, addr, errorAs[*ConnectError](t, err).Addr)
			require.ErrorContains(t, err, want)
			require.Equal(t, Closed, c.qp.State())
			require.Error(t, c.qp.Err())
			require.Equal(t, Flushed, c.await(1)[0].Status)
		}
		require.Empty(t, r.client.host.Live())
		require.Zero(t, r.client.slotsTaken())
	})
}

// Errors of Dial and Listen are package net's, too, over either transport.
func TestErrorsAreOfNet(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		c := r.newEnd(r.client, opts{})
		refused := "127.0.0.1:1"
		if r.kind != sockets {
			refused = "10.9.0.1:9"
		}
		err := c.qp.Connect(r.ctx, refused, c.conn)
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.ErrorIs(t, err, stack.ErrRefused)
		op := errorAs[*net.OpError](t, err)
		require.Equal(t, []string{"dial", "tcp", refused}, []string{op.Op, op.Net, op.Addr.String()})
		require.False(t, err.(net.Error).Timeout())
		require.ErrorIs(t, c.qp.Err(), syscall.ECONNREFUSED)

		_, err = r.server.Listen(r.ctx, r.addr(), ListenOptions{})
		require.ErrorIs(t, err, syscall.EADDRINUSE)
		require.Equal(t, "listen", errorAs[*net.OpError](t, err).Op)

		for _, d := range []time.Duration{0, time.Millisecond} { // over before, or while it dials
			ctx, cancel := context.WithTimeout(r.ctx, d)
			defer cancel()
			c = r.newEnd(r.client, opts{})
			err = c.qp.Connect(ctx, r.addr(), c.conn) // nobody accepts
			require.ErrorIs(t, err, context.DeadlineExceeded)
			require.True(t, err.(net.Error).Timeout())
			require.True(t, errorAs[*net.OpError](t, err).Timeout())
		}

		require.NoError(t, r.listener.Close())
		_, err = r.listener.Accept(r.ctx)
		require.ErrorIs(t, err, net.ErrClosed)
	})
	for _, of := range []error{stack.ErrTimeout, ErrStartupTimeout, ErrLinger, ErrNoAnswer,
		fmt.Errorf("wrapped: %w", stack.ErrTimeout)} {
		err := &ConnectError{Addr: "a:1", Err: of}
		require.True(t, err.Timeout(), of)
		require.True(t, errorAs[*net.OpError](t, err).Timeout(), of)
		require.True(t, errorAs[net.Error](t, of).Timeout(), of)
		require.ErrorIs(t, err, syscall.ETIMEDOUT)
	}
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
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		for i := range 32 {
			c := r.newEnd(r.client, opts{})
			c.postRecv(c.recvAt(1, 0, 1))
			require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn))
			for range i / 2 % 8 {
				r.drive()
				yield()
			}
			if i%2 == 0 {
				c.qp.Abort()
			} else {
				c.qp.Disconnect()
			}
			c.expectClosedBy(ErrClosed)
			require.Equal(t, Closed, c.qp.State())
			require.Equal(t, Flushed, c.await(1)[0].Status)
		}
		r.until("no links", func() bool {
			return len(r.client.host.Live()) == 0 && len(r.server.host.Live()) == 0
		})
	})
}

// A kernel that is still at its handshake is not waited for.
func TestAbortDuringHandshake(t *testing.T) {
	fd := must(syscall.Socket(syscall.AF_INET, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0))
	defer func() { require.NoError(t, syscall.Close(fd)) }()
	require.NoError(t, syscall.Bind(fd, &syscall.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
	// room for one that nobody accepts; the next one's SYN is dropped
	require.NoError(t, syscall.Listen(fd, 0))
	name := must(syscall.Getsockname(fd))
	port := name.(*syscall.SockaddrInet4).Port
	addr := fmt.Sprint("127.0.0.1:", port)
	filler := must(net.Dial("tcp", addr))
	defer func() { require.NoError(t, filler.Close()) }()

	r := newRig(t, sockets, rigConfig{})
	for _, end := range []func(q *QueuePair) error{
		func(q *QueuePair) error { q.Abort(); return nil },
		func(q *QueuePair) error { return q.Close(r.ctx) },
	} {
		c := r.newEnd(r.client, opts{})
		result := make(chan error, 1)
		go func() { result <- c.qp.Connect(r.ctx, addr, c.conn) }()
		r.until("a SYN without an answer", func() bool {
			conns := must(os.ReadFile("/proc/net/tcp"))
			return bytes.Contains(conns, fmt.Appendf(nil, " 0100007F:%04X 02 ", port))
		})
		_ = end(c.qp) // Close tells why the connection ended, as Connect does
		errorAs[*ConnectError](t, <-result)
		require.NoError(t, r.ctx.Err(), "it waited for the kernel")
		c.awaitClosed()
		require.Zero(t, r.client.slotsTaken())
	}
}

// Requests of connections that one goroutine begins one after another, over kernel sockets, are
// accepted in that order: programs that connect several queue pairs tell by it which is which.
func TestSocketsKeepTheOrderOfConnects(t *testing.T) {
	const all = 200
	r := newRig(t, sockets, rigConfig{listen: ListenOptions{Backlog: all}})
	opt := r.newEnd(r.client, opts{}).qp.opt
	for i := range uint32(all) {
		qp := must(r.client.CreateQP(opt))
		require.NoError(t, qp.StartConnect(r.ctx, r.addr(),
			ConnParam{PrivateData: binary.BigEndian.AppendUint32(nil, i)}))
	}
	for i := range uint32(all) {
		require.Equal(t, i, binary.BigEndian.Uint32(r.request().PrivateData()))
	}
}
