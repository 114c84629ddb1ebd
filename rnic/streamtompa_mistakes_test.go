package rnic

import (
	"context"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// MPA is not started while streaming octets are unread, and the connection stays the stream it
// was: they can be read, and then it starts.
//
// req: D01-6.1.4-1
func TestUnreadStreamingOctets(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		sc, cc := r.streams()
		r.say(cc, sc, []byte("x")) // what is below is after it
		for i, x := range []net.Conn{cc, sc} {
			peer := []net.Conn{sc, cc}[i]
			n, err := peer.Write([]byte("one thing more"))
			require.NoError(t, err)
			r.untilUnread(x, peer, n)
		}
		c := r.newEnd(r.client, opts{})
		err := c.qp.StartConnectStream(r.ctx, cc, c.conn)
		require.ErrorIs(t, err, ErrUnread)
		require.ErrorContains(t, err, "rnic: connect to "+cc.RemoteAddr().String()+
			": rnic: octets of the peer's are unread")
		require.True(t, isDone(c.qp))
		_, err = r.server.AcceptStream(r.ctx, sc, helloAck)
		require.ErrorIs(t, err, ErrUnread)
		require.ErrorContains(t, err, "rnic: accept on the connection with "+sc.RemoteAddr().String()+
			": rnic: octets")
		require.Zero(t, len(r.server.host.Live())+len(r.client.host.Live()))

		r.hear(cc, []byte("one thing more"))
		r.hear(sc, []byte("one thing more"))
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
		r.delayed(s, c, sc, cc, nil)
		r.exchange(s, c)
		r.close(s, c)
		r.noBufLost()
	})
}

// untilUnread waits until the n octets that from has written are at its peer c, which reads none.
func (r *rig) untilUnread(c, from net.Conn, n int) {
	r.t.Helper()
	if k, ok := c.(*net.TCPConn); ok {
		r.until("octets at the socket", func() bool {
			have, err := transport.UnreadOctets(k)
			require.NoError(r.t, err)
			return have == n
		})
		return
	}
	var answer chan stream.Info
	r.until("acknowledgements", func() bool {
		if answer == nil {
			answer = make(chan stream.Info, 1)
			go func() {
				i, err := from.(*stream.Conn).Info(r.ctx)
				assert.NoError(r.t, err)
				answer <- i
			}()
		}
		select {
		case i := <-answer:
			answer = nil
			return i.Unacked == 0
		default:
			runtime.Gosched()
			return false
		}
	})
}

// Both ends enter MPA as Initiator: each learns so, from the other's Request.
//
// req: D01-6.1-10, D01-6.1-30
func TestBothInitiateFromStreaming(t *testing.T) {
	r := newRig(t, turned, rigConfig{faults: true})
	sc, cc := r.streams()
	s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, opts{})
	set := func(f fault.Faults) {
		for _, h := range r.hosts {
			require.NoError(t, h.faulty.Set(f, fault.Faults{}))
		}
	}
	set(fault.Faults{Drop: 1}) // so that neither Request is there first
	require.NoError(t, s.qp.StartConnectStream(r.ctx, sc, s.conn))
	require.NoError(t, c.qp.StartConnectStream(r.ctx, cc, c.conn))
	set(fault.Faults{Delay: int64(10 * time.Millisecond)})
	for _, e := range []*end{s, c} {
		e.awaitClosed()
		require.Error(t, e.qp.Err())
	}
	both := errors.Join(s.qp.Err(), c.qp.Err())
	require.ErrorIs(t, both, mpa.ErrBothInitiate)
}

// Both ends wait as Responder: the timeout tells.
//
// req: D01-6.1-31, D01-6.1-35
func TestBothRespond(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	sc, cc := r.streams()
	begin := r.time
	s, err := r.server.respond(r.ctx, sc, nil, ListenOptions{})
	require.NoError(t, err)
	c, err := r.client.respond(r.ctx, cc, nil, ListenOptions{})
	require.NoError(t, err)
	_, err = s.nextRequest(r.ctx)
	require.ErrorIs(t, err, ErrStartupTimeout)
	require.GreaterOrEqual(t, r.time-begin, int64(connect.RequestTimeout))
	_, err = c.nextRequest(r.ctx)
	require.Error(t, err)
	r.noBufLost()
}

