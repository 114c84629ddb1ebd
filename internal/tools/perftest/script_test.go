package perftest

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

// controls are the two ends of a first connection, client and server, without anybody that plays
// either.
func controls(r *rig) (c, s *control) {
	r.t.Helper()
	l, err := r.devs[1].Listen(r.ctx, ":0", rnic.ListenOptions{})
	require.NoError(r.t, err)
	defer l.Close()
	s, err = newControl(r.devs[1], true)
	require.NoError(r.t, err)
	r.t.Cleanup(s.release)
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(r.ctx)
		if err == nil {
			err = req.Accept(r.ctx, s.qp, controlParam(rnic.ConnParam{}))
		}
		accepted <- err
	}()
	r.addr = testnic.Dialable(l.Addr())
	c = r.first()
	require.NoError(r.t, <-accepted)
	return c, s
}

// Each end's script says as many messages as perftest's programs, of the same lengths and in the
// same order: the other end is one of theirs, that says what it said then.
func TestScriptsFollowTranscripts(t *testing.T) {
	for _, p := range Programs {
		for _, weServe := range []bool{false, true} {
			overBoth(t, ServerConfig{Test: plain}, func(r *rig) {
				ours, theirs := controls(r)
				who := 1
				if weServe {
					ours, theirs, who = theirs, ours, 0
				}
				replayed := make(chan error, 1)
				go func() {
					said := transcript(r.t, p)
					for i := who; i < len(said); i += 2 {
						if _, err := theirs.swap(r.ctx, "", said[i].octets); err != nil {
							replayed <- err
							return
						}
					}
					replayed <- nil
				}()
				_, err := ours.greet(r.ctx, nil)
				require.NoError(r.t, err)
				place, err := ours.begin(r.ctx, p, make([]Place, 1))
				require.NoError(r.t, err)
				said := parsePlace(transcript(r.t, p)[2*6+who].octets)
				require.NotZero(r.t, place[0].STag)
				require.Equal(r.t, []Place{said}, place)
				var report Report
				test := perf.Test{Op: p.Op, Latency: p.Latency, Size: 4096, Iterations: 10, RxDepth: 10}
				err = ours.tests(r.ctx, planOf(r.t, test, Shape{}), &Place{}, func(perf.Test) (Report, error) {
					return Report{}, nil
				},
					func(_ perf.Test, _, theirs Report) { report = theirs })
				require.NoError(r.t, err)
				require.NoError(r.t, ours.qp.Close(r.ctx)) // when that is all they have to say
				require.NoError(r.t, <-replayed)
				if p.figures(false) && weServe {
					require.EqualValues(r.t, 10, report.Iterations)
				}
			})
		}
	}
}

// Of two numbers the larger one counts, whichever end said it.
func TestLargerNumberCounts(t *testing.T) {
	overBoth(t, ServerConfig{Test: plain}, func(r *rig) {
		c, s := controls(r)
		for _, numbers := range [][2]uint32{{1, 2}, {2, 1}, {cycleMax, 0}} {
			got := make(chan int, 1)
			go func() {
				n, _ := s.larger(r.ctx, "number", numbers[1])
				got <- n
			}()
			n, err := c.larger(r.ctx, "number", numbers[0])
			require.NoError(t, err)
			require.EqualValues(t, max(numbers[0], numbers[1]), n)
			require.Equal(t, n, <-got)
		}
		go func() { _, _ = s.larger(r.ctx, "number", cycleMax+1) }()
		_, err := c.larger(r.ctx, "number", 1)
		require.ErrorIs(t, err, errMalformed)
	})
}

// A client knows since when at the earliest its server can have gone on.
func TestWhenTheClientSpoke(t *testing.T) {
	overBoth(t, ServerConfig{Test: plain}, func(r *rig) {
		c, s := controls(r)
		began, heard := time.Now(), make(chan time.Time, 1)
		s.before = func(context.Context) error { heard <- time.Now(); return nil }
		go func() { _, _ = s.place(r.ctx, &Place{}) }()
		_, err := c.place(r.ctx, &Place{})
		require.NoError(t, err)
		require.WithinRange(t, c.spoke, began, <-heard)
	})
}

