package rnic

import (
	"context"
	"errors"
	"io"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// startupsEndWith waits until so many connections that were never offered have ended with want.
func (r *rig) startupsEndWith(n int, want error) {
	r.t.Helper()
	for range n {
		f := r.failure()
		require.ErrorIs(r.t, f.Err, want)
		require.False(r.t, f.Offered)
	}
}

// serverCounters are those of the server's Poller.
func (r *rig) serverCounters() (n stack.Counters) {
	r.t.Helper()
	if r.kind == turned {
		r.hosts[0].poller.Snapshot(&n)
		return n
	}
	return must(r.hosts[0].poller.Counters(r.ctx))
}

// Connections whose peer sends no start-up frame, or never the end of it, fill all slots: a client
// gets in at once, and the oldest of them are reset. Those that have sent theirs stay.
//
// req: 5042-6.4.1-1
func TestSilentStartupsGiveWay(t *testing.T) {
	over(t, all, rigConfig{connsMax: 5}, func(t *testing.T, r *rig) {
		s1, c1 := r.connect(opts{}, opts{})
		outstanding := r.peerDials()
		outstanding.write(request(mpa.Frame{Rev: 1, CRC: true}))
		waiting := r.request()
		var silent []*peer
		for range 3 {
			silent = append(silent, r.peerDials())
		}
		silent[1].write(request(mpa.Frame{Rev: 1, CRC: true})[:mpa.FrameLen-1])
		begin := r.time
		s2, c2 := r.connect(opts{}, opts{})
		s3, c3 := r.connect(opts{}, opts{})
		if r.kind == turned {
			require.Less(t, r.time-begin, int64(10*time.Millisecond))
		}
		r.startupsEndWith(2, stack.ErrGaveWay)
		for _, p := range silent[:2] {
			p.expectReset()
		}
		require.NoError(t, silent[2].ended())
		require.NoError(t, outstanding.ended())
		require.NoError(t, waiting.Accept(r.ctx, r.newEnd(r.server, opts{}).qp, ConnParam{}))
		for _, pair := range [][2]*end{{s1, c1}, {s2, c2}, {s3, c3}} {
			r.exchange(pair[0], pair[1])
		}
	})
}

// An address at its limit loses its oldest silent connection to its next; without a silent one it
// gets no more.
func TestSilentStartupsOfOneAddress(t *testing.T) {
	over(t, all, rigConfig{connsMax: 32, peerMax: 3}, func(t *testing.T, r *rig) {
		var silent []*peer
		for range 10 {
			silent = append(silent, r.peerDials())
		}
		r.startupsEndWith(7, stack.ErrGaveWay)
		for _, p := range silent[:7] {
			p.expectReset()
		}
		var pairs [][2]*end
		for range 3 {
			s, c := r.connect(opts{}, opts{})
			pairs = append(pairs, [2]*end{s, c})
		}
		r.startupsEndWith(3, stack.ErrGaveWay)
		for _, p := range pairs {
			r.exchange(p[0], p[1])
		}
		late := r.newEnd(r.client, connOpts(ConnParam{UserTimeout: time.Second}))
		// the kernel may be told of the reset at once
		_ = late.qp.StartConnect(r.ctx, r.addr(), late.conn)
		if r.kind == sockets {
			r.startupsEndWith(1, stack.ErrConnMax)
		} else {
			r.until("a drop", func() bool { return r.serverCounters().Own[stack.DropPeerMax] > 0 })
		}
		late.qp.Abort()
		late.awaitClosed()
		r.exchange(pairs[0][0], pairs[0][1])
	})
}

// They give way to a connection that the host opens itself, too.
func TestSilentStartupsGiveWayToOurOwn(t *testing.T) {
	r := newRig(t, sockets, rigConfig{connsMax: 2})
	addr, accept := r.peerListens()
	var silent []*peer
	for range 3 {
		silent = append(silent, r.peerDials())
	}
	r.startupsEndWith(1, stack.ErrGaveWay) // and the others have the slots
	c := r.newEnd(r.server, opts{})
	require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
	accept()
	r.startupsEndWith(1, stack.ErrGaveWay)
	silent[1].expectReset()
	c.qp.Abort()
	c.awaitClosed()
}

// A stream that becomes MPA's has spoken: it does not give way.
func TestDelayedStartupDoesNotGiveWay(t *testing.T) {
	r := newRig(t, sockets, rigConfig{connsMax: 1})
	addr, accept := r.peerListens()
	nc := must(net.Dial("tcp", addr))
	raw := accept()
	l := must(r.server.respond(r.ctx, nc, []byte("begin"), ListenOptions{}))
	if late, err := net.Dial("tcp", r.addr()); err == nil { // else the reset was quicker
		defer late.Close()
	}
	r.startupsEndWith(1, stack.ErrConnMax)
	require.NoError(t, raw.ended())
	require.False(t, l.Gone.Given())
}

// Peers that speak in the moment in which they are to give way are either served or reset, and no
// slot is lost or had twice.
func TestGiveWayHammer(t *testing.T) {
	const clients, slots = 8, 3
	rounds := sample.Count(8, 25)
	r := newRig(t, sockets, rigConfig{connsMax: slots})
	go func() {
		_ = r.listener.Serve(r.ctx, func(_ context.Context, req *ConnRequest) {
			_ = req.Reject(r.ctx, nil)
		})
	}()
	var all sync.WaitGroup
	for range clients {
		all.Go(func() {
			for range rounds {
				nc, err := net.Dial("tcp", r.addr())
				if err != nil {
					continue // reset at once
				}
				_ = nc.SetDeadline(time.Now().Add(patience))
				var b []byte
				// else the kernel has told of the reset
				if _, err = nc.Write(request(mpa.Frame{Rev: 1, CRC: true})); err == nil {
					b, err = io.ReadAll(nc)
				}
				if err == nil && len(b) < mpa.FrameLen {
					t.Errorf("closed after %d octets", len(b))
				}
				var late net.Error
				if errors.As(err, &late) && late.Timeout() {
					t.Error("neither served nor reset")
				}
				_ = nc.Close()
			}
		})
	}
	all.Wait()
	r.until("all slots", func() bool { return r.server.slotsTaken() == 0 })
}

// asks is a client that has sent a Request.
func asks(r *rig, f mpa.Frame) *peer {
	p := r.peerDials()
	p.write(request(f))
	return p
}

// refusedStartups have a name for each cause, and what brings it about.
var refusedStartups = []struct {
	name string
	cfg  rigConfig
	want StartupRefusals
	on   []kind
	do   func(t *testing.T, r *rig)
}{
	{"backlog", rigConfig{listen: ListenOptions{Backlog: 1}}, StartupRefusals{Backlog: 2}, both,
		func(t *testing.T, r *rig) {
			waits := asks(r, mpa.Frame{Rev: 1, CRC: true})
			r.until("a request in the backlog", func() bool { return len(r.listener.requests) == 1 })
			for range 2 {
				asks(r, mpa.Frame{Rev: 1, CRC: true}).expectReset()
				require.ErrorIs(t, r.failure().Err, ErrBacklog)
			}
			r.accept(r.newEnd(r.server, opts{}))
			waits.expectFrame(mpa.Reply)
			require.Nil(t, r.listener.Poll())
		}},
	{"dialect", rigConfig{listen: ListenOptions{Dialects: []Dialect{RFC5044}}},
		StartupRefusals{Dialect: 1}, both, func(t *testing.T, r *rig) {
			p := asks(r, mpa.Frame{Rev: 0, CRC: true})
			p.expectFrame(mpa.Reply)
			p.closeSend() // which the Responder waits for
			r.failure()
		}},
	{"private data", rigConfig{}, StartupRefusals{PrivateData: 1}, both, func(t *testing.T, r *rig) {
		p := r.peerDials()
		p.write(append(request(mpa.Frame{Rev: 1})[:18], 0x02, 0x01))
		p.expectReset()
	}},
	{"malformed", rigConfig{}, StartupRefusals{Malformed: 1}, both, func(t *testing.T, r *rig) {
		p := r.peerDials()
		p.write([]byte("GET / HTTP/1.0\r\n\r\n"))
		p.expectReset()
	}},
	{"timeout", rigConfig{}, StartupRefusals{Timeout: 1}, both, func(t *testing.T, r *rig) {
		p := r.peerDials()
		r.until("the connection at the server", func() bool { return len(r.server.host.Live()) == 1 })
		r.fire(r.server)
		p.expectReset()
	}},
	{"undecided", rigConfig{}, StartupRefusals{Undecided: 1}, both, func(t *testing.T, r *rig) {
		p := asks(r, mpa.Frame{Rev: 1, CRC: true})
		r.request()
		r.fire(r.server)
		p.expectReset()
	}},
	{"gave way", rigConfig{connsMax: 32, peerMax: 1}, StartupRefusals{GaveWay: 2}, both,
		func(t *testing.T, r *rig) {
			for range 2 {
				p := r.peerDials()
				defer p.expectReset()
			}
			r.peerDials()
			r.failure()
			r.failure()
		}},
	{"peer connections", rigConfig{connsMax: 32, peerMax: 1}, StartupRefusals{PeerConnections: 1},
		[]kind{sockets}, func(t *testing.T, r *rig) {
			r.connect(opts{}, opts{})
			c := r.newEnd(r.client, opts{})
			_ = c.qp.StartConnect(r.ctx, r.addr(), c.conn)
			r.failure()
			c.awaitClosed()
		}},
	{"read depth", rigConfig{}, StartupRefusals{ReadDepth: 1}, both, func(t *testing.T, r *rig) {
		s, c := r.newEnd(r.server, connOpts(ConnParam{IRD: 9, ORD: 8, ORDMin: 5})),
			r.newEnd(r.client, connOpts(ConnParam{Dialect: RFC6581, IRD: 4, ORD: 12}))
		require.ErrorIs(t, r.dial(c, nil).Accept(r.ctx, s.qp, s.conn), mpa.ErrORDShort)
		c.awaitClosed()
	}},
	{"system", rigConfig{}, StartupRefusals{System: 1}, both, func(t *testing.T, r *rig) {
		// It may send no FPDU before the Initiator's first, so no Terminate: its Reply rejects.
		s := r.newEnd(r.server, connOpts(ConnParam{NoMarkers: true, UserTimeout: time.Minute}))
		p := r.peerDials()
		p.write(unhex(t, hexReq+"5002 0004 0002 0001"))
		req := r.request()
		r.refuseTimeout(req.connection)
		require.ErrorIs(t, req.Accept(r.ctx, s.qp, s.conn), unix.ENOPROTOOPT)
		p.play("< " + hexRep + "7002 0004 0001 0002")
		require.Equal(t, Closed, s.qp.State())
		p.closeSend()
		p.expectFIN()
	}},
	{"rejected", rigConfig{}, StartupRefusals{Rejected: 1}, both, func(t *testing.T, r *rig) {
		asks(r, mpa.Frame{Rev: 1, CRC: true})
		require.NoError(t, r.request().Reject(r.ctx, []byte("no")))
	}},
	{"none", rigConfig{}, StartupRefusals{}, both, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{})
		p := r.peerDials()
		p.closeSend() // it gives up
		r.failure()
		r.close(s, c)
	}},
}