// What is no Request ends the connection with one error.
//
// req: D01-6.1.2-2, D01-6.1-14, D01-6.1-26
func TestStreamingOctetsAreNoRequest(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		sc, cc := r.streams()
		_, err := cc.Write([]byte("one more thing, in streaming mode"))
		require.NoError(t, err)
		l, err := r.server.respond(r.ctx, sc, nil, ListenOptions{})
		require.NoError(t, err)
		_, err = l.nextRequest(r.ctx)
		require.ErrorIs(t, err, mpa.ErrKey)
		r.blocking(func() error {
			if _, err := cc.Read(make([]byte, 1)); err == nil {
				return os.ErrExist
			}
			return nil
		})
		r.until("the end", func() bool { return len(r.server.host.Live()) == 0 })
	})
}

// What MPA cannot start on is said before anything is done.
func TestDelayedStartupMistakes(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		sc, cc := r.streams()
		c := r.newEnd(r.client, opts{})
		for _, tc := range []struct {
			conn net.Conn
			want string
		}{
			{tls.Client(cc, nil), "rnic: MPA starts on a *stream.Conn or a *net.TCPConn itself, not on a " +
				"*tls.Conn"},
			{pipe(t), "not on a *net.pipe"},
			{nil, "not on a <nil>"},
		} {
			require.ErrorContains(t, c.qp.ConnectStream(r.ctx, tc.conn, c.conn), tc.want)
			_, err := r.client.AcceptStream(r.ctx, tc.conn, nil)
			require.ErrorContains(t, err, tc.want)
		}
		require.ErrorContains(t, c.qp.ConnectStream(r.ctx, cc, c.with(make([]byte, 513))),
			"513 octets of private data")
		if r.kind != sockets {
			require.ErrorContains(t, c.qp.ConnectStream(r.ctx, sc, c.conn),
				`poller "`+r.hosts[0].poller.Name()+`" is none of the adapter's`)
			_, err := r.client.AcceptStream(r.ctx, sc, nil)
			require.ErrorContains(t, err, "is none of the adapter's: name it in Config.Pollers")
		}
		require.Equal(t, Idle, c.qp.State(), "nothing happened")
		s := r.newEnd(r.server, opts{})
		r.delayed(s, c, sc, cc, nil)
		require.ErrorIs(t, c.qp.ConnectStream(r.ctx, cc, c.conn), ErrState)
		r.exchange(s, c)
		r.close(s, c)

		// Given up or closed, it is no connection any more.
		for range 2 {
			again := r.newEnd(r.client, opts{})
			require.Error(t, again.qp.ConnectStream(r.ctx, cc, again.conn))
			require.True(t, isDone(again.qp))
			_, err := r.server.AcceptStream(r.ctx, sc, helloAck)
			require.Error(t, err)
			_ = cc.Close() // the first time it does nothing
			_ = sc.Close()
		}
		sc, cc = r.streams()
		require.NoError(t, sc.Close())
		require.NoError(t, cc.Close())
		_, err := r.server.AcceptStream(r.ctx, sc, nil)
		require.ErrorIs(t, err, net.ErrClosed)
		again := r.newEnd(r.client, opts{})
		require.ErrorIs(t, again.qp.ConnectStream(r.ctx, cc, again.conn), net.ErrClosed)
		require.Zero(t, len(r.server.host.Live())+len(r.client.host.Live()))
		require.Zero(t, r.server.host.Slots.Count()+r.client.host.Slots.Count())
	})
}

func pipe(t *testing.T) net.Conn {
	a, b := net.Pipe()
	t.Cleanup(func() {
		_ = a.Close()
		_ = b.Close()
	})
	return a
}

// A peer that closes its half, or resets, before it has sent a Request.
//
// req: C02-5.1-1, D01-3.1-1
func TestPeerEndsStreamBeforeRequest(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		for _, early := range []bool{true, false} {
			sc, cc := r.streams()
			var l awaited
			var err error
			enter := func() {
				l, err = r.server.respond(r.ctx, sc, nil, ListenOptions{})
				require.NoError(t, err)
			}
			if !early {
				enter()
			}
			require.NoError(t, cc.(interface{ CloseWrite() error }).CloseWrite())
			if early {
				r.blocking(func() error {
					if _, err := sc.Read(make([]byte, 1)); err != io.EOF {
						return os.ErrInvalid
					}
					return nil
				})
				enter()
			}
			_, err = l.nextRequest(r.ctx)
			require.ErrorIs(t, err, ErrPeerClosed)

			sc, cc = r.streams()
			enter()
			require.NoError(t, cc.(interface{ SetLinger(int) error }).SetLinger(0))
			require.NoError(t, cc.Close())
			_, err = l.nextRequest(r.ctx)
			require.ErrorIs(t, err, stack.ErrReset)
		}
		r.noBufLost()
	})
}