// A client tries for its second connection while its first one stands, and no longer.
func TestSecondConnectionIsWaitedFor(t *testing.T) {
	overBoth(t, ServerConfig{Test: plain}, func(r *rig) {
		c, s := controls(r) // no listener is there now
		go func() { _ = s.qp.Close(r.ctx) }()
		_, err := r.dial(&ClientConfig{}, planOf(t, plain, Shape{}), terms{}, c)
		require.ErrorIs(t, err, ErrClosed)
	})
}

// A server that ends its connections with a reset after the last message has lost nothing, and a
// client tells its user nothing.
func TestResetAfterTheLastMessage(t *testing.T) {
	overBoth(t, ServerConfig{Test: plain}, func(r *rig) {
		c, s := controls(r)
		s.qp.Abort()
		require.NoError(t, closeSecond(r.ctx, c.qp, patience))
		require.Error(t, c.qp.Err())
	})
}

// The server closes the first connection itself when the test is over: clients of perftest's may
// wait for it.
func TestServerClosesTheFirstConnection(t *testing.T) {
	overBoth(t, ServerConfig{Test: plain}, func(r *rig) {
		c := r.first()
		g, err := c.greet(r.ctx, nil)
		require.NoError(t, err)
		cfg, p := ClientConfig{}, planOf(t, plain, Shape{})
		es, err := r.dial(&cfg, p, g, c)
		require.NoError(t, err)
		err = (&measurement{cfg: &cfg, plan: p, es: es}).run(r.ctx, c)
		require.NoError(t, err)
		require.NoError(t, es[0].QP.Close(r.ctx))
		require.NoError(t, peer.Over(r.ctx, c.qp, nil))
		require.NoError(t, r.served().Err)
	})
}

// What the peer may do with the memory of a test is what its program does, on this connection only,
// or, of several, on those of the test.
func TestRights(t *testing.T) {
	const local = rnic.LocalWrite
	for _, tc := range []struct {
		p              Program
		s              Shape
		client, server rnic.Access
	}{
		{Program{perf.Write, false}, Shape{}, local, local | rnic.RemoteWrite},
		{Program{perf.Write, true}, Shape{}, local | rnic.RemoteWrite, local | rnic.RemoteWrite},
		{Program{perf.Read, false}, Shape{}, local, local | rnic.RemoteRead},
		{Program{perf.Read, true}, Shape{}, local, local | rnic.RemoteRead},
		{Program{perf.Send, false}, Shape{}, local | rnic.RemoteWrite, local}, // the server gives credits
		{Program{perf.Send, true}, Shape{}, local, local},
		{Program{perf.Write, false}, Shape{Both: true}, local | rnic.RemoteWrite,
			local | rnic.RemoteWrite},
		{Program{perf.Read, false}, Shape{Both: true}, local | rnic.RemoteRead, local | rnic.RemoteRead},
		{Program{perf.Send, false}, Shape{Both: true}, local | rnic.RemoteWrite,
			local | rnic.RemoteWrite},
		{Program{perf.Write, false}, Shape{QPs: 2}, local, local | rnic.RemoteWrite},
	} {
		dev := testnic.Sockets(t)[0]
		p := planOf(t, perf.Test{Op: tc.p.Op, Latency: tc.p.Latency, Size: 8, Iterations: 8, TxDepth: 1,
			RxDepth: 8}, tc.s)
		for _, server := range []bool{false, true} {
			want := tc.client
			if server {
				want = tc.server
			}
			var pd *rnic.ProtectionDomain
			if p.QPs > 1 {
				pd = dev.AllocPD()
			}
			e, err := newEnd(dev, p, terms{}, pd, server)
			require.NoError(t, err)
			require.Equal(t, want, e.Local.Access(), "%v, server %v", tc, server)
			require.Equal(t, p.QPs == 1, e.Local.Exclusive())
			e.Release()
		}
	}
}

// Path MTUs are what InfiniBand has.
func TestPathMTUs(t *testing.T) {
	for n := range 256 {
		_, err := parseMTU([]byte{byte(n), 0})
		require.Equal(t, bytes.ContainsRune([]byte("12345"), rune(n)), err == nil, "%q", rune(n))
	}
	_, err := parseMTU([]byte("33"))
	require.ErrorIs(t, err, errMalformed)
}
