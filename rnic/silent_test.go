package rnic

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

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
	n, err := r.hosts[0].poller.Counters(r.ctx)
	require.NoError(r.t, err)
	return n
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
		late := r.newEnd(r.client, opts{ConnParam: ConnParam{UserTimeout: time.Second}})
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

// A stream that becomes MPA's has spoken: it does not give way.
func TestDelayedStartupDoesNotGiveWay(t *testing.T) {
	r := newRig(t, sockets, rigConfig{connsMax: 1})
	addr, accept := r.peerListens()
	nc, err := net.Dial("tcp", addr)
	require.NoError(t, err)
	raw := accept()
	l, err := r.server.respond(r.ctx, nc, []byte("begin"), ListenOptions{})
	require.NoError(t, err)
	if late, err := net.Dial("tcp", r.addr()); err == nil { // else the reset was quicker
		defer late.Close()
	}
	r.startupsEndWith(1, stack.ErrConnMax)
	require.NoError(t, raw.ended())
	require.False(t, l.Gone.Given())
}

// PeerMax is no more than ConnsMax.
func TestPeerMaxBounds(t *testing.T) {
	for _, n := range []int{-1, ConnsMaxDefault + 1} {
		_, err := Open(Config{PeerMax: n})
		require.ErrorContains(t, err, "PeerMax")
	}
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
	r.until("all slots", func() bool { return r.server.host.Slots.Count() == 0 })
	require.True(t, r.server.host.Slots.Empty())
}
