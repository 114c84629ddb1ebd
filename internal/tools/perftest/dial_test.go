package perftest

import (
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

// relays is in front of a server. take is told of each connection that comes, by its number from 1
// on, and returns the one to relay, after a while; nil: none. It returns its address and, at the
// end, how many came.
func relays(t *testing.T, server string,
	take func(n int, c net.Conn) (net.Conn, time.Duration)) (addr string, end func() int) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	came := 0
	all.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			came++
			if c, after := take(came, c); c != nil {
				all.Go(func() {
					<-time.After(after)
					relay(c, server)
				})
			}
		}
	})
	end = sync.OnceValue(func() int {
		_ = l.Close()
		all.Wait()
		return came
	})
	t.Cleanup(func() { end() })
	return l.Addr().String(), end
}

// oneBehind relays connections as siw's listener takes them that one has come to too early: the
// first of a client at once, each other one only when another has come after it. What is left at
// the end is reset.
func oneBehind(t *testing.T, server string) (addr string, end func() int) {
	t.Helper()
	var waits net.Conn
	t.Cleanup(func() { // after the relays' end
		if waits != nil {
			_ = waits.(*net.TCPConn).SetLinger(0)
			_ = waits.Close()
		}
	})
	return relays(t, server, func(n int, c net.Conn) (net.Conn, time.Duration) {
		if n > 1 {
			c, waits = waits, c
		}
		return c, 0
	})
}

// relay passes octets on in both directions until both have ended.
func relay(client net.Conn, addr string) {
	defer client.Close()
	server, err := net.Dial("tcp", addr)
	if err != nil {
		return
	}
	defer server.Close()
	var both sync.WaitGroup
	for _, way := range [][2]net.Conn{{client, server}, {server, client}} {
		both.Go(func() {
			_, _ = io.Copy(way[1], way[0])
			_ = way[1].(*net.TCPConn).CloseWrite()
		})
	}
	both.Wait()
}

// A server whose listener leaves each connection unanswered until the next has come gets one too
// many, and the test is made over those that it takes, in its order.
func TestNextConnectionBringsTheAnswer(t *testing.T) {
	t.Parallel()
	shape := Shape{QPs: 3}
	r := newRig(t, testnic.Sockets(t), ServerConfig{Test: plain, Shape: shape})
	addr, end := oneBehind(t, r.addr)
	res, err := Run(r.ctx, ClientConfig{
		Adapter: r.devs[0], Addr: addr, Test: plain, Shape: shape, ServerFirst: time.Millisecond,
		Conn: rnic.ConnParam{Quirks: rnic.Quirks{WakeUp: rnic.WakeUpDefault}},
	})
	require.NoError(t, err)
	s := r.served()
	require.NoError(t, s.Err)
	require.EqualValues(t, 3*plain.Iterations, res.Iterations)
	require.EqualValues(t, 3*plain.Iterations*plain.Size, s.Octets)
	require.Equal(t, 1+3+1, end())
}

// A server that is not siw, and answers late, gets no connection too many.
func TestLateConnectionIsWaitedFor(t *testing.T) {
	t.Parallel()
	r := newRig(t, testnic.Sockets(t), ServerConfig{Test: plain})
	addr, end := relays(t, r.addr, func(n int, c net.Conn) (net.Conn, time.Duration) {
		if n == 2 {
			return c, nextAfter + nextAfter/4
		}
		return c, 0
	})
	res, err := Run(r.ctx, ClientConfig{Adapter: r.devs[0], Addr: addr, Test: plain,
		ServerFirst: time.Millisecond})
	require.NoError(t, err)
	require.NoError(t, r.served().Err)
	require.EqualValues(t, plain.Iterations, res.Iterations)
	require.Equal(t, 1+1, end())
}
