package rnic

import (
	"testing"
	"time"

	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

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
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		c := r.newEnd(r.client,
			opts{ConnParam: ConnParam{Dialect: RFC6581, PeerToPeer: true, RTR: RTRWrite, IRD: 2, ORD: 1,
				NoMarkers: true, UserTimeout: time.Minute}})
		p := r.peerAccepts(c)
		r.refuseTimeout(c.qp.end.Connection.Load())
		p.play("< "+hexReq+"5002 0004 8002 8001", "> "+hexRep+"5002 0004 8001 8001",
			"< "+withCRC(t, "0016 41 47 00000000 00000002 00000001 00000000 20050000"))
		p.expectFIN()
		p.closeSend()
		c.expectClosedBy(unix.ENOPROTOOPT)
		require.ErrorIs(t, c.qp.inService(r.ctx), unix.ENOPROTOOPT)
		require.ErrorContains(t, c.qp.Err(), "ConnParam.UserTimeout 1m0s")
	})
}

// A Responder may send no FPDU before the Initiator's first, so no Terminate either: its Reply
// rejects, and Accept says why.
func TestSetupErrorOfTheResponder(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		p := r.peerDials()
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true, UserTimeout: time.Minute}})
		p.write(unhex(t, hexReq+"5002 0004 0002 0001"))
		req := r.request()
		r.refuseTimeout(req.connection)
		require.ErrorIs(t, req.Accept(r.ctx, s.qp, s.conn), unix.ENOPROTOOPT)
		p.play("< " + hexRep + "7002 0004 0001 0002")
		require.Equal(t, Closed, s.qp.State())
		p.closeSend()
		p.expectFIN()
	})
}

// culley-02 has nothing to say it with: either end resets the connection.
func TestSetupErrorWithoutFrames(t *testing.T) {
	over(t, both, rigConfig{listen: ListenOptions{Dialects: []Dialect{Culley02}}},
		func(t *testing.T, r *rig) {
			p := r.peerDials()
			s := r.newEnd(r.server, opts{ConnParam: ConnParam{UserTimeout: time.Minute}})
			req := r.request()
			r.refuseTimeout(req.connection)
			require.ErrorIs(t, req.Accept(r.ctx, s.qp, s.conn), unix.ENOPROTOOPT)
			p.untilEnded()
			require.Empty(t, p.octets())
			require.Equal(t, Closed, s.qp.State())
		})
}
