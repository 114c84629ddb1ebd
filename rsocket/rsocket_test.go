package rsocket

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
)

const patience = 30 * time.Second

// pair is a connection between two Adapters: c[0] dialled.
func pair(t testing.TB, devs [2]*rnic.Adapter, opt Options) (c [2]*Conn) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	l := must(Listen(ctx, devs[1], ":0", ListenOptions{Options: opt}))(t)
	defer l.Close()
	c[0] = must(Dial(ctx, devs[0], dialable(l), opt))(t)
	accepted := must(l.Accept())(t)
	c[1] = accepted.(*Conn)
	for _, c := range c {
		t.Cleanup(func() { c.Close() })
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	}
	return c
}

func dialable(l *Listener) string { return testnic.Dialable(l.Addr().(*net.TCPAddr).AddrPort()) }

// It is a net.Conn like any other, over both transports.
func TestNetConn(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
			c := pair(t, devs, Options{})
			require.NoError(t, c[0].SetDeadline(time.Time{}))
			require.NoError(t, c[1].SetDeadline(time.Time{}))
			return c[0], c[1], func() { c[0].Close(); c[1].Close() }, nil
		})
	})
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}
