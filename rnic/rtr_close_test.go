package rnic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// A Responder that closes before the Initiator's Rtr frame or RTR message has come waits for the
// peer's end as any that closes: the frame that is owed neither shortens that, nor, when it comes
// after all, takes its bound away.
func TestCloseWhileRTRIsOwed(t *testing.T) {
	for _, late := range []bool{false, true} {
		r := newRig(t, turned, rigConfig{})
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
		p := r.peerDials()
		p.write(unhex(t, hexReq+"5001 0000"))
		require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
		p.expectFrame(mpa.Reply)
		s.qp.Disconnect()
		p.untilEnded()
		if late {
			p.write(unhex(t, hexRtr+"4001 0000"))
		}
		r.pass(3 * connect.CloseTimeout)
		require.True(t, isDone(s.qp), "late: %v", late)
		require.ErrorIs(t, s.qp.Err(), ErrLinger)
	}
}

// A QueuePair that is closed between the Reply and the next segment, as another goroutine may do
// over a kernel socket, still owes its RTR message: it goes out, and the FIN after it.
func TestCloseAfterAnOwedRTR(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512, connsMax: 8})
	s := h.newEnd(
		opts{ConnParam: ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: RTRWrite, NoMarkers: true}})
	c := h.dialForged(s)
	c.stream = unhex(t, hexRep+"5002 0004 8000 8000")
	l := s.qp.end.Connection.Load()
	require.Equal(t, stack.Taken, arriveOne(l, 0, mem.NoBuf, c.stream))
	require.Equal(t, RTS, s.qp.State(), "%v", s.qp.Err())
	l.Shutdown()
	h.turns(2, time.Microsecond)
	require.Equal(t, unhex(t, withCRC(t, "000e c1 40 00000001 0000000000000000")),
		heard(t, c, mpa.Request))
	require.Equal(t, c.irs+1+tcp.Seq(len(c.in))+1, c.next, "a FIN after it")
	c.sendOctets(0, len(c.stream), tcp.FIN)
	h.turns(4, time.Microsecond)
	require.True(t, isDone(s.qp))
	require.NoError(t, s.qp.Err())
}
