package rping

import (
	"context"
	"fmt"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/testnic"
	"github.com/rnicd/rnicd/internal/tools/peer"
	"github.com/rnicd/rnicd/rnic"
)

const patience = 30 * time.Second

// rig is a Server and an Adapter for clients.
type rig struct {
	t       *testing.T
	ctx     context.Context
	client  *rnic.Adapter
	addr    string
	served  chan Served
	refused chan string
	pings   chan string   // what the server saw
	waits   chan struct{} // a request waits, for its place first of all
}

func newRig(t *testing.T, devs [2]*rnic.Adapter, cfg ServerConfig) *rig {
	t.Helper()
	r := &rig{t: t, client: devs[0], served: make(chan Served, 64), refused: make(chan string, 64),
		pings: make(chan string, 1024), waits: make(chan struct{}, 64)}
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
	cfg.OnPing = func(_ netip.AddrPort, p Ping) { r.pings <- string(p.Data[:min(len(p.Data), 20)]) }
	r.addr = testnic.Serve(r.ctx, t, devs[1], r.waits, NewServer(cfg).Handle)
	return r
}

// result is what the server says of the next client that is gone.
func (r *rig) result() Served {
	r.t.Helper()
	return testnic.Next(r.ctx, r.t, r.served)
}

// Pings of every size come back as they were, over both transports, and the server saw what the
// client had.
func TestPings(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		r := newRig(t, devs, ServerConfig{})
		for _, size := range []int{SizeMin, SizeDefault, 2000, SizeMax} {
			var took []time.Duration
			n, err := Run(r.ctx, ClientConfig{Adapter: r.client, Addr: r.addr, Count: 70, Size: size,
				Verify: true, OnPing: func(p Ping) {
					require.Equal(t, len(took), p.Number)
					took = append(took, p.Took)
				}})
			require.NoError(t, err)
			require.Equal(t, 70, n)
			require.Len(t, took, 70)
			s := r.result()
			require.NoError(t, s.Err)
			require.Equal(t, 70, s.Pings)
			require.Equal(t, rnic.RFC6581, s.Startup.Dialect)
			for i := range 70 {
				want := make([]byte, size)
				Data(want, i)
				require.Equal(t, string(want[:20]), <-r.pings)
			}
		}
	})
}

// The data is rping's: a number, letters that begin with another one each time, and an octet 0.
func TestData(t *testing.T) {
	b := make([]byte, 30)
	for n, want := range map[int]string{
		0: "rdma-ping-0: ABCDEFGHIJKLMNOP", 4: "rdma-ping-4: EFGHIJKLMNOPQRST",
		57: "rdma-ping-57: zABCDEFGHIJKLMN",
		58: "rdma-ping-58: ABCDEFGHIJKLMNO", 2147483647: "rdma-ping-2147483647: tuvwxyzA"[:29],
	} {
		Data(b, n)
		if n < 100 {
			require.Equal(t, want+"\x00", string(b), "%d", n)
		}
		require.Zero(t, b[29])
	}
	Data(b[:SizeMin], 2147483647)
	require.Equal(t, "rdma-ping-2147483647: ", string(b[:22]))
}

// Several clients at once; one that is interrupted leaves; one that asks for too much is told, and
// the others never notice.
func TestClientsAtOnce(t *testing.T) {
	r := newRig(t, testnic.Wired(t), ServerConfig{SizeMax: 1000})
	ctx, cancel := context.WithCancel(r.ctx)
	var endless sync.WaitGroup
	endless.Go(func() {
		n := 0
		n, err := Run(ctx, ClientConfig{Adapter: r.client, Addr: r.addr, Size: 500, Verify: true,
			OnPing: func(Ping) {
				if n++; n == 30 {
					cancel()
				}
			}})
		require.NoError(t, err)
		require.GreaterOrEqual(t, n, 30)
	})
	_, err := Run(r.ctx, ClientConfig{Adapter: r.client, Addr: r.addr, Count: 1, Size: 1001})
	require.Error(t, err)
	endless.Wait()
	for range 2 {
		s := r.result()
		if s.Pings == 0 {
			require.EqualError(t, s.Err, "rping: a ping of 1001 octets, 1 to 1000 are served")
		}
	}
	n, err := Run(r.ctx, ClientConfig{Adapter: r.client, Addr: r.addr, Count: 3, Size: 1000,
		Verify: true})
	require.NoError(t, err)
	require.Equal(t, 3, n)
}

