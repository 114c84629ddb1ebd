package tcp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// lost is a connection with a loss that no timeout has found.
func lost(t *testing.T, cfg Config) *script {
	s := accepted(t, cfg, "")
	s.push(100)
	s.sent()
	s.c.sent.markLost(s.c.sent.una)
	return s
}

// A Conn begins again only when it is closed, its own reset has been taken, and its handles were
// given back.
func TestConnectInUse(t *testing.T) {
	panics := func(f func()) (did bool) {
		defer func() { did = recover() != nil }()
		f()
		return false
	}
	s := accepted(t, plain(), "")
	require.True(t, panics(s.connect), "open")
	s.push(100)
	s.drain()
	s.in("R 1")
	s.wantState(Closed)
	require.True(t, panics(s.connect), "a handle is not released")
	s.out = nil // the Conn was asked for it meanwhile
	s.connect()
	s.expect("S 0:1")
	s.c.Abort(s.now)
}
