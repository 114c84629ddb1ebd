package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
)

// A Read that was begun when the peer closed its half, and had found no room in the last segment
// that could be sent, is one that was not sent: it and what was posted after it are flushed, and
// the connection ends in order. It was sent all the same, and waited for.
func TestReadBegunBeforeThePeersEnd(t *testing.T) {
	for _, half := range []bool{false, true} {
		r := newRig(t, turned, rigConfig{faults: true})
		c := r.newEnd(r.client, noMarkers(opts{ConnParam: ConnParam{ORD: 1, AllowHalfClosed: half}}))
		p := r.peerResponds(c)
		// Nothing is acknowledged.
		require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{Drop: 1}, fault.Faults{}))
		const writes = 10                                             // an initial window
		size := int(c.qp.end.Connection.Load().Transport.EMSS()) - 40 // leaves no room for a Read
		for i := range writes {
			c.post(c.write(c, uint64(i), 0, size))
		}
		c.post(c.readFrom(c.region, writes, 0, 8))
		c.post(c.write(c, writes+1, 0, 8))
		r.until("the Read begun", func() bool { return c.qp.engine.Sending() != 0 })
		require.Equal(t, OpRead, c.qp.engine.Sending())
		p.closeSend()
		c.expectState(Closing)
		require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{}, fault.Faults{}))
		p.skipToFIN()
		c.expectClosed()
		for i, cm := range c.await(writes + 2) {
			require.EqualValues(t, i, cm.ID)
			require.Equal(t, i >= writes, cm.Status == Flushed, "%+v", cm)
		}
	}
}