// Clients that misbehave get one end each, and the server says why.
func TestHostileClients(t *testing.T) {
	message := func(p place) []byte {
		b := make([]byte, messageLen)
		p.put(b)
		return b
	}
	for _, tc := range []struct {
		name string
		say  []byte
		want string
	}{
		{"short", make([]byte, 15), "rping: a message of 15 octets, where one of 16 was due"},
		{"nothing", message(place{}), "rping: a ping of 0 octets, 1 to 65535 are served"},
		{"endless", message(place{size: 1<<32 - 1}),
			"rping: a ping of 4294967295 octets, 1 to 65535 are served"},
		{"not its memory", message(place{stag: 0x12345678, size: 100}), "STag"},
		{"silent", nil, "rping: nothing came from the client for 100ms"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			cfg := ServerConfig{}
			if tc.say == nil {
				cfg.IdleTimeout = 100 * time.Millisecond
			}
			r := newRig(t, testnic.Wired(t), cfg)
			e, err := newEnd(r.client)
			require.NoError(t, err)
			defer e.release()
			require.NoError(t, e.qp.Connect(r.ctx, r.addr, connParam(rnic.ConnParam{})))
			if tc.say != nil {
				m, err := e.register(messageLen, 0)
				require.NoError(t, err)
				copy(m.Bytes(), tc.say)
				require.NoError(
					t, errOf(e.qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend, Local: m.Slice(0, len(tc.say))})))
			}
			require.ErrorContains(t, r.result().Err, tc.want)
		})
	}
	r := newRig(t, testnic.Wired(t), ServerConfig{ClientsMax: 1})
	e, err := newEnd(r.client)
	require.NoError(t, err)
	defer e.release()
	require.ErrorContains(
		t,
		peer.Refusal("rping", e.qp.Connect(r.ctx, r.addr, rnic.ConnParam{PrivateData: []byte("hello")})),
		"5 octets of private data")
	require.Contains(t, <-r.refused, "5 octets of private data")
}

// A client that has gone leaves its place to the next.
func TestClientsOneByOne(t *testing.T) {
	r := newRig(t, testnic.Wired(t), ServerConfig{ClientsMax: 1})
	for range 3 {
		n, err := Run(r.ctx, ClientConfig{Adapter: r.client, Addr: r.addr, Count: 1, Size: 100})
		require.NoError(t, err)
		require.Equal(t, 1, n)
		require.NoError(t, r.result().Err)
	}
}