// The context, Abort and the Adapter's Close end what is still coming about.
func TestDelayedStartupGivenUp(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		sc, cc := r.streams()
		ctx, cancel := context.WithCancel(r.ctx)
		accepted := make(chan error, 1)
		go func() {
			_, err := r.server.AcceptStream(ctx, sc, nil)
			accepted <- err
		}()
		// before, it would stay a stream
		r.until("the connection", func() bool { return len(r.server.host.Live()) == 1 })
		cancel()
		require.ErrorIs(t, <-accepted, context.Canceled)
		require.NoError(t, cc.SetReadDeadline(time.Now().Add(connect.RequestTimeout/2)))
		_, err := cc.Read(make([]byte, 1))
		require.ErrorIs(t, err, syscall.ECONNRESET)

		for _, by := range []struct {
			name string
			end  func(q *QueuePair)
		}{
			{"abort", (*QueuePair).Abort}, {"disconnect", (*QueuePair).Disconnect},
			{"adapter", func(*QueuePair) { require.NoError(t, r.client.Close(r.ctx)) }},
		} {
			name, end := by.name, by.end
			_, cc := r.streams()
			c, late := r.newEnd(r.client, opts{}), r.newEnd(r.client, opts{})
			failed := make(chan error, 1)
			go func() { failed <- c.qp.ConnectStream(r.ctx, cc, c.conn) }()
			r.until("the connection of "+name, func() bool { return len(r.client.host.Live()) == 1 })
			end(c.qp)
			require.ErrorIs(t, <-failed, ErrClosed, name)
			c.awaitClosed()
			if name == "adapter" {
				_, cc := r.streams()
				require.ErrorIs(t, late.qp.ConnectStream(r.ctx, cc, late.conn), ErrClosed)
				_, err := r.client.AcceptStream(r.ctx, cc, nil)
				require.ErrorIs(t, err, ErrClosed)
			}
		}
	})
}

// Abort that comes while ConnectStream waits for the Poller: nobody takes the stream over, and an
// Adapter's Close that has seen the connection does not wait for it.
func TestAbortMeetsConnectStream(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	sc, cc := r.streams()
	c := r.newEnd(r.client, opts{})
	r.between(r.client, c.qp.Abort)
	require.ErrorIs(t, c.qp.StartConnectStream(r.ctx, cc, c.conn), ErrClosed)
	require.True(t, isDone(c.qp))
	select {
	case <-c.qp.end.Connection.Load().Gone.C():
	default:
		t.Fatal("Close would wait for ever")
	}
	require.Empty(t, r.client.host.Live())
	r.chat(sc, cc, 5)
}

// Octets that cannot be sent hold a Detach up: the context ends it, the stream stays, and a
// QueuePair that is aborted meanwhile is told so.
func TestDetachHeldUp(t *testing.T) {
	over(t, []kind{running}, rigConfig{}, func(t *testing.T, r *rig) {
		_, cc := r.streams()
		require.NoError(t, cc.SetWriteDeadline(time.Now().Add(50*time.Millisecond)))
		for {
			if _, err := cc.Write(make([]byte, 1<<16)); err != nil {
				require.ErrorIs(t, err, os.ErrDeadlineExceeded)
				break
			}
		}
		require.NoError(t, cc.SetWriteDeadline(time.Time{}))
		c := r.newEnd(r.client, opts{})
		ctx, cancel := context.WithTimeout(r.ctx, 20*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, c.qp.ConnectStream(ctx, cc, c.conn), context.DeadlineExceeded)
		c = r.newEnd(r.client, opts{})
		failed := make(chan error, 1)
		go func() { failed <- c.qp.ConnectStream(r.ctx, cc, c.conn) }()
		r.until("it is under way", func() bool { return c.qp.end.Dialling() })
		c.qp.Abort()
		require.ErrorIs(t, <-failed, ErrClosed)
		require.Empty(t, r.client.host.Live())
		require.NoError(t, cc.SetDeadline(time.Now().Add(patience)), "it is a stream")
	})
}
