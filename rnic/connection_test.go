package rnic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// failure waits for the Listener's next report. The rig's has no OnFailure, so that reports stay
// in their queue.
func (r *rig) failure() (f ConnFailure) {
	r.t.Helper()
	r.until("a report of the listener", func() bool {
		select {
		case f = <-r.listener.failures:
			return true
		default:
			return false
		}
	})
	return f
}

// fire lets the connection's timer run out: over sockets by hand, in virtual time by waiting.
func (r *rig) fire(a *Adapter) {
	r.t.Helper()
	if r.kind == turned {
		r.pass(connect.RequestTimeout + time.Second)
		return
	}
	connections := a.host.Live()
	require.Len(r.t, connections, 1)
	s := connections[0].Transport.(*transport.KernelConn)
	require.NoError(r.t, s.Submit(func() {
		require.True(r.t, s.Timed(), "no timer runs")
		connections[0].Timer(0)
	}))
}

// A peer that connects and says nothing, or too little, is closed.
//
// req: D01-6.1-31, D01-6.1-35
func TestRequestTimeout(t *testing.T) {
	for name, b := range map[string][]byte{"nothing": nil,
		"one octet short": request(mpa.Frame{Rev: 1})[:19]} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				p := r.peerDials()
				if b != nil {
					p.write(b)
				}
				r.until("the connection at the server", func() bool {
					return len(r.server.host.Live()) == 1
				})
				if r.kind == turned {
					r.pass(connect.RequestTimeout - time.Second)
					require.NoError(t, p.ended(), "closed too early")
				}
				r.fire(r.server)
				require.ErrorIs(t, r.failure().Err, ErrStartupTimeout)
				p.expectReset()
			})
		})
	}
}

// A Responder that never replies fails the Initiator's Connect.
func TestReplyTimeout(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		addr, accept := r.peerListens()
		c := r.newEnd(r.client, opts{})
		require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
		p := accept()
		p.expectFrame(mpa.Request)
		r.fire(r.client)
		c.expectClosedBy(ErrStartupTimeout)
		p.expectReset()
	})
}

// A request that the ULP neither accepts nor rejects times out; to decide then is too late, and
// harmless.
func TestAcceptTimeout(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		p := r.peerDials()
		p.write(request(mpa.Frame{Rev: 1, CRC: true}))
		req := r.request()
		r.fire(r.server)
		require.ErrorIs(t, r.failure().Err, connect.ErrUndecided)
		p.expectReset()
		require.Empty(t, p.octets())
		s := r.newEnd(r.server, opts{})
		require.ErrorIs(t, req.Accept(r.ctx, s.qp, s.conn), connect.ErrUndecided)
		require.Equal(t, Closed, s.qp.State())
		require.ErrorIs(t, req.Reject(r.ctx, nil), connect.ErrUndecided)
	})
}

// A peer that never closes its half is cut off when nothing has moved for as long as TCP tries, or
// for the UserTimeout.
func TestPeerThatDoesNotClose(t *testing.T) {
	const short = 20 * time.Second
	for user, want := range map[time.Duration]time.Duration{0: connect.CloseTimeout, short: short} {
		r := newRig(t, turned, rigConfig{})
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{UserTimeout: user}})
		p, _ := r.peerConnects(s, false)
		s.qp.Disconnect()
		p.expectFIN()
		begin := r.time
		s.expectClosedBy(ErrLinger)
		took := time.Duration(r.time - begin)
		require.GreaterOrEqual(t, took, want)
		require.LessOrEqual(t, took, 2*want+time.Second, "looked at once in that time")
	}
}

// The timer that cuts it off is the same over kernel sockets.
func TestLingerTimer(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		p, _ := r.peerConnects(s, false)
		s.qp.Disconnect()
		p.expectFIN()
		require.Equal(t, Closing, s.qp.State())
		for range 2 { // over sockets the FIN's acknowledgement was progress
			if r.kind == turned {
				r.pass(connect.CloseTimeout)
				continue
			}
			// the first may have ended it, and the end is on its way
			for _, c := range r.server.host.Live() {
				k := c.Transport.(*transport.KernelConn)
				require.NoError(t, k.Submit(func() {
					if k.Timed() {
						c.Timer(0)
					}
				}))
			}
		}
		s.expectClosedBy(ErrLinger)
	})
}

// A peer whose half still moves is not cut off while we wait for its end.
//
// req: DDP-8.2.1-6, D01-6.2-1
func TestLingerWaitsForMovingPeer(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s := r.newEnd(r.server, opts{})
	p, _ := r.peerConnects(s, false)
	s.qp.Disconnect()
	p.expectFIN()
	for i := range 10 {
		r.pass(connect.CloseTimeout * 2 / 3)
		p.inject(writeFPDU(s.region.STag(), uint64(i), []byte{byte(i + 1)}))
	}
	p.closeSend()
	s.expectClosed()
	require.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10}, s.region.Bytes()[:10])
}

