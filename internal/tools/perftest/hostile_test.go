package perftest

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

var plain = perf.Test{Op: perf.Write, Size: 64, Iterations: 20, TxDepth: 4}

// first is a client's first connection.
func (r *rig) first() *control {
	r.t.Helper()
	c, err := newControl(r.devs[0], false)
	require.NoError(r.t, err)
	r.t.Cleanup(c.release)
	require.NoError(r.t, c.qp.Connect(r.ctx, r.addr, controlParam(rnic.ConnParam{})))
	return c
}

// firstGreeted is a client's first connection, ready for those that are measured.
func (r *rig) firstGreeted() (*control, terms) {
	r.t.Helper()
	r.control = r.first()
	g, err := r.control.greet(r.ctx, nil)
	require.NoError(r.t, err)
	return r.control, g
}

// A client that says what no perftest says is told of in one error, and the next one is served.
func TestStrangeClients(t *testing.T) {
	other := hello("6.05")
	for name, tc := range map[string]struct {
		do   func(r *rig, c *control) error
		want string
	}{
		"another version": {func(r *rig, c *control) error {
			return c.say(r.ctx, other[:])
		}, `handshake is of version "6.05", this is 6.06`},
		"a message too short": {func(r *rig, c *control) error {
			return c.say(r.ctx, []byte("x"))
		}, "1 octets, want 16"},
		"a message too long": {func(r *rig, c *control) error {
			return c.say(r.ctx, make([]byte, versionLen+1))
		}, "17 octets, want 16"},
		"memory beyond bounds": {func(r *rig, c *control) error {
			mine := hello(Version)
			_, err := c.swap(r.ctx, "version", mine[:])
			require.NoError(r.t, err)
			return c.say(r.ctx, bigEndian(1<<31))
		}, "memory to go round in"},
		"leaves at once": {func(r *rig, c *control) error {
			return c.qp.Close(r.ctx)
		}, ErrClosed.Error()},
		"leaves before its second connection": {func(r *rig, c *control) error {
			_, err := c.greet(r.ctx, nil)
			require.NoError(r.t, err)
			return c.qp.Close(r.ctx)
		}, ErrClosed.Error()},
		"vanishes": {func(r *rig, c *control) error {
			_, err := c.greet(r.ctx, nil)
			require.NoError(r.t, err)
			c.qp.Abort()
			return nil
		}, "reset"},
	} {
		t.Run(name, func(t *testing.T) {
			overBoth(t, ServerConfig{Test: plain}, func(r *rig) {
				require.NoError(t, tc.do(r, r.first()))
				require.ErrorContains(t, r.served().Err, tc.want)
				_, err := r.run(plain, rnic.ConnParam{})
				require.NoError(t, err)
				require.NoError(t, r.served().Err)
			})
		})
	}
}

// A client that is silent is given up: before its second connection, in a time of its own, whatever
// a test may take, and its address is free again; and in the middle of a test.
func TestSilentClients(t *testing.T) {
	overBoth(t, ServerConfig{Test: plain, GreetTimeout: 100 * time.Millisecond,
		IdleTimeout: time.Hour}, func(r *rig) {
		r.first()
		require.ErrorContains(r.t, r.served().Err, "nothing came from the client for 100ms")
		_, _ = r.first().greet(r.ctx, nil) // on a slow machine it is given up within that
		require.ErrorContains(r.t, r.served().Err, "nothing came from the client for 100ms")
	})
	overBoth(t, ServerConfig{Test: plain, IdleTimeout: 200 * time.Millisecond}, func(r *rig) {
		c := r.first()
		g, err := c.greet(r.ctx, nil)
		require.NoError(r.t, err)
		es := r.second(c, g)
		_, _ = c.begin(r.ctx, es[0].plan.program(), es.places()) // likewise
		require.ErrorContains(r.t, r.served().Err, "the same -n and -s")
	})
}

// planOf is a plan that must be possible.
func planOf(t *testing.T, test perf.Test, s Shape) *plan {
	t.Helper()
	p, err := newPlan(test, s)
	require.NoError(t, err)
	return p
}

// second are a client's connections that are measured.
func (r *rig) second(c *control, g terms) ends {
	r.t.Helper()
	es, err := r.dial(&ClientConfig{}, planOf(r.t, plain, Shape{}), g, c)
	require.NoError(r.t, err)
	return es
}

// dial makes them as cfg says, to the rig's server.
func (r *rig) dial(cfg *ClientConfig, p *plan, g terms, c *control) (ends, error) {
	cfg.Adapter, cfg.Addr = r.devs[0], r.addr
	d := newDialer(r.ctx, cfg, p, g, c)
	r.t.Cleanup(d.release)
	es, err := d.all()
	r.t.Cleanup(es.release)
	return es, err
}

// Clients beyond the number that is served are rejected.
func TestTooManyClients(t *testing.T) {
	overBoth(t, ServerConfig{Test: plain, ClientsMax: 1}, func(r *rig) {
		c := r.first()
		g, err := c.greet(r.ctx, nil)
		require.NoError(t, err)
		r.second(c, g)
		_, err = r.run(plain, rnic.ConnParam{})
		var no *rnic.RejectedError
		require.ErrorAs(t, err, &no)
		require.ErrorContains(t, r.served().Err, "another client is being served")
	})
}

