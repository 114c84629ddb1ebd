package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/stack"
)

// peerAcceptsSeveral makes a listening peer whose connections are told apart.
func (r *rig) peerAcceptsSeveral() (addr string, next func() *peer) {
	r.t.Helper()
	addr, accept := r.peerListens()
	var last *peer
	return addr, func() (p *peer) {
		r.t.Helper()
		r.until("another connection", func() bool {
			p = accept()
			return p != last
		})
		last = p
		return p
	}
}

// A peer that closes, resets, or answers with a lower Rev when it is asked in Rev 2, is asked
// again on a new connection: in rtr for the peer-to-peer model, in rfc5044 otherwise, and no
// third time.
//
// req: 6581-10-3, 6581-10-4, P2P-3
func TestFallsBackOnce(t *testing.T) {
	reply := func(f mpa.Frame) func(p *peer) {
		f.Kind = mpa.Reply
		return func(p *peer) { p.write(f.Append(nil)) }
	}
	for name, refuse := range map[string]func(p *peer){
		"closes":            func(p *peer) { p.closeSend() },
		"resets":            func(p *peer) { p.reset() },
		"says Rev 1":        reply(mpa.Frame{Rev: 1, CRC: true}),
		"rejects in Rev 1":  reply(mpa.Frame{Rev: 1, Reject: true}),
		"says Rev 0":        reply(mpa.Frame{CRC: true, Markers: true}),
		"closes in a Reply": func(p *peer) { p.write([]byte("MPA ID Rep")); p.closeSend() },
	} {
		for _, p2p := range []bool{false, true} {
			r := newRig(t, turned, rigConfig{})
			addr, next := r.peerAcceptsSeveral()
			first, second := hexReq+"5002 0006 0001 0002 6869", hexReq+"4001 0002 6869"
			if p2p {
				first, second = hexReq+"5002 0006 c001 c002 6869", hexReq+"5001 0002 6869"
			}
			c := r.newEnd(r.client, connOpts(ConnParam{PeerToPeer: p2p, IRD: 1, ORD: 2, NoMarkers: true}))
			require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.with([]byte("hi"))))
			p := next()
			p.play("< " + first)
			refuse(p)
			q := next()
			q.play("< " + second)
			require.Equal(t, Connecting, c.qp.State())
			require.Equal(t, StartupCounters{Fallbacks: 1}, r.client.StartupCounters())
			if name == "closes" { // and it stays at that
				q.closeSend()
				c.expectClosedBy(ErrPeerClosed)
				require.ErrorIs(t, c.qp.inService(r.ctx), ErrPeerClosed)
				continue
			}
			q.write(unhex(t, hexRep+"4001 0000"))
			c.expectInService()
			require.NoError(t, c.qp.inService(r.ctx))
			require.Equal(t, Startup{Dialect: RFC5044, Version: 1, IRD: 1, ORD: 2}, c.qp.Startup())
			require.Equal(t, addr, c.qp.RemoteAddr().String())
		}
	}
}

// What is no sign of an older peer does not lead to a second connection.
func TestDoesNotFallBack(t *testing.T) {
	type sign struct {
		conn ConnParam
		act  func(r *rig, c *end, p *peer)
		want string
	}
	closes := func(_ *rig, _ *end, p *peer) { p.closeSend() }
	each(t, rigConfig{}, map[string]sign{
		"a dialect was named":         {ConnParam{Dialect: RFC6581}, closes, ErrPeerClosed.Error()},
		"nothing enhanced was wanted": {ConnParam{}, closes, ErrPeerClosed.Error()},
		"rejected by the ULP": {ConnParam{ORD: 1}, func(r *rig, _ *end, p *peer) {
			p.write(unhex(r.t, hexRep+"7002 0004 00000000"))
		}, "rejected by the peer"},
		"no frame at all": {ConnParam{ORD: 1}, func(_ *rig, _ *end, p *peer) {
			p.write([]byte("HTTP/1.1 400"))
		}, mpa.ErrKey.Error()},
		"silence": {ConnParam{ORD: 1}, func(r *rig, _ *end, p *peer) {
			r.fire(r.client)
			p.expectReset()
		}, ErrStartupTimeout.Error()},
		"aborted": {ConnParam{ORD: 1}, func(_ *rig, c *end, _ *peer) { c.qp.Abort() }, ErrClosed.Error()},
		"aborted, and the order has not come through": {ConnParam{ORD: 1}, func(_ *rig, c *end, p *peer) {
			c.qp.end.Unwanted.Store(true)
			p.closeSend()
		}, ErrPeerClosed.Error()},
	}, func(t *testing.T, r *rig, x sign) {
		c := r.newEnd(r.client, opts{ConnParam: x.conn})
		p := r.peerAccepts(c)
		p.expectFrame(mpa.Request)
		x.act(r, c, p)
		c.awaitClosed()
		require.ErrorContains(t, c.qp.Err(), x.want)
		require.Zero(t, r.client.StartupCounters())
		require.Empty(t, r.client.host.Live())
	})
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) { // nobody listens
		c := r.newEnd(r.client, connOpts(ConnParam{ORD: 1}))
		addr := map[bool]string{true: "127.0.0.1:1", false: "10.9.0.1:9999"}[r.kind == sockets]
		if err := c.qp.StartConnect(r.ctx, addr, c.conn); err != nil {
			require.ErrorIs(t, err, stack.ErrRefused)
		}
		c.expectClosedBy(stack.ErrRefused)
		require.Zero(t, r.client.StartupCounters())
	})
}

