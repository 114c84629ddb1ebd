package pair

import (
	"context"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/rnic"
)

const patience = 30 * time.Second

// rig is a Server and an Adapter for clients.
type rig struct {
	t       *testing.T
	ctx     context.Context
	dev     *rnic.Adapter // the server's
	client  *rnic.Adapter
	addr    string
	served  chan Served
	refused chan string
	waits   chan struct{} // a request waits, for its place first of all
}

func newRig(t *testing.T, devs [2]*rnic.Adapter, cfg ServerConfig) *rig {
	t.Helper()
	r := &rig{t: t, client: devs[0], dev: devs[1], served: make(chan Served, 64),
		refused: make(chan string, 64), waits: make(chan struct{}, 64)}
	var cancel context.CancelFunc
	r.ctx, cancel = context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	cfg.Adapter = devs[1]
	done := cfg.Done
	cfg.Done = func(s Served) {
		r.served <- s
		if done != nil {
			done(s)
		}
	}
	cfg.Refused = func(_ netip.AddrPort, why string) { r.refused <- why }
	t.Cleanup(func() { require.Zero(t, r.dev.Regions(), "the server's regions") })
	r.addr = testnic.Serve(r.ctx, t, devs[1], r.waits, NewServer(cfg).Handle)
	return r
}

func (r *rig) run(t perf.Test) (perf.Result, error) {
	return Run(r.ctx, ClientConfig{Adapter: r.client, Addr: r.addr, Test: t})
}

// result is what the server says of the next test that is over.
func (r *rig) result() Served {
	r.t.Helper()
	return testnic.Next(r.ctx, r.t, r.served)
}

// Every test there is, over both transports; the server hears that each is over.
func TestAll(t *testing.T) {
	iterations := sample.Count(60, 300)
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		for _, op := range []perf.Op{perf.Write, perf.Read, perf.Send, perf.Atomic} {
			for _, latency := range []bool{false, true} {
				for _, size := range sample.Of(t, 1, []int{1, 8, 10_001}) {
					if op == perf.Atomic && size != perf.AtomicSize {
						continue
					}
					// A rig for each test, with patience of its own: where cores are few, one of latency takes
					// seconds.
					r := newRig(t, devs, ServerConfig{})
					test := perf.Test{Op: op, Latency: latency, Size: size, Iterations: iterations, Warmup: 10,
						TxDepth: 50, RxDepth: 20}
					res, err := r.run(test)
					require.NoError(t, err, "%+v", test)
					require.EqualValues(t, iterations, res.Iterations)
					s := r.result()
					require.NoError(t, s.Err, "%+v", test)
					require.Equal(t, []any{op, latency, size}, []any{s.Test.Op, s.Test.Latency, s.Test.Size})
				}
			}
		}
	})
}

// A client for which the server has no room is told so: there is an entry for its memory, and none
// for the connection.
func TestServerIsFull(t *testing.T) {
	devs := testnic.Sockets(t)
	devs[1] = testnic.Open(t, rnic.Config{RegionsMax: 1})
	r := newRig(t, devs, ServerConfig{})
	_, err := r.run(perf.Test{Op: perf.Write, Size: 8, Iterations: 1})
	var refused *peer.RefusedError
	require.ErrorAs(t, err, &refused)
	require.Contains(t, refused.Text, "are in use")
	require.Contains(t, <-r.refused, "are in use")
	require.Empty(t, r.served, "it was refused, and not served")
}

// A bandwidth counts what has arrived: its time ends with the server's answer, and so does one of a
// duration.
func TestDuration(t *testing.T) {
	r := newRig(t, testnic.Wired(t), ServerConfig{})
	for _, test := range []perf.Test{
		{Op: perf.Write, Size: 1000, TxDepth: 10}, {Op: perf.Send, Size: 1000, TxDepth: 10, RxDepth: 100},
		{Op: perf.Write, Latency: true, Size: 8}, {Op: perf.Send, Latency: true, Size: 8, RxDepth: 4},
	} {
		test.Duration = 30 * time.Millisecond
		res, err := r.run(test)
		require.NoError(t, err, "%+v", test)
		require.GreaterOrEqual(t, res.Elapsed, test.Duration)
		require.NotZero(t, res.Iterations)
		require.NoError(t, r.result().Err)
	}
}

