package rnic

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
)

// A connection waits until our address is found to be free. StartConnect does not.
func TestConnectWaitsForOurAddress(t *testing.T) {
	over(t, []kind{turned, running}, rigConfig{tentative: true}, func(t *testing.T, r *rig) {
		begin := r.time
		s, c := r.connect(opts{}, opts{})
		if r.kind == turned {
			require.Greater(t, r.time-begin, int64(100*time.Millisecond), "probed")
		}
		r.exchange(s, c)
		r.close(s, c)
	})
}

// tentative begins a connection from an address that is being checked.
func (r *rig) tentative() *end {
	c := r.newEnd(r.client, opts{})
	require.NoError(r.t, c.qp.StartConnect(r.ctx, r.addr(), c.conn))
	for range 10 { // no time passes
		r.hosts[1].poller.Turn()
	}
	require.Equal(r.t, Connecting, c.qp.State())
	return c
}

// A caller that gives up meanwhile need not wait for the address, and the peer hears nothing.
func TestConnectGivesUpOnATentativeAddress(t *testing.T) {
	r := newRig(t, turned, rigConfig{tentative: true})
	c := r.tentative()
	c.qp.Abort()
	r.hosts[1].poller.Turn()
	require.True(t, isDone(c.qp))
	require.ErrorIs(t, c.qp.Err(), ErrClosed)

	ctx, cancel := context.WithCancel(r.ctx)
	e := r.newEnd(r.client, opts{})
	var n stack.Counters
	connected := make(chan error, 1)
	r.hosts[1].poller.Snapshot(&n)
	was := n.Controls
	go func() { connected <- e.qp.Connect(ctx, r.addr(), e.conn) }()
	turn := func(until func() bool) {
		for !until() {
			r.hosts[1].poller.Turn()
			yield()
		}
	}
	turn(func() bool { r.hosts[1].poller.Snapshot(&n); return n.Controls > was })
	cancel()
	turn(func() bool { return len(connected) == 1 })
	err := <-connected
	require.ErrorIs(t, err, context.Canceled)
	require.ErrorIs(t, err, stack.ErrTentative)

	c = r.tentative()
	require.NoError(t, r.client.Close(r.ctx)) // which turns the Pollers itself
	require.ErrorIs(t, c.qp.Err(), ErrClosed)
	r.hosts[0].poller.Snapshot(&n)
	require.Zero(t, n.HalfOpened)
}

// As many wait as there may be connections. The Poller's end is one for them, too.
func TestConnectWhoseAddressIsNeverFree(t *testing.T) {
	r := newRig(t, turned, rigConfig{tentative: true})
	var all []*end
	for range 32 { // ConnsMax
		all = append(all, r.tentative())
	}
	c := r.newEnd(r.client, opts{})
	require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn))
	r.hosts[1].poller.Turn()
	require.True(t, isDone(c.qp))
	require.ErrorIs(t, c.qp.Err(), stack.ErrConnMax)
	r.hosts[1].poller.Stop()
	r.hosts[1].poller.Turn()
	for _, e := range all {
		require.True(t, isDone(e.qp))
		require.ErrorIs(t, e.qp.Err(), stack.ErrStopped)
	}
}
