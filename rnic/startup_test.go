package rnic

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
)

// stats asks for a QueuePair's counters: over sockets they are read under the lock of the goroutine
// that places octets.
func (r *rig) stats(q *QueuePair) Stats {
	r.t.Helper()
	st := must(q.Stats(r.ctx))
	return st
}

// Markers are in a direction when, and only when, its receiver asked for them.
//
// req: 5044-7.1.1-2, D01-6.1.1-6, D01-6.1.1-7, D01-5.1-1, D01-5.1-9, D01-6.1-29
func TestMarkersByDirection(t *testing.T) {
	for _, theirs := range []bool{false, true} {
		for _, ours := range []bool{false, true} {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, connOpts(ConnParam{NoMarkers: !ours}))
				p, f := r.peerConnects(s, theirs)
				require.Equal(t, ours && r.kind != sockets, f.Markers, "M of the Reply")
				payload := randomBytes(3, 1200)
				p.inject(writeFPDU(s.region.STag(), 0, payload)) // with markers as the Reply asks
				r.until("the Write in memory", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
				require.Equal(t, payload, s.region.Bytes()[:1200])

				s.post(s.sendQuietly(0, 20))
				want := 2 + ddp.UntaggedLen + 20 + 4
				if theirs {
					want += mpa.MarkerLen
				}
				r.until("the Send's FPDU", func() bool { return len(p.octets()) >= p.at+want })
				got := p.octets()[p.at:]
				require.Len(t, got, want)
				if theirs {
					require.Equal(t, []byte{0, 0, 0, 0}, got[:4], "the first marker")
					got = got[4:]
				}
				require.Equal(t, []byte{0, ddp.UntaggedLen + 20}, got[:2], "ULPDU_Length")
			})
		}
	}
}

// StartupOver returns when the Initiator's first FPDU has come, or its RTR message, or the
// connection's end.
func TestStartupOver(t *testing.T) {
	probe, cancel := context.WithCancel(context.Background())
	cancel()
	r, s, c := connected(t, opts{}, connOpts(ConnParam{Dialect: RFC6581, PeerToPeer: true}))
	r.until("the RTR message", func() bool { return s.qp.StartupOver(probe) == nil })
	require.NoError(t, c.qp.StartupOver(probe))

	s, c = r.connect(opts{}, opts{})
	require.ErrorIs(t, s.qp.StartupOver(probe), context.Canceled)
	s.postRecv(s.recvAt(1, 0, 10))
	c.post(WorkRequest{Op: OpSend})
	r.until("the first FPDU", func() bool { return s.qp.StartupOver(probe) == nil })

	s, c = r.connect(opts{}, opts{})
	c.qp.Abort()
	r.until("the end", func() bool { return s.qp.State() == Closed })
	require.ErrorIs(t, s.qp.StartupOver(probe), s.qp.Err())
}