// A client for which the server has no room is rejected: there is an entry for each memory, and
// none for the first connection, or for the second.
func TestServerIsFull(t *testing.T) {
	for regions := 1; regions <= 3; regions++ {
		devs := testnic.Sockets(t)
		devs[1] = testnic.Open(t, rnic.Config{RegionsMax: regions})
		r := newRig(t, devs, ServerConfig{Test: plain})
		_, err := r.run(plain, rnic.ConnParam{})
		require.ErrorAs(t, err, new(*rnic.RejectedError), "%d entries", regions)
		require.ErrorContains(t, r.served().Err, "are in use")
	}
}

// A client that has gone leaves its place to the next.
func TestClientsOneByOne(t *testing.T) {
	overBoth(t, ServerConfig{Test: plain, ClientsMax: 1}, func(r *rig) {
		for range 3 {
			_, err := r.run(plain, rnic.ConnParam{})
			require.NoError(t, err)
			require.NoError(t, r.served().Err)
		}
	})
}

// The next client at an address is taken neither for one that has not yet said what it wants nor
// for one that has gone, and comes after one that is to make its second connection.
func TestClientsAtOneAddress(t *testing.T) {
	overBoth(t, ServerConfig{Test: plain}, func(r *rig) {
		slow := r.first()
		_, err := r.run(plain, rnic.ConnParam{})
		require.NoError(r.t, err, "beside a client that has said nothing")
		require.NoError(r.t, r.served().Err)
		next := r.first()
		g, err := slow.greet(r.ctx, nil)
		require.NoError(r.t, err)

		greeted := make(chan error, 1)
		go func() {
			_, err := next.greet(r.ctx, nil)
			greeted <- err
		}()
		r.second(slow, g)
		require.NoError(r.t, <-greeted)
		next.qp.Abort()
		served := r.served()
		require.ErrorContains(r.t, served.Err, "reset")

		gone := &seconds{
			addr: served.Remote.Addr(), first: next.qp, ch: make(chan *rnic.ConnRequest, 1), left: 1,
			over: make(chan struct{}),
		}
		require.Equal(r.t, gone, r.server.enter(gone))
		after := r.first() // which would else not be answered
		r.server.forget(gone)
		_, err = after.greet(r.ctx, nil)
		require.NoError(r.t, err)
	})
}

// The ends were told different numbers: an error that says so, and no waiting for ever.
func TestDifferentNumbers(t *testing.T) {
	served := perf.Test{Op: perf.Send, Size: 64, Iterations: 50, RxDepth: 8}
	overBoth(t, ServerConfig{Test: served, IdleTimeout: 300 * time.Millisecond}, func(r *rig) {
		fewer := served
		fewer.Iterations, fewer.TxDepth = 20, 4
		ctx, cancel := context.WithTimeout(r.ctx, 10*time.Second)
		defer cancel()
		_, err := Run(ctx, ClientConfig{Adapter: r.devs[0], Addr: r.addr, Test: fewer})
		require.Error(t, err)
		require.ErrorContains(t, r.served().Err, "the same -n and -s")
	})
}

// What no program measures is refused before anything is connected.
func TestRefusedTests(t *testing.T) {
	for _, test := range []perf.Test{
		{Op: perf.Atomic, Size: 8, Iterations: 1}, {Op: perf.Write, Size: 0, Iterations: 1},
		{Op: perf.Write, Size: SizeMax + 1, Iterations: 1},
		{Op: perf.Write, Size: 1}, {Op: perf.Write, Size: 1, Iterations: 1, Duration: 1},
		{Op: perf.Write, Size: 1, Iterations: 1, Warmup: 1},
		{Op: perf.Send, Size: 1, Iterations: 1 << 20, RxDepth: DepthMax + 1},
	} {
		_, err := NewServer(ServerConfig{Test: test})
		require.Error(t, err, "%+v", test)
		_, err = Run(context.Background(), ClientConfig{Test: test})
		require.Error(t, err, "%+v", test)
	}
	for _, tc := range []struct {
		test  perf.Test
		shape Shape
	}{
		{plain, Shape{QPs: QPsMax + 1}}, {plain, Shape{All: true, QPs: 33}},
		{perf.Test{Op: perf.Write, Duration: 1}, Shape{All: true}},
		{perf.Test{Op: perf.Write, Latency: true, Size: 8, Iterations: 1}, Shape{Both: true}},
		{perf.Test{Op: perf.Send, Latency: true, Size: 8, Iterations: 1, RxDepth: 1}, Shape{QPs: 2}},
	} {
		_, err := newPlan(tc.test, tc.shape)
		require.Error(t, err, "%+v", tc)
	}
}

// A client that comes right after another one finds its place, though the server is not through
// with that one.
func TestOnePlace(t *testing.T) {
	through := make(chan struct{})
	r := newRig(t, testnic.Sockets(t), ServerConfig{Test: plain, ClientsMax: 1, Done: func(Served) {
		<-through
	}})
	finish := sync.OnceFunc(func() { close(through) })
	t.Cleanup(finish)
	_, err := r.run(plain, rnic.ConnParam{})
	require.NoError(t, err)
	again := make(chan error, 1)
	go func() {
		_, err := r.run(plain, rnic.ConnParam{})
		again <- err
	}()
	<-r.waits // the first, for its place
	<-r.waits // the second, before the server is through with the first
	finish()
	require.NoError(t, <-again)
}