// A connection that ends in the middle of a frame ends in an error, one that ends between frames
// does not.
//
// req: D01-3.1-1, D01-6.2-2, DDP-5-11
func TestPeerCloses(t *testing.T) {
	for _, tc := range []struct {
		name string
		cut  int // octets of the second frame that are sent
		end  func(p *peer)
		want error
	}{
		{"between frames", 0, func(p *peer) { p.closeSend() }, nil},
		{"after one octet of a frame", 1, func(p *peer) { p.closeSend() }, ErrPeerClosed},
		{"one octet before a frame's end", 23, func(p *peer) { p.closeSend() }, ErrPeerClosed},
		{"reset between frames", 0, func(p *peer) { p.reset() }, stack.ErrReset},
		{"reset in a frame", 10, func(p *peer) { p.reset() }, stack.ErrReset},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{})
				s.postRecv(s.recvAt(1, 0, 10))
				p, _ := r.peerConnects(s, false)
				p.inject(writeFPDU(s.region.STag(), 0, "whole"))
				if b := p.frame(writeFPDU(s.region.STag(), 8, "cut")); tc.cut > 0 {
					require.Len(t, b, 24)
					p.write(b[:tc.cut])
				}
				r.until("the first frame", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
				if r.kind == turned {
					r.pass(time.Millisecond)
				}
				tc.end(p)
				s.awaitClosed()
				require.Equal(t, "whole\x00", string(s.region.Bytes()[:6]))
				require.Equal(t, make([]byte, 3), s.region.Bytes()[8:11])
				s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
				if tc.want == nil {
					require.NoError(t, s.qp.Err())
					return
				}
				require.ErrorIs(t, s.qp.Err(), tc.want)
				f := r.failure()
				require.True(t, f.Started)
				require.ErrorIs(t, f.Err, tc.want)
			})
		})
	}
}

// A peer that goes away during start-up is an error of Connect, and a report at the Listener.
func TestPeerClosesDuringStartup(t *testing.T) {
	t.Run("initiator", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			addr, accept := r.peerListens()
			c := r.newEnd(r.client, opts{})
			require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
			p := accept()
			p.expectFrame(mpa.Request)
			p.closeSend()
			c.expectClosedBy(ErrPeerClosed)
		})
	})
	for name, b := range map[string][]byte{"responder": nil,
		"responder decides": request(mpa.Frame{Rev: 1})} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				p := r.peerDials()
				if b != nil {
					p.write(b)
					r.request()
				}
				p.closeSend()
				require.ErrorIs(t, r.failure().Err, ErrPeerClosed)
			})
		})
	}
}

// A path that carries nothing for most of a minute, while our half is being closed, loses nothing:
// not what was posted, nor what the peer has yet to say. TCP goes on trying at either end, at
// longer and longer intervals, and an end whose peer has nothing to acknowledge sees
// none of it.
//
// req: 9293-SHLD-11, DDP-8.2.1-1
func TestOutageWhileClosing(t *testing.T) {
	cut := fault.Faults{Drop: 1}
	for name, mine := range map[string]bool{"our octets are lost": true, "the peer's are": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{faults: true})
			s, c := r.connect(opts{}, opts{})
			r.exchange(s, c)
			from, to, rx, tx := c, s, cut, fault.Faults{}
			if mine {
				from, to, rx, tx = s, c, tx, rx
			}
			require.NoError(t, r.hosts[0].faulty.Set(rx, tx))
			from.post(from.write(to, 1, 0, 100))
			s.qp.Disconnect()
			r.pass(45 * time.Second)
			require.False(t, isDone(s.qp))
			require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{}, fault.Faults{}))
			s.awaitClosed()
			c.awaitClosed()
			require.NoError(t, s.qp.Err())
			require.NoError(t, c.qp.Err())
			require.Equal(t, from.source.Bytes()[:100], to.region.Bytes()[:100])
		})
	}
}

// A start-up frame that is cut leaves to its last octet before anything else does.
func TestStartupFrameLeavesWhole(t *testing.T) {
	frame := randomBytes(3, 21)
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client, opts{ConnParam: ConnParam{NoMarkers: true}})
	l := r.unpulled(c, frame)
	defer l.Reader.Close()
	c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 10)})
	var got []byte
	for range 2 {
		dst := make([]byte, 20)
		got = append(got, dst[:pullOne(l, dst)]...)
	}
	require.Equal(t, frame, got)
}
