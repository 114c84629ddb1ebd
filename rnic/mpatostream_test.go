package rnic

import (
	"context"
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// deadline bounds what a returned connection may wait.
func (r *rig) deadline(conns ...net.Conn) {
	r.t.Helper()
	for _, c := range conns {
		require.NoError(r.t, c.SetDeadline(time.Now().Add(patience)))
		r.t.Cleanup(func() { _ = c.Close() }) // the test may have closed it, or given it up
	}
}

// rejectedConn waits for the Initiator's rejection and returns its connection.
func (r *rig) rejectedConn(c *end) net.Conn {
	r.t.Helper()
	c.awaitClosed()
	no := errorAs[*RejectedError](r.t, c.qp.Err())
	require.Equal(r.t, "not now", string(no.PrivateData))
	require.NotNil(r.t, no.Conn)
	return no.Conn
}

// A rejection leaves the TCP connection to both ULPs, in streaming mode: they talk, and may even
// try MPA again, on it.
//
// req: D01-6.1-17, D01-6.1-18, D01-6.1-23, D01-6.1-15, D01-6.1-28
func TestRejectedConnectionIsAStream(t *testing.T) {
	for _, d := range []Dialect{RDDP01, RFC5044, RTR, RFC6581} {
		t.Run(d.String(), func(t *testing.T) {
			over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
				c := r.newEnd(r.client, connOpts(ConnParam{Dialect: d, KeepRejected: true}))
				sc, cc := r.streams()
				r.chat(sc, cc, 5)
				l := must(r.server.respond(r.ctx, sc, helloAck, ListenOptions{}))
				r.hear(cc, helloAck)
				require.NoError(t, c.qp.StartConnectStream(r.ctx, cc, c.with([]byte("please"))))
				req := must(l.nextRequest(r.ctx))
				sc = must(req.RejectStream(r.ctx, []byte("not now")))
				cc = r.rejectedConn(c)
				r.deadline(sc, cc)
				require.Zero(t, len(r.client.host.Live())+len(r.server.host.Live()))
				r.chat(sc, cc, 6)
				r.chat(cc, sc, 7)

				s2, c2 := r.newEnd(r.server, opts{}), r.newEnd(r.client, connOpts(ConnParam{Dialect: d}))
				r.delayed(s2, c2, sc, cc, []byte("again"))
				r.works(s2, c2)
				r.close(s2, c2)
				r.noBufLost()
			})
		})
	}
}

// There is no stream without a Reply, with too much to say in it, or when the connection is gone.
func TestRejectStreamRefuses(t *testing.T) {
	over(t, both, rigConfig{listen: ListenOptions{Dialects: []Dialect{Culley02}}},
		func(t *testing.T, r *rig) {
			r.peerDials()
			req := r.request()
			_, err := req.RejectStream(r.ctx, nil)
			require.ErrorIs(t, err, ErrState)
			require.NoError(t, req.Reject(r.ctx, nil))
		})
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		p := r.peerDials()
		p.write(request(mpa.Frame{Rev: 1, CRC: true}))
		req := r.request()
		_, err := req.RejectStream(r.ctx, make([]byte, 513))
		require.ErrorContains(t, err, "513 octets")
		p.reset()
		r.until("the reset", func() bool { return len(r.server.host.Live()) == 0 })
		_, err = req.RejectStream(r.ctx, nil)
		require.ErrorIs(t, err, stack.ErrReset)
	})
}

// A start-up frame and octets of the ULP after it, in one segment that was refused, may come
// again cut anywhere: by a middlebox, or a peer that wishes us ill. The stream begins where it
// begins, and what ends it then does no harm.
func TestReturnedStreamCutAnew(t *testing.T) {
	const after = "EHLO"
	roles := map[string]func(h *segmentRig) (c *forged, returned func() net.Conn){
		"Responder": func(h *segmentRig) (*forged, func() net.Conn) {
			c := h.open(3000, 1460)
			c.stream = append(request(mpa.Frame{Rev: 1, CRC: true}), after...)
			return c, func() net.Conn {
				req := h.listener.Poll()
				require.NotNil(h.t, req)
				nc := must(req.RejectStream(h.t.Context(), nil))
				return nc
			}
		},
		"Initiator": func(h *segmentRig) (*forged, func() net.Conn) {
			c := h.answerer(3000)
			s := h.newEnd(connOpts(ConnParam{KeepRejected: true}))
			require.NoError(h.t, s.qp.StartConnect(h.t.Context(), "10.9.0.2:3000", s.conn))
			h.turns(6, time.Microsecond)
			f := mpa.Frame{Kind: mpa.Reply, Rev: 1, CRC: true, Reject: true}
			c.stream = append(f.Append(nil), after...)
			return c, func() net.Conn {
				no := errorAs[*RejectedError](h.t, s.qp.Err())
				return no.Conn
			}
		},
	}
	for role, enter := range roles {
		for _, reset := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/reset=%v", role, reset), func(t *testing.T) {
				h := newSegmentRig(t, segmentRigConfig{bufs: 512, connsMax: 8})
				c, returned := enter(h)
				require.True(t, c.synced)
				c.sendOctets(0, len(c.stream), 0)
				h.turns(4, time.Microsecond)
				nc := returned()
				h.turns(3, time.Microsecond)
				require.Zero(t, c.place(), "the segment was refused")
				c.sendOctets(0, 10, 0)
				h.turns(2, time.Microsecond)
				require.NoError(t, nc.SetDeadline(time.Now().Add(patience)))
				if reset {
					h.send(c, c.seq(10), c.next, tcp.RST|tcp.ACK, 65535, c.options(), nil)
					h.turns(3, time.Microsecond)
					_, err := nc.Read(make([]byte, 1))
					require.Error(t, err)
					require.NotErrorIs(t, err, io.EOF)
					return
				}
				c.sendOctets(10, len(c.stream), tcp.FIN)
				h.turns(2, time.Microsecond)
				got := must(io.ReadAll(nc))
				require.Equal(t, after, string(got))
			})
		}
	}
}

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
	s := h.newEnd(connOpts(ConnParam{KeepRejected: true}))
	c := h.dialForged(s)
	require.Len(t, h.adapter.host.Live(), 1)
	f := mpa.Frame{Kind: mpa.Reply, Rev: 1, CRC: true, Reject: true}
	c.stream = f.Append(nil)
	c.sendOctets(0, len(c.stream), tcp.FIN)
	h.turns(4, time.Microsecond)
	require.True(t, isDone(s.qp))
	require.Empty(t, h.adapter.host.Live())
	re := errorAs[*RejectedError](t, s.qp.Err())
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
