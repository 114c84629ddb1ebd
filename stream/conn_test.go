package stream

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/nettest"
)

func TestNettestConn(t *testing.T) {
	nettest.TestConn(t, func() (c1, c2 net.Conn, stop func(), err error) {
		_, a, b := newPair(t, labConfig{})
		return a, b, func() {
			_ = a.Close()
			_ = b.Close()
		}, nil
	})
}

func TestTransferBothWays(t *testing.T) {
	l, a, b := newPair(t, labConfig{})
	exchange(t, a, b, 16<<20)
	require.NoError(t, a.Close())
	require.NoError(t, b.Close())
	l.idle()
}