// A second try that is given up, or cannot be begun, ends the QueuePair with the reason.
func TestFallbackGivenUp(t *testing.T) {
	type stop struct {
		before, during func(r *rig, c *end)
	}
	nothing := func(*rig, *end) {}
	for name, x := range map[string]stop{
		"abort": {nothing, func(_ *rig, c *end) { c.qp.Abort() }},
		"close": {nothing, func(r *rig, _ *end) { require.NoError(r.t, r.client.Close(r.ctx)) }},
		"shut":  {func(r *rig, _ *end) { r.client.host.Shut() }, nil},
	} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				addr, next := r.peerAcceptsSeveral()
				c := r.newEnd(r.client, connOpts(ConnParam{ORD: 1}))
				require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
				p := next()
				p.expectFrame(mpa.Request)
				x.before(r, c)
				p.closeSend()
				if x.during != nil {
					q := next()
					q.expectFrame(mpa.Request)
					x.during(r, c)
					q.untilEnded()
				}
				c.expectClosedBy(ErrClosed)
				require.ErrorIs(t, c.qp.inService(r.ctx), ErrClosed)
				require.Empty(t, r.client.host.Live())
				require.Zero(t, r.client.slotsTaken())
			})
		})
	}
}

// fullAfterRx is the client's queue: whenever something has come, fill is called in the same turn.
type fullAfterRx struct {
	pmd.Queue
	fill func()
}

func (q *fullAfterRx) wrap(i int, inner pmd.Queue, _ *mem.Pool) pmd.Queue {
	if i == 0 {
		return inner
	}
	q.Queue = inner
	return q
}

func (q *fullAfterRx) Rx(bufs []mem.Buf) int {
	n := q.Queue.Rx(bufs)
	if n > 0 && q.fill != nil {
		q.fill()
	}
	return n
}

// A Poller whose control ring is full when the second try is due makes it wait, not fail; and the
// one that waits can be given up.
func TestFallbackWaitsForRoomInTheControlRing(t *testing.T) {
	for _, abort := range []bool{false, true} {
		full := &fullAfterRx{}
		r := newRig(t, turned, rigConfig{wrap: full.wrap})
		addr, next := r.peerAcceptsSeveral()
		c := r.newEnd(r.client, connOpts(ConnParam{ORD: 1}))
		require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
		p := next()
		p.expectFrame(mpa.Request)
		full.fill = func() { fillControl(t, r.hosts[1].poller) }
		p.closeSend()
		r.until("the end of the first", c.qp.end.Connection.Load().Gone.Given)
		full.fill = nil
		if abort {
			c.qp.end.Unwanted.Store(true) // as Abort does first
			select {
			case <-c.qp.Done(): // while nobody turns
			case <-r.ctx.Done():
				t.Fatal("it waits for ever")
			}
			require.ErrorIs(t, c.qp.Err(), ErrClosed)
			require.Empty(t, r.client.host.Live())
			continue
		}
		q := next()
		q.expectFrame(mpa.Request)
		q.write(unhex(t, hexRep+"4001 0000"))
		c.expectInService()
	}
}
