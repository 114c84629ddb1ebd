package rstream

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/rsocket"
)

// directRig is a Server on rsockets, and a way to dial it.
func directRig(t *testing.T, devs [2]*rnic.Adapter,
	s Server) (dial func(context.Context) (net.Conn, error), served chan Served) {
	t.Helper()
	opt := rsocket.Options{Maps: 1}
	l, err := rsocket.Listen(t.Context(), devs[1], ":0", rsocket.ListenOptions{Options: opt})
	require.NoError(t, err)
	served = make(chan Served, 16)
	s.Done = func(s Served) { served <- s }
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, l) }()
	t.Cleanup(func() { cancel(); require.NoError(t, <-ended) })
	addr := testnic.Dialable(l.Addr().(*net.TCPAddr).AddrPort())
	return func(ctx context.Context) (net.Conn, error) {
		c, err := rsocket.Dial(ctx, devs[0], addr, opt)
		if err != nil {
			return nil, err
		}
		return c, nil
	}, served
}

// riostream's test between our own ends: of any length, several after one another on one
// connection, all octets as they were; the marks go round at 256.
func TestDirect(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		for _, p := range []Plan{
			{Size: 1, Transfers: 1, Iterations: 300}, {Size: 16, Transfers: 3, Iterations: 2},
			{Size: 3001, Transfers: 7, Iterations: 5},
			{Size: 300_000, Transfers: 2, Iterations: 3},
		} {
			dial, served := directRig(t, devs, Server{Plan: p, Verify: true, Direct: true, Idle: patience})
			for range 2 {
				var got []Result
				err := Client(t.Context(), dial, p, End{Verify: true, Direct: true, Idle: patience},
					func(r Result) { got = append(got, r) })
				require.NoError(t, err, "%+v", p)
				s := <-served
				require.NoError(t, s.Err, "%+v", p)
				require.Len(t, got, 1)
				require.Equal(t, got[0].Test, s.Results[0].Test)
			}
		}
	})
}

// Several tests on a connection use one entry after the other's memory is free.
func TestDirectSeveral(t *testing.T) {
	devs := testnic.Wired(t)
	l, err := rsocket.Listen(t.Context(), devs[1], ":0",
		rsocket.ListenOptions{Options: rsocket.Options{Maps: 1}})
	require.NoError(t, err)
	defer l.Close()
	tests := []Test{Custom(64, 1, 20), Custom(5000, 3, 2), Custom(17, 2, 2)}
	ended := make(chan error, 1)
	go func() {
		c, err := l.Accept()
		if err == nil {
			e := End{Verify: true, Direct: true, Idle: patience}
			err = e.Tests(context.Background(), c, tests, nil)
			e.release()
		}
		ended <- err
	}()
	c, err := rsocket.Dial(t.Context(), devs[0], testnic.Dialable(l.Addr().(*net.TCPAddr).AddrPort()),
		rsocket.Options{Maps: 1})
	require.NoError(t, err)
	e := End{Client: true, Verify: true, Direct: true, Idle: patience}
	defer e.release()
	rows := 0
	require.NoError(t, e.Tests(t.Context(), c, tests, func(Result) { rows++ }))
	require.NoError(t, <-ended)
	require.Equal(t, 3, rows)
}

// Ends that were told something else, or fall silent, or have no memory to map, are an error, and
// no waiting for ever.
func TestDirectFails(t *testing.T) {
	for name, tc := range map[string]struct {
		server Server
		client End
		plan   Plan
		want   string
	}{
		"verify": {Server{Plan: Plan{Size: 500, Transfers: 1}, Direct: true, Verify: true},
			End{Direct: true}, Plan{Size: 500, Transfers: 1}, "verify at both ends"},
		"no riostream": {Server{Plan: Plan{Size: 500, Transfers: 1}}, End{Direct: true},
			Plan{Size: 500, Transfers: 1}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			const idle = 200 * time.Millisecond
			tc.server.Idle, tc.client.Idle = idle, idle
			if tc.server.Verify { // it finds out, and before the client gives up
				tc.client.Idle = patience
			}
			dial, served := directRig(t, testnic.Wired(t), tc.server)
			err := Client(t.Context(), dial, tc.plan, tc.client, nil)
			require.Error(t, err)
			require.ErrorContains(t, (<-served).Err, tc.want)
		})
	}
	r := newRig(t, Server{Plan: Plan{Size: 5}})
	_, err := r.run(Plan{Size: 5}, End{Direct: true})
	require.ErrorIs(t, err, errNoMapper)
}

// Ends that were told different sizes both say so before anything is written. Octets of memory that
// was never written look like marks, so that the shorter one would take the longer one's for all.
func TestDirectSizes(t *testing.T) {
	for _, sizes := range [][2]int{{500, 1000}, {1000, 500}} {
		dial, served := directRig(t, testnic.Wired(t),
			Server{Plan: Plan{Size: sizes[0], Transfers: 1}, Direct: true, Idle: patience})
		err := Client(t.Context(), dial, Plan{Size: sizes[1], Transfers: 1},
			End{Direct: true, Idle: patience}, nil)
		require.Equal(t, &SizeError{Ours: sizes[1], Theirs: sizes[0]}, err)
		require.Equal(t, &SizeError{Ours: sizes[0], Theirs: sizes[1]}, (<-served).Err)
	}
}
