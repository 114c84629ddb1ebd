package rnic

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/tcp"
)

// The peer-to-peer proposal, octet for octet: the Responder speaks after the Rtr frame, and not
// before; FPDUs and markers of the Initiator's half are counted from after it, even when they
// come with it.
//
// req: P2P-1, P2P-2, P2P-4, P2P-5, P2P-9, P2P-11, P2P-12, P2P-13, P2P-14
func TestReadyToReceive(t *testing.T) {
	t.Run("responder", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: r.kind != turned}})
			markers := r.kind == turned
			p := r.peerDials()
			s.postRecv(s.recvAt(1, 0, 10))
			p.play("> " + hexReq + "5001 0000")
			req := r.request()
			require.Equal(t, RTR, req.Dialect())
			require.True(t, req.PeerToPeer())
			require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
			s.post(WorkRequest{Op: OpSend, Local: s.source.Slice(0, 0)})
			reply, mark := "< "+hexRep+"5001 0000", ""
			if markers {
				reply, mark = "< "+hexRep+"d001 0000", "00000000 "
			}
			p.play(reply)
			if r.kind == turned {
				r.pass(time.Second)
				require.Len(t, p.octets(), 20, "the Responder waits")
			}
			write := withCRC(t, mark+fmt.Sprintf("0010 c1 40 %08x 0000000000000000 abcd",
				uint32(s.region.STag()))+"0000")
			p.write(unhex(t, hexRtr+"4001 0003 aabbcc"+write))
			p.play(reply, "< "+withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000"))
			r.until("the Write", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
			s.expectNoCompletion() // of start-up's
			require.EqualValues(t, 0, r.stats(s.qp).MessagesRecvd)
		})
	})
	t.Run("initiator", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			c := r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: RTR, NoMarkers: true, NoCRC: true}})
			p := r.peerAccepts(c)
			p.play("< "+hexReq+"1001 0000", "> "+hexRep+"5001 0000")
			c.expectInService()
			require.True(t, c.qp.Startup().PeerToPeer)
			c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 0)})
			p.play("< "+hexReq+"1001 0000", "< "+hexRtr+"4001 0000",
				"< "+withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000"))
		})
	})
	t.Run("no S in the Reply", func(t *testing.T) { // the order of version 1
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			c := r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: RTR, NoMarkers: true}})
			p := r.peerAccepts(c)
			p.play("< "+hexReq+"5001 0000", "> "+hexRep+"4001 0000")
			c.expectInService()
			require.Equal(t, Startup{Dialect: RFC5044, Version: 1}, c.qp.Startup())
			if r.kind == turned {
				r.pass(time.Second)
			}
			c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 0)})
			p.play("< "+hexReq+"5001 0000",
				"< "+withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000"))
		})
	})
	t.Run("S in the Reply alone", func(t *testing.T) { // DECISIONS 3
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			c := r.newEnd(r.client, opts{ConnParam: ConnParam{NoMarkers: true}})
			p := r.peerAccepts(c)
			p.play("< "+hexReq+"4001 0000", "> "+hexRep+"5001 0000")
			c.expectInService()
			require.Equal(t, StartupCounters{UnaskedS: 1}, r.client.StartupCounters())
			c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 0)})
			p.play("< "+hexReq+"4001 0000",
				"< "+withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000"))
		})
	})
	t.Run("another frame", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
			p := r.peerDials()
			p.play("> " + hexReq + "5001 0000")
			require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
			p.play("< "+hexRep+"5001 0000", "> "+hexReq+"5001 0000")
			s.expectClosedBy(mpa.ErrKey)
			p.expectReset()
		})
	})
}

// A Ready-to-Receive frame of another revision than the Reply's ends the connection, as a wrong Key
// does: it was not meant, and where FPDUs begin is not known.
//
// req: 5044-7.1.1-5, P2P-17
func TestReadyFrameOfAnotherRevision(t *testing.T) {
	for _, rev := range []int{0, 2, 0x40} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
			p := r.peerDials()
			p.write(unhex(t, hexReq+"5001 0000"))
			require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
			p.expectFrame(mpa.Reply)
			p.write(unhex(t, fmt.Sprintf("%s40%02x 0000", hexRtr, rev)))
			s.expectClosedBy(mpa.ErrReadyRev)
			p.expectReset()
		})
	}
}

// A Responder that may not speak yet has nothing after its Reply, whatever was posted: the
// Reply's last segment is pushed.
func TestReplyIsPushed(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512, connsMax: 8})
	s := h.newEnd(opts{})
	c, req := h.requestAtAClosedWindow()
	require.NoError(
		t,
		req.Accept(t.Context(), s.qp, ConnParam{NoMarkers: true, PrivateData: make([]byte, longPrivate)}))
	s.post(WorkRequest{Op: OpSend})
	h.turns(2, time.Microsecond)
	require.Empty(t, c.in)
	for range 10 {
		c.sendOctets(len(c.stream), len(c.stream), 0)
		h.turn(time.Microsecond)
	}
	require.Empty(t, heard(t, c, mpa.Reply))
	require.NotZero(t, c.flags&tcp.PSH, "PSH on the Reply")
	s.qp.Abort()
	h.turns(4, time.Microsecond)
	require.True(t, isDone(s.qp))
}

// A peer-to-peer Initiator that owes its Rtr frame, or RTR message, is not waited for without end.
//
// req: D01-6.1-35
func TestRTRTimeout(t *testing.T) {
	for name, frame := range map[string]string{"rtr": hexReq + "5001 0000",
		"rfc6581": hexReq + "5002 0004 8001 c001"} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{})
				p := r.peerDials()
				p.write(unhex(t, frame))
				require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
				r.fire(r.server)
				s.expectClosedBy(ErrStartupTimeout)
			})
		})
	}
	// One that owes nothing may take its time, and so may one that has paid.
	r := newRig(t, turned, rigConfig{})
	s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
	p := r.peerDials()
	p.write(unhex(t, hexReq+"5001 0000"))
	require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
	p.write(unhex(t, hexRtr+"4001 0000"))
	r.pass(time.Minute)
	require.Equal(t, RTS, s.qp.State())
	s2 := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
	p2 := r.peerDials()
	p2.write(unhex(t, hexReq+"4001 0000"))
	require.NoError(t, r.request().Accept(r.ctx, s2.qp, s2.conn))
	s3 := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
	p3 := r.peerDials()
	p3.write(unhex(t, hexReq+"5002 0004 8001 c001"))
	require.NoError(t, r.request().Accept(r.ctx, s3.qp, s3.conn))
	p3.write(unhex(t, withCRC(t, "000e c1 40 00000001 0000000000000000")))
	r.pass(time.Minute)
	require.Equal(t, RTS, s2.qp.State())
	require.Equal(t, RTS, s3.qp.State())
	p.reset()
	p2.reset()
	p3.reset()
}