// played is a server that reads as rping's does, has its say about what it read, and writes room
// octets of that, at most, beyond octets away from where it is to.
func played(t *testing.T, devs [2]*rnic.Adapter, say func([]byte), room uint32,
	beyond uint64) (addr string, ended chan error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	l, err := devs[1].Listen(ctx, ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	ended = make(chan error, 1)
	go func() {
		ended <- func() error {
			defer l.Close()
			req, err := l.Accept(ctx)
			if err != nil {
				return err
			}
			e, err := newEnd(devs[1])
			if err != nil {
				return err
			}
			defer e.release()
			buf, err := e.register(1000, rnic.LocalWrite)
			if err != nil {
				return err
			}
			if err := req.Accept(ctx, e.qp, connParam(rnic.ConnParam{})); err != nil {
				return err
			}
			from, err := e.receive(ctx)
			if err != nil {
				return err
			}
			local := buf.Slice(0, int(from.size))
			err = e.do(ctx, rnic.WorkRequest{Op: rnic.OpRead, Local: local, RemoteSTag: from.stag,
				RemoteOffset: from.to})
			if err != nil {
				return err
			}
			say(buf.Bytes()[:from.size])
			if err := e.send(ctx, place{}); err != nil {
				return err
			}
			to, err := e.receive(ctx)
			if err != nil {
				return err
			}
			local.Length = min(local.Length, room)
			err = e.do(ctx, rnic.WorkRequest{Op: rnic.OpWrite, Local: local, RemoteSTag: to.stag,
				RemoteOffset: to.to + beyond})
			if err == nil {
				err = e.send(ctx, place{})
			}
			if _, over := e.receive(ctx); beyond > 0 && err == nil { // the end
				err = over
			}
			return err
		}()
	}()
	return testnic.Dialable(l.Addr()), ended
}

// Data that does not come back as it was, or not whole, is an error where Verify was asked for,
// which says where.
func TestMismatch(t *testing.T) {
	for _, tc := range []struct {
		say  func([]byte)
		room uint32
		at   int // -1: nothing is wrong
	}{
		{func([]byte) {}, 1000, -1},
		{func(b []byte) { b[57] ^= 1 }, 1000, 57},
		{func([]byte) {}, 70, 70},
	} {
		for _, verify := range []bool{true, false} {
			devs := testnic.Wired(t)
			addr, ended := played(t, devs, tc.say, tc.room, 0)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			n, err := Run(ctx, ClientConfig{Adapter: devs[0], Addr: addr, Count: 1, Size: 100,
				Verify: verify})
			cancel()
			if verify && tc.at >= 0 {
				var wrong *MismatchError
				require.ErrorAs(t, err, &wrong)
				require.Equal(t, MismatchError{Ping: 0, At: tc.at}, *wrong)
				require.Zero(t, n)
			} else {
				require.NoError(t, err)
				require.Equal(t, 1, n)
			}
			require.NoError(t, <-ended)
		}
	}
}

// A server that writes beyond the client's memory is the reason that the client gives.
func TestServerWritesBeyond(t *testing.T) {
	testnic.Over(t, func(t *testing.T, devs [2]*rnic.Adapter) {
		addr, ended := played(t, devs, func([]byte) {}, 1000, 1)
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		_, err := Run(ctx, ClientConfig{Adapter: devs[0], Addr: addr, Count: 1, Size: 100, Verify: true})
		require.ErrorContains(t, err, "base or bounds violation")
		require.ErrorContains(t, <-ended, "base or bounds violation")
	})
}

// A client that makes room for less than it announced is told nothing and gets nothing.
func TestNoRoomForThePong(t *testing.T) {
	r := newRig(t, testnic.Wired(t), ServerConfig{})
	e, err := newEnd(r.client)
	require.NoError(t, err)
	defer e.release()
	source, err := e.register(100, rnic.RemoteRead|rnic.RemoteWrite)
	require.NoError(t, err)
	require.True(t, source.Exclusive(), "for this connection only")
	require.NoError(t, e.qp.Connect(r.ctx, r.addr, connParam(rnic.ConnParam{})))
	require.NoError(t, e.send(r.ctx, place{source.Base(), source.STag(), 100}))
	_, err = e.receive(r.ctx)
	require.NoError(t, err)
	require.NoError(t, e.send(r.ctx, place{source.Base(), source.STag(), 99}))
	require.EqualError(t, r.result().Err,
		"rping: 100 octets to write back, the client has room for 99")
}

// A client that comes right after another one finds its place, though the server is not through
// with that one.
func TestOnePlace(t *testing.T) {
	through := make(chan struct{})
	r := newRig(t, testnic.Sockets(t), ServerConfig{ClientsMax: 1, Done: func(Served) { <-through }})
	finish := sync.OnceFunc(func() { close(through) })
	t.Cleanup(finish)
	cfg := ClientConfig{Adapter: r.client, Addr: r.addr, Count: 1, Size: SizeDefault}
	_, err := Run(r.ctx, cfg)
	require.NoError(t, err)
	again := make(chan error, 1)
	go func() {
		_, err := Run(r.ctx, cfg)
		again <- err
	}()
	<-r.waits // the first, for its place
	<-r.waits // the second, before the server is through with the first
	finish()
	require.NoError(t, <-again)
}

// A client for which the server has no memory left is told so at once, whatever it is for: the
// messages, the data, or the connection.
func TestServerIsFull(t *testing.T) {
	for regions := 1; regions <= 2; regions++ {
		serverIsFull(t, regions)
	}
}

func serverIsFull(t *testing.T, regions int) {
	devs := testnic.Sockets(t)
	devs[1] = testnic.Open(t, rnic.Config{RegionsMax: regions})
	r := newRig(t, devs, ServerConfig{})
	e, err := newEnd(r.client)
	require.NoError(t, err)
	defer e.release()
	require.ErrorContains(
		t, peer.Refusal("rping", e.qp.Connect(r.ctx, r.addr, connParam(rnic.ConnParam{}))), "are in use")
	require.Contains(t, <-r.refused, "are in use")
}

// A client that leaves in the middle of a ping, and a server that does.
func TestVanishes(t *testing.T) {
	r := newRig(t, testnic.Wired(t), ServerConfig{})
	e, err := newEnd(r.client)
	require.NoError(t, err)
	defer e.release()
	source, err := e.register(100, rnic.RemoteRead)
	require.NoError(t, err)
	require.NoError(t, e.qp.Connect(r.ctx, r.addr, connParam(rnic.ConnParam{})))
	require.NoError(t, e.send(r.ctx, place{source.Base(), source.STag(), 100}))
	_, err = e.receive(r.ctx)
	require.NoError(t, err)
	e.qp.Disconnect()
	require.ErrorIs(t, r.result().Err, ErrVanished)

	devs := testnic.Sockets(t)
	l, err := devs[1].Listen(r.ctx, ":0", rnic.ListenOptions{})
	require.NoError(t, err)
	defer l.Close()
	var leaving sync.WaitGroup
	leaving.Go(func() {
		req, err := l.Accept(r.ctx)
		if err != nil {
			return
		}
		s, err := newEnd(devs[1])
		if err != nil {
			return
		}
		defer s.release()
		if req.Accept(r.ctx, s.qp, connParam(rnic.ConnParam{})) == nil {
			_, _ = s.receive(r.ctx)
			_ = s.qp.Close(r.ctx)
		}
	})
	_, err = Run(r.ctx, ClientConfig{Adapter: devs[0], Addr: testnic.Dialable(l.Addr()),
		Count: 3, Size: 100})
	require.ErrorIs(t, err, ErrVanished)
	leaving.Wait()
}

// What cannot be is refused before anybody is dialled.
func TestRefused(t *testing.T) {
	for _, cfg := range []ClientConfig{{Size: SizeMin - 1}, {Size: SizeMax + 1},
		{Size: 100, Count: -1}} {
		_, err := Run(context.Background(), cfg)
		require.ErrorContains(t, err, fmt.Sprintf("of %d to %d", SizeMin, SizeMax))
	}
}