// What is not served is rejected with a text, whatever asks; and so is one client too many.
func TestRefuses(t *testing.T) {
	good := request{test: perf.Test{Op: perf.Write, Size: 100, RxDepth: 1}}
	with := func(change func(*perf.Test)) []byte {
		r := good
		change(&r.test)
		return r.marshal()
	}
	version, flags := good.marshal(), good.marshal()
	version[4], flags[6] = 9, 0x82
	r := newRig(t, testnic.Wired(t), ServerConfig{SizeMax: 1000, ClientsMax: 1})
	for name, tc := range map[string]struct {
		private []byte
		want    string
	}{
		"nothing": {nil, "0 octets) is no request for a test"},
		"other":   {[]byte("GET / HTTP/1.1"), "is no request for a test"},
		"cut":     {good.marshal()[:requestLen-1], "is no request for a test"},
		"version": {version, "version 9 of the protocol, this server speaks 1"},
		"flags":   {flags, "flags 0x82"},
		"op":      {with(func(x *perf.Test) { x.Op = 5 }), "operation 5 is not served"},
		"op 0":    {with(func(x *perf.Test) { x.Op = 0 }), "operation 0 is not served"},
		"size": {with(func(x *perf.Test) {
			x.Size = 1001
		}), "messages of 1001 octets asked for, 1 to 1000 served"},
		"size 0":    {with(func(x *perf.Test) { x.Size = 0 }), "messages of 0 octets"},
		"atomic":    {with(func(x *perf.Test) { x.Op = perf.Atomic }), "atomics of 100 octets"},
		"buffers":   {with(func(x *perf.Test) { x.RxDepth = 1<<32 - 1 }), "receive buffers asked for"},
		"buffers 0": {with(func(x *perf.Test) { x.RxDepth = 0 }), "receive buffers asked for"},
	} {
		_, err := r.rogue(tc.private)
		var no *peer.RefusedError
		require.ErrorAs(t, peer.Refusal("perf", err), &no, name)
		require.Contains(t, no.Text, tc.want, name)
		require.Contains(t, <-r.refused, tc.want, name)
	}
	_, err := r.rogue(good.marshal())
	require.NoError(t, err)
	_, err = r.run(good.test)
	var no *peer.RefusedError
	require.Error(t, err) // neither iterations nor a duration, but that is seen after the connection
	require.ErrorAs(t, err, &no)
	require.EqualError(t, no, "perf: the server refused: another client is being served, and one at "+
		"a time; try again later")
}

// A client that comes again right after its last test, as perf --all does for each size, finds its
// own place again, though the server is not through with that test.
func TestOnePlaceForManyTests(t *testing.T) {
	through := make(chan struct{})
	r := newRig(t, testnic.Sockets(t), ServerConfig{ClientsMax: 1, Done: func(Served) { <-through }})
	finish := sync.OnceFunc(func() { close(through) })
	t.Cleanup(finish)
	test := perf.Test{Op: perf.Write, Size: 8, Iterations: 1, TxDepth: 1, RxDepth: 1}
	_, err := r.run(test)
	require.NoError(t, err)
	again := make(chan error, 1)
	go func() {
		_, err := r.run(test)
		again <- err
	}()
	<-r.waits // the first, for its place
	<-r.waits // the second, before the server is through with the first
	finish()
	require.NoError(t, <-again)
}

// rogue is a bare client.
func (r *rig) rogue(private []byte) (end, error) {
	r.t.Helper()
	e, err := newEnd(r.client, &perf.Test{Op: perf.Read, Size: 4096, TxDepth: 50, RxDepth: 5}, false)
	require.NoError(r.t, err)
	r.t.Cleanup(e.Release)
	return e, e.QP.Connect(r.ctx, r.addr, connParam(rnic.ConnParam{}, private))
}

// Clients that misbehave get one end each, with a reason, and the server serves on.
//
// req: 5042-6.3.5-1
func TestHostileClients(t *testing.T) {
	write := request{test: perf.Test{Op: perf.Write, Size: 4096, RxDepth: 1}}
	pong := request{test: perf.Test{Op: perf.Write, Latency: true, Size: 4096, RxDepth: 1}}
	send := request{test: perf.Test{Op: perf.Send, Size: 4096, RxDepth: 1}}
	for _, tc := range []struct {
		name string
		ask  request
		do   func(end, place) error // nil: nothing
		want string
	}{
		{"silent", write, nil, "perf: nothing came from the client for 100ms"},
		{"silent in a ping-pong", pong, nil, "perf: nothing came from the client for 100ms"},
		{"silent with Sends", send, nil, "perf: nothing came from the client for 100ms"},
		{"reads what it may write", write, func(e end, p place) error {
			return errOf(e.QP.PostSend(rnic.WorkRequest{Op: rnic.OpRead, Local: e.Local.Slice(0, 8),
				RemoteSTag: p.stag, RemoteOffset: p.to}))
		}, "STag"},
		{"writes beyond", write, func(e end, p place) error {
			return errOf(e.QP.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Local: e.Local.Slice(0, 4096),
				RemoteSTag: p.stag, RemoteOffset: p.to + 4096}))
		}, "bounds"},
		{"a message of no test", write, func(e end, _ place) error {
			return errOf(e.QP.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: e.Local.Slice(0, 8)}))
		}, "a message that belongs to no test"},
		{"leaves", write, func(e end, _ place) error {
			e.QP.Disconnect()
			return nil
		}, "the peer closed the connection before the test was over"},
		{"leaves a test of Sends", send, func(e end, _ place) error {
			e.QP.Disconnect()
			return nil
		}, "the peer closed the connection before the test was over"},
		{"an answer to where nothing is", pong, func(e end, p place) error {
			e.Local.Bytes()[0] = 1
			return errOf(e.QP.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Local: e.Local.Slice(0, 1),
				RemoteSTag: p.stag, RemoteOffset: p.to + 4095}))
		}, "STag"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := ServerConfig{}
			if tc.do == nil {
				cfg.IdleTimeout = 100 * time.Millisecond
			}
			r := newRig(t, testnic.Wired(t), cfg)
			e, err := r.rogue(tc.ask.marshal())
			require.NoError(t, err)
			p, err := parseReply(e.QP.PeerPrivateData())
			require.NoError(t, err)
			if tc.do == nil {
				require.ErrorContains(t, r.result().Err, tc.want)
				return // the next one would be given up, too, where the machine is slow
			}
			require.NoError(t, tc.do(e, p))
			require.ErrorContains(t, r.result().Err, tc.want)
			_, err = r.run(perf.Test{Op: perf.Write, Size: 8, Iterations: 10, TxDepth: 1, RxDepth: 1})
			require.NoError(t, err)
		})
	}
}