// Each start-up that a peer began and that came to nothing here is counted once, under its cause,
// and under no other; a peer that gives up, and one that is served, are not.
func TestStartupsRefused(t *testing.T) {
	for _, tc := range refusedStartups {
		t.Run(tc.name, func(t *testing.T) {
			over(t, tc.on, tc.cfg, func(t *testing.T, r *rig) {
				tc.do(t, r)
				refused := func() StartupRefusals { return r.server.StartupCounters().Refused }
				r.until("it to be counted", func() bool { return refused() == tc.want })
				require.Zero(t, r.client.StartupCounters().Refused, "that end began")
			})
		})
	}
	// Each has a name of its own.
	var names []string
	(&StartupRefusals{Backlog: 1, Rejected: 7}).Each(func(cause string, n uint64) {
		require.NotContains(t, names, cause)
		require.Equal(t, map[string]uint64{"backlog": 1, "rejected": 7}[cause], n)
		names = append(names, cause)
	})
	require.True(t, slices.Contains(names, "peer connections"))
	require.Len(t, names, 12)
}

// Requests are handled side by side; the end of the context is the end of Serve once all handlers
// have returned, and no error.
func TestListenerServe(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		l := must(r.server.Listen(r.ctx, r.anyPort(), ListenOptions{}))
		ctx, stop := context.WithCancel(r.ctx)
		defer stop()
		entered, leave, served := make(chan struct{}), make(chan struct{}), make(chan error, 1)
		go func() {
			served <- l.Serve(ctx, func(got context.Context, req *ConnRequest) {
				entered <- struct{}{}
				<-leave
				if got == ctx {
					_ = req.Reject(r.ctx, []byte("handled"))
				}
			})
		}()
		ends := []*end{r.newEnd(r.client, opts{}), r.newEnd(r.client, opts{})}
		for _, c := range ends {
			require.NoError(t, c.qp.StartConnect(r.ctx, l.Addr().String(), c.conn))
			<-entered // the second one while the first is being handled
		}
		stop()
		select {
		case err := <-served:
			require.FailNow(t, "Serve left its handlers alone", "%v", err)
		default:
		}
		close(leave)
		for _, c := range ends {
			c.awaitClosed()
			rejected := errorAs[*RejectedError](t, c.qp.Err())
			require.Equal(t, "handled", string(rejected.PrivateData))
		}
		require.NoError(t, <-served)
	})
}

// A Listener that is closed is an error.
func TestListenerServeClosed(t *testing.T) {
	over(t, blocking, rigConfig{}, func(t *testing.T, r *rig) {
		l := must(r.server.Listen(r.ctx, r.anyPort(), ListenOptions{}))
		served := make(chan error, 1)
		go func() { served <- l.Serve(r.ctx, func(context.Context, *ConnRequest) {}) }()
		l.Close()
		require.ErrorIs(t, <-served, ErrClosed)
	})
}
