package rnic

import (
	"context"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/tcp"
)

// dialForged has e dial a forged peer.
func (h *segmentRig) dialForged(e *end) *forged {
	h.t.Helper()
	c := h.answerer(3000)
	require.NoError(h.t, e.qp.StartConnect(h.t.Context(), "10.9.0.2:3000", e.conn))
	h.turns(6, time.Microsecond)
	require.True(h.t, c.synced)
	return c
}

// A FIN that comes with the rejecting Reply, before the connection is a stream again, is the end
// of that stream; and the Adapter's connections are one fewer.
//
// req: D01-6.1-23
func TestFINWithTheRejection(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512, connsMax: 8})
	s := h.newEnd(opts{ConnParam: ConnParam{KeepRejected: true}})
	c := h.dialForged(s)
	require.Len(t, h.adapter.host.Live(), 1)
	f := mpa.Frame{Kind: mpa.Reply, Rev: 1, CRC: true, Reject: true}
	c.stream = f.Append(nil)
	c.sendOctets(0, len(c.stream), tcp.FIN)
	h.turns(4, time.Microsecond)
	require.True(t, isDone(s.qp))
	require.Empty(t, h.adapter.host.Live())
	var re *RejectedError
	require.ErrorAs(t, s.qp.Err(), &re)
	require.NotNil(t, re.Conn)
	require.NoError(t, re.Conn.SetReadDeadline(time.Now().Add(patience)))
	_, err := re.Conn.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	h.closeStream(re.Conn)
}

// closeStream resets a stream without waiting for its peer.
func (h *segmentRig) closeStream(nc io.Closer) {
	require.NoError(h.t, nc.(interface{ SetLinger(int) error }).SetLinger(0))
	require.NoError(h.t, nc.Close())
	h.turns(4, time.Microsecond)
}

// A Responder that rejects to keep the connection waits for room for all of its Reply as long as
// a closing one waits for its peer, and no longer.
func TestRejectStreamIntoAClosedWindow(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512, connsMax: 8})
	c, req := h.requestAtAClosedWindow()
	begin := h.time
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	h.adapter.host.Manual = func() {
		if h.turn(10 * time.Millisecond); h.time-begin > int64(3*connect.LingerTimeout) {
			cancel()
		}
	}
	_, err := req.RejectStream(ctx, make([]byte, longPrivate))
	require.ErrorIs(t, err, ErrLinger)
	require.InDelta(t, connect.LingerTimeout, h.time-begin, float64(time.Second))
	require.True(t, c.peerReset)
	require.Empty(t, h.adapter.host.Live())
}

// longPrivate octets of private data take several segments of the peer that
// requestAtAClosedWindow makes.
const longPrivate = 300

// requestAtAClosedWindow is a Request of a peer that has no room for the Reply.
func (h *segmentRig) requestAtAClosedWindow() (*forged, *ConnRequest) {
	h.t.Helper()
	c := h.open(3000, 100)
	require.True(h.t, c.synced)
	c.stream = request(mpa.Frame{Rev: 1, CRC: true})
	h.send(c, c.seq(0), c.next, tcp.ACK, 0, c.options(), c.stream[:10])
	h.turn(time.Microsecond)
	h.send(c, c.seq(10), c.next, tcp.ACK, 0, c.options(), c.stream[10:])
	h.turn(time.Microsecond)
	req := h.listener.Poll()
	require.NotNil(h.t, req)
	return c, req
}