// A server that ends, or is no server of tests, is an error that says so.
func TestServerGone(t *testing.T) {
	devs := testnic.Wired(t)
	l, err := devs[1].Listen(context.Background(), ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	defer l.Close()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for _, tc := range []struct {
		reply []byte
		want  string
	}{
		{nil, "is it `rnicd perf server`?"},
		{marshalReply(place{stag: 1, to: 2}), "closed"},
	} {
		served := make(chan error, 1)
		go func() {
			req, err := l.Accept(ctx)
			if err != nil {
				served <- err
				return
			}
			e, err := newEnd(devs[1], &perf.Test{Op: perf.Send, Size: 8, TxDepth: 1, RxDepth: 1}, true)
			if err == nil {
				err = req.Accept(ctx, e.QP, connParam(rnic.ConnParam{}, tc.reply))
				e.QP.Disconnect()
				<-e.QP.Done()
				e.Release()
			}
			served <- err
		}()
		_, err := Run(ctx, ClientConfig{Adapter: devs[0], Addr: l.Addr().String(),
			Test: perf.Test{Op: perf.Send, Latency: true, Size: 8, Iterations: 5, RxDepth: 2}})
		require.ErrorContains(t, err, tc.want)
		require.NoError(t, <-served)
	}
}

// A server that writes beyond the client's memory is the reason that the client gives.
func TestServerWritesBeyond(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		for _, test := range []perf.Test{
			{Op: perf.Write, Latency: true, Size: 4096, Iterations: 5},
			{Op: perf.Send, Size: 4096, Iterations: 5000, TxDepth: 4, RxDepth: 2},
		} {
			l, err := devs[1].Listen(ctx, ":0", rnic.ListenOptions{})
			require.NoError(t, err)
			served := make(chan error, 1)
			serve := func() error {
				req, err := l.Accept(ctx)
				if err != nil {
					return err
				}
				ask, err := parseRequest(req.PrivateData())
				if err != nil {
					return err
				}
				ask.test.TxDepth = 1
				e, err := newEnd(devs[1], &ask.test, true)
				if err != nil {
					return err
				}
				defer e.Release()
				if err := req.Accept(ctx, e.QP,
					connParam(rnic.ConnParam{}, marshalReply(e.place(&ask.test)))); err != nil {
					return err
				}
				// It goes out when the client has spoken.
				_, err = e.QP.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Local: e.Local.Slice(0, 8),
					RemoteSTag: ask.place.stag, RemoteOffset: ask.place.to + 2*4096})
				<-e.QP.Done()
				return err
			}
			go func() { served <- serve() }()
			_, err = Run(ctx, ClientConfig{Adapter: devs[0], Addr: testnic.Dialable(l.Addr()), Test: test})
			require.ErrorContains(t, err, "base or bounds violation", "%+v", test)
			require.NoError(t, <-served)
			l.Close()
		}
	})
}

// Requests and replies are read as they were written; every other length is refused.
func TestProtocol(t *testing.T) {
	want := request{
		test:  perf.Test{Op: perf.Send, Latency: true, Size: 12345, RxDepth: 77},
		place: place{stag: 0x01020304, to: 0x1122334455667788, credit: 0x99AABBCCDDEEFF00},
	}
	b := want.marshal()
	require.Len(t, b, requestLen)
	got, err := parseRequest(b)
	require.NoError(t, err)
	require.Equal(t, want, got)
	for n := range b {
		_, err := parseRequest(b[:n])
		require.ErrorIs(t, err, errMalformed)
	}
	reply := place{stag: 0x01020304, to: 0x1122334455667788}
	b = marshalReply(reply)
	p, err := parseReply(b)
	require.NoError(t, err)
	require.Equal(t, reply, p)
	for n := range b {
		_, err := parseReply(b[:n])
		require.ErrorIs(t, err, errMalformed)
	}
}
