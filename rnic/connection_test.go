package rnic

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/stack"
)

// failure waits for the Listener's next report. The rig's has no OnFailure, so that reports stay
// in their queue.
func (r *rig) failure() ConnFailure {
	r.t.Helper()
	return soon(&r.driver, r.listener.failures)
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
	require.NoError(r.t, connections[0].Transport.Submit(func() { connections[0].Timer(0) }))
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
			r.hosts[0].faults(rx, tx)
			from.post(from.write(to, 1, 0, 100))
			s.qp.Disconnect()
			r.pass(45 * time.Second)
			require.False(t, isDone(s.qp))
			r.hosts[0].faults(fault.Faults{}, fault.Faults{})
			s.expectClosed()
			c.expectClosed()
			require.Equal(t, from.source.Bytes()[:100], to.region.Bytes()[:100])
		})
	}
}

// How a connection ended is told apart, in the QueuePair's error and in the Listener's report, and
// each end but a graceful one, between frames, is MPA's error 1. What was posted comes back in each
// case, and of a frame that was cut nothing is placed. An invalid start-up frame, error 4, ends the
// same way.
//
// req: 9293-MUST-12, C02-5.1-1, D01-3.1-1, D01-7-1, C02-9-1, D01-7-4, C02-9-4, D01-7-8, 5044-8-1
// req: D01-3.2-13, C02-5.2-13, D01-6.2-2, DDP-5-11
func TestEndsAreToldApart(t *testing.T) {
	fin := func(_ *rig, _ *end, p *peer) { p.closeSend() }
	reset := func(_ *rig, _ *end, p *peer) { p.reset() }
	for name, tc := range map[string]struct {
		cut  int // octets of the second frame that are sent
		end  func(r *rig, s *end, p *peer)
		want error
	}{
		"FIN": {0, fin, nil}, "RST": {0, reset, stack.ErrReset},
		"FIN after one octet of a frame":         {1, fin, ErrPeerClosed},
		"FIN one octet before the frame is over": {23, fin, ErrPeerClosed},
		"RST within a frame":                     {10, reset, stack.ErrReset},
		"silence": {0, func(r *rig, s *end, p *peer) {
			r.hosts[0].faults(fault.Faults{Drop: 1}, fault.Faults{Drop: 1})
			s.post(WorkRequest{Op: OpSend, ID: 2, Local: s.source.Slice(0, 10)})
		}, stack.ErrTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			kinds := both
			if tc.want == stack.ErrTimeout {
				kinds = []kind{turned} // the kernel's takes 100 s
			}
			over(t, kinds, rigConfig{faults: true}, func(t *testing.T, r *rig) {
				s, p := r.served(unmarked)
				s.postRecv(s.recvAt(1, 0, 10))
				p.inject(writeFPDU(s.region.STag(), 0, "whole"))
				if tc.cut > 0 {
					p.write(p.frame(writeFPDU(s.region.STag(), 8, "cut"))[:tc.cut])
				}
				r.until("a frame", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
				tc.end(r, s, p)
				s.awaitClosed()
				require.Equal(t, Closed, s.qp.State())
				require.Equal(t, "whole\x00\x00\x00\x00\x00\x00", string(s.region.Bytes()[:11]))
				s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
				if tc.want == nil {
					require.NoError(t, s.qp.Err())
					require.Empty(t, r.listener.failures)
					return
				}
				f := r.failure()
				require.True(t, f.Started)
				for _, err := range []error{s.qp.Err(), f.Err} {
					require.ErrorContains(t, err, tc.want.Error())
					for _, other := range []error{ErrPeerClosed, stack.ErrReset, stack.ErrTimeout,
						stack.ErrAborted} {
						require.Equal(t, other == tc.want, errors.Is(err, other), "%v", other)
					}
					require.Equal(t, mpa.ErrConnection, errorAs[*mpa.Error](t, err).Code)
				}
			})
		})
	}
	t.Run("start-up frame", func(t *testing.T) {
		r := newRig(t, turned, rigConfig{})
		c := r.newEnd(r.client, opts{})
		c.postRecv(c.recvAt(1, 0, 10))
		r.peerAccepts(c).write([]byte("no Reply"))
		c.awaitClosed()
		c.expectMPAError(mpa.ErrStartup)
		require.Equal(t, Closed, c.qp.State())
		c.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
	})
}
