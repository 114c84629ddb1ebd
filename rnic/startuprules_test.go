package rnic

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// Octets after the Request that came while the connection was a stream cannot be made a stream's
// again: RejectStream refuses.
func TestRejectStreamOfAHastyPeer(t *testing.T) {
	p := newHasty(t, rigConfig{}, stream.Options{})
	r := p.r
	p.write(append(unhex(t, hexReq+"4001 0000"), make([]byte, 3000)...))
	r.pass(time.Second)
	l := must(r.server.respond(r.ctx, p.conn, nil, ListenOptions{}))
	req := must(l.nextRequest(r.ctx))
	_, err := req.RejectStream(r.ctx, nil)
	require.ErrorIs(t, err, connect.ErrPipelined)
	r.until("the end", func() bool { return len(r.server.host.Live()) == 0 })
	r.noBufLost()
}

// A Request of Rev 0 with S offers to let us speak first where rtr is served, and the request
// says so beforehand.
func TestPeerToPeerOfRevZero(t *testing.T) {
	for _, served := range [][]Dialect{{RDDP01}, {RDDP01, RTR}} {
		r := newRig(t, turned, rigConfig{listen: ListenOptions{Dialects: served}})
		p := r.peerDials()
		p.write(request(mpa.Frame{Rev: 0, S: true, CRC: true, Markers: true}))
		req, s := r.request(), r.newEnd(r.server, opts{})
		require.Equal(t, len(served) == 2, req.PeerToPeer())
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		require.Equal(t, len(served) == 2, s.qp.Startup().PeerToPeer)
	}
}

// Two Initiators on one stream, in every dialect that has frames: neither is in service.
//
// req: D01-6.1-10, D01-6.1-30, D01-6.1-31
func TestTwoOfOneRole(t *testing.T) {
	for d := RDDP01; d <= RFC6581; d++ {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			r := newRig(t, turned, rigConfig{})
			sc, cc := r.streams()
			a, b := r.newEnd(r.server, connOpts(ConnParam{Dialect: d})),
				r.newEnd(r.client, connOpts(ConnParam{Dialect: d}))
			// The second to enter may find the first one's Request unread, and then it is no party to MPA
			// at all.
			require.NoError(t, a.qp.StartConnectStream(r.ctx, sc, a.conn))
			if err := b.qp.StartConnectStream(r.ctx, cc, b.conn); err != nil {
				require.ErrorIs(t, err, ErrUnread)
				_ = cc.Close()
			} else {
				b.awaitClosed()
			}
			a.awaitClosed()
			require.Error(t, a.qp.Err())
		})
	}
}

// refusing is a transport whose kernel refuses ConnParam.UserTimeout: a local error for which RFC
// 6581 has no code.
type refusing struct{ transport.Conn }

func (refusing) GiveUpAfter(time.Duration) error { return unix.ENOPROTOOPT }

// refuseTimeout makes l's kernel refuse.
func (r *rig) refuseTimeout(l *connect.Connection) {
	r.t.Helper()
	changed := make(chan struct{})
	require.NoError(r.t, l.Transport.Submit(func() {
		l.Transport = refusing{l.Transport}
		close(changed)
	}))
	r.until("the carrier's change", func() bool {
		select {
		case <-changed:
			return true
		default:
			return false
		}
	})
}

// An Initiator that meets a local error without a code in RFC 6581 sends a Terminate, "local
// catastrophic error", and no RTR message before it. Then it ends the connection.
//
// req: 6581-9.3-1
func TestSetupErrorOfTheInitiator(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	conn := initiator(RTRWrite)
	conn.IRD, conn.ORD, conn.UserTimeout = 2, 1, time.Minute
	c, p := r.dialling(connOpts(conn))
	r.refuseTimeout(c.qp.end.Connection.Load())
	p.play("< "+hexReq+"5002 0004 8002 8001", "> "+hexRep+"5002 0004 8001 8001",
		"< "+withCRC(t, "0016 41 47 00000000 00000002 00000001 00000000 20050000"))
	p.expectFIN()
	p.closeSend()
	c.expectClosedBy(unix.ENOPROTOOPT)
	require.ErrorIs(t, c.qp.inService(r.ctx), unix.ENOPROTOOPT)
	require.ErrorContains(t, c.qp.Err(), "ConnParam.UserTimeout 1m0s")
}

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
