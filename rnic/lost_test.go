package rnic

import (
	"errors"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// How a connection ended is told apart, in the QueuePair's error and in the Listener's report,
// and each end but a graceful one is MPA's error 1. What was posted comes back in each case. An
// invalid start-up frame, error 4, ends the same way.
//
// req: 9293-MUST-12, C02-5.1-1, D01-3.1-1, D01-7-1, C02-9-1, D01-7-4, C02-9-4, D01-7-8, 5044-8-1
// req: D01-3.2-13, C02-5.2-13
func TestEndsAreToldApart(t *testing.T) {
	for _, tc := range []struct {
		name string
		end  func(r *rig, p *peer)
		want error
		code mpa.ErrorCode // 0: an end in order
	}{
		{"FIN", func(_ *rig, p *peer) { p.closeSend() }, nil, 0},
		{"FIN within a frame", func(_ *rig, p *peer) {
			p.write([]byte{0})
			p.closeSend()
		}, ErrPeerClosed, mpa.ErrConnection},
		{"RST", func(_ *rig, p *peer) { p.reset() }, stack.ErrReset, mpa.ErrConnection},
		{"silence", func(r *rig, p *peer) {
			require.NoError(r.t, r.hosts[0].faulty.Set(fault.Faults{Drop: 1}, fault.Faults{Drop: 1}))
		}, stack.ErrTimeout, mpa.ErrConnection},
	} {
		t.Run(tc.name, func(t *testing.T) {
			kinds := both
			if tc.want == stack.ErrTimeout {
				kinds = []kind{turned} // the kernel's takes 100 s
			}
			over(t, kinds, rigConfig{faults: true}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
				s.postRecv(s.recvAt(1, 0, 10))
				p, _ := r.peerConnects(s, false)
				p.inject(writeFPDU(s.region.STag(), 0, "x"))
				r.until("a frame", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
				tc.end(r, p)
				if tc.want == stack.ErrTimeout {
					s.post(WorkRequest{Op: OpSend, ID: 2, Local: s.source.Slice(0, 10)})
				}
				s.awaitClosed()
				require.Equal(t, Closed, s.qp.State())
				s.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
				if tc.want == nil {
					require.NoError(t, s.qp.Err())
					require.Empty(t, r.listener.failures)
					return
				}
				for _, err := range []error{s.qp.Err(), r.failure().Err} {
					require.ErrorIs(t, err, tc.want)
					require.ErrorContains(t, err, tc.want.Error())
					for _, other := range []error{ErrPeerClosed, stack.ErrReset, stack.ErrTimeout,
						stack.ErrAborted} {
						require.Equal(t, other == tc.want, errors.Is(err, other), "%v", other)
					}
					var me *mpa.Error
					require.ErrorAs(t, err, &me)
					require.Equal(t, tc.code, me.Code)
				}
			})
		})
	}
	t.Run("start-up frame", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			addr, accept := r.peerListens()
			c := r.newEnd(r.client, opts{})
			c.postRecv(c.recvAt(1, 0, 10))
			require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
			accept().write([]byte("no Reply"))
			c.awaitClosed()
			var me *mpa.Error
			require.ErrorAs(t, c.qp.Err(), &me)
			require.Equal(t, mpa.ErrStartup, me.Code)
			require.Equal(t, Closed, c.qp.State())
			c.expectCompletions(Completion{ID: 1, Op: OpRecv, Status: Flushed})
		})
	})
}
