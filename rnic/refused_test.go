package rnic

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
)

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
			asks(r, mpa.Frame{Rev: 1, CRC: true})
			r.until("a request in the backlog", func() bool { return len(r.listener.requests) == 1 })
			for range 2 {
				asks(r, mpa.Frame{Rev: 1, CRC: true}).expectReset()
			}
		}},
	{"dialect", rigConfig{listen: ListenOptions{Dialects: []Dialect{RFC5044}}},
		StartupRefusals{Dialect: 1}, both, func(t *testing.T, r *rig) {
			asks(r, mpa.Frame{Rev: 0, CRC: true})
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
	{"connections", rigConfig{server: Config{ConnsMax: 1}}, StartupRefusals{Connections: 1},
		[]kind{sockets}, func(t *testing.T, r *rig) {
			r.connect(opts{}, opts{})
			c := r.newEnd(r.client, opts{})
			_ = c.qp.StartConnect(r.ctx, r.addr(), c.conn) // the kernel may be told of the reset at once
			r.failure()
			c.awaitClosed()
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
		s, c := r.newEnd(r.server, opts{ConnParam: ConnParam{IRD: 9, ORD: 8, ORDMin: 5}}),
			r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: RFC6581, IRD: 4, ORD: 12}})
		require.ErrorIs(t, r.dial(c, nil).Accept(r.ctx, s.qp, s.conn), mpa.ErrORDShort)
		c.awaitClosed()
	}},
	{"system", rigConfig{}, StartupRefusals{System: 1}, both, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{UserTimeout: time.Minute}})
		asks(r, mpa.Frame{Rev: 1, CRC: true})
		req := r.request()
		r.refuseTimeout(req.connection)
		require.Error(t, req.Accept(r.ctx, s.qp, s.conn))
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
