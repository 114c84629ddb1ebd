package rnic

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/rnic/internal/transport"
)

// What real peers do at start-up, each as a transcript: Linux siw's from captures
// (mpa/testdata/captures), those of adapters as they are known. The peer's octets are
// played by a raw connection; ours must be these.

// Linux siw as Initiator: Rev 2 with the S bit and no CRC, client-server; then a Send.
// siw as Responder: follows the Request.
//
// req: 6581-9.3-2, 6581-10-1
func TestProfileSiw(t *testing.T) {
	// of rping.pcap, shortened to its form
	const firstSend = "0022 41 43 00000000 00000000 00000001 00000000 000055f8ab8d5000 " +
		"6d34000000004000"
	t.Run("initiator, client-server", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true, NoCRC: true, IRD: 1, ORD: 1}})
			p := r.peerDials()
			s.postRecv(s.recvAt(1, 0, 100))
			p.play("> " + hexReq + "1002 0004 0001 0001")
			require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
			p.play("< "+hexRep+"1002 0004 0001 0001", "> "+firstSend+"00000000")
			s.expectCompletions(Completion{ID: 1, Op: OpRecv, Len: 16})
			require.Equal(t, Startup{Dialect: RFC6581, Version: 1, Enhanced: true, IRD: 1, ORD: 1,
				PeerIRD: 1, PeerORD: 1}, s.qp.Startup())
		})
	})
	t.Run("initiator, peer-to-peer with CRC", func(t *testing.T) { // rping_crc_p2p.pcap, frames 4 to 9
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server,
				opts{ConnParam: ConnParam{NoMarkers: true, RTR: RTRWrite, IRD: 1, ORD: 1}})
			p := r.peerDials()
			s.postRecv(s.recvAt(1, 0, 100))
			p.play("> " + hexReq + "5002 0004 8001 c001")
			require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
			p.play("< "+hexRep+"5002 0004 8001 8001", "> 000ec1400000000100000000 00000000ebd34c5f",
				"> 0022414300000000000000000000000100000000000055f0dd255ca065d2a40000000bb8b9a36c36")
			s.expectCompletions(Completion{ID: 1, Op: OpRecv, Len: 16})
		})
	})
	t.Run("initiator of Rev 1", func(t *testing.T) { // neg_srvstd_cliv1.pcap
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true, NoCRC: true}})
			p := r.peerDials()
			p.play("> " + hexReq + "0001 0000")
			require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
			p.play("< " + hexRep + "0001 0000")
		})
	})
	// the same capture from the other side: our octets are siw's
	t.Run("responder, peer-to-peer", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			c := r.newEnd(r.client,
				opts{ConnParam: ConnParam{PeerToPeer: true, RTR: RTRWrite | RTRRead, IRD: 1, ORD: 1,
					NoMarkers: true}})
			p := r.peerAccepts(c)
			p.play("< "+hexReq+"5002 0004 8001 c001", "> "+hexRep+"5002 0004 8001 8001",
				"< 000ec140000000010000000000000000ebd34c5f")
			require.Equal(t, Startup{Dialect: RFC6581, Version: 1, PeerToPeer: true, Enhanced: true, IRD: 1,
				ORD: 1, PeerIRD: 1, PeerORD: 1}, c.qp.Startup())
		})
	})
	// M=1 is a No, whatever else the Request says
	t.Run("responder that rejects markers", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			c := r.newEnd(r.client, opts{ConnParam: ConnParam{NoMarkers: r.kind != turned}})
			p := r.peerAccepts(c)
			if r.kind == turned {
				p.play("< "+hexReq+"c001 0000", "> "+hexRep+"6001 0000")
				c.awaitClosed()
				var no *RejectedError
				require.ErrorAs(t, c.qp.Err(), &no)
				return
			}
			// over kernel sockets none are asked for
			p.play("< "+hexReq+"4001 0000", "> "+hexRep+"4001 0000")
			c.expectInService()
		})
	})
}

// Adapters that refuse Rev 2 without A and one of C and D: they close. Peer-to-peer suits them;
// client-server goes on in Rev 1.
//
// req: 6581-10-4
func TestProfileRefusesClientServer(t *testing.T) {
	adapter := func(r *rig, p *peer) (accepted bool) {
		f := p.expectFrame(mpa.Request)
		e, _, err := f.Enhanced()
		require.NoError(r.t, err)
		switch {
		case f.IsEnhanced() && (!e.PeerToPeer || e.RTR&(mpa.RTRWrite|mpa.RTRRead) == 0):
			p.closeSend()
			return false
		case f.IsEnhanced():
			p.write(unhex(r.t, hexRep+"5002 0004 8001 8001"))
		default:
			p.write(unhex(r.t, hexRep+"4001 0000"))
		}
		return true
	}
	for _, p2p := range []bool{true, false} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			addr, next := r.peerAcceptsSeveral()
			c := r.newEnd(r.client,
				opts{ConnParam: ConnParam{PeerToPeer: p2p, IRD: 1, ORD: 1, NoMarkers: true}})
			require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
			require.Equal(t, p2p, adapter(r, next()))
			if !p2p {
				require.True(t, adapter(r, next()))
			}
			c.expectInService()
			require.Equal(t, p2p, c.qp.Startup().Enhanced)
		})
	}
}

// Adapters that refuse an RTR with STag 0: neither of ours has it.
//
// req: 6581-9.2-8
func TestProfileRefusesSTagZero(t *testing.T) {
	for _, tc := range []struct {
		kind RTRKinds
		at   int // of the STag in the FPDU
	}{{RTRWrite, 4}, {RTRRead, 2 + 18}, {RTRRead, 2 + 18 + 16}} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			c := r.newEnd(r.client,
				opts{ConnParam: ConnParam{PeerToPeer: true, RTR: tc.kind, NoMarkers: true}})
			p := r.peerAccepts(c)
			p.expectFrame(mpa.Request)
			n := p.at
			p.write(unhex(t, hexRep+"5002 0004 8001 c000"))
			r.until("the RTR", func() bool { return len(p.octets()) >= n+tc.at+4 })
			require.NotEqual(t, []byte{0, 0, 0, 0}, p.octets()[n+tc.at:n+tc.at+4])
		})
	}
}

// Adapters whose start-up reader fails on octets after a frame: nothing of ours stands after one
// before the other side has spoken, however much was posted; and no frame shares its segment.
//
// req: 5044-7.1.2-1, D01-6.1-21, 6581-5-1
func TestProfileReaderFailsOnOctetsAfter(t *testing.T) {
	wait := func(r *rig) {
		if r.kind == turned {
			r.pass(2 * time.Second)
		}
	}
	for _, opt := range []opts{{}, {ConnParam: ConnParam{PeerToPeer: true}},
		{ConnParam: ConnParam{Dialect: RTR}}, {ConnParam: ConnParam{Dialect: RDDP01}}} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			c := r.newEnd(r.client, opt)
			p := r.peerAccepts(c)
			f := p.expectFrame(mpa.Request)
			n := p.at
			require.ErrorIs(t, errOf(c.qp.PostSend(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 10)})),
				ErrState)
			wait(r)
			require.Len(t, p.octets(), n)
			_ = f
		})
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{})
			c := r.newEnd(r.client, opt)
			p := r.peerDials()
			d := c.conn.dialects()[0]
			party := mpa.Party{RTR: mpa.AllRTR, PeerToPeer: opt.PeerToPeer}
			frame := party.Request(mpa.Dialect(d), nil)
			p.write(frame.Append(nil))
			require.NoError(t, r.request().Accept(r.ctx, s.qp, s.with([]byte("private"))))
			s.post(WorkRequest{Op: OpSend, Local: s.source.Slice(0, 10)})
			p.expectFrame(mpa.Reply)
			n := p.at
			wait(r)
			require.Len(t, p.octets(), n)
		})
	}
	// The Rtr frame is a segment of its own, too, and what was posted is the next.
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: RTR, NoMarkers: true}})
	l := r.unpulled(c, unhex(t, hexRtr+"4001 0000"))
	c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 10)})
	segment := make([]byte, 1460)
	require.Equal(t, 20, pullOne(l, segment))
	require.Greater(t, pullOne(l, segment), 20)
	l.Reader.Close()
}

// unpulled has c be an Initiator in full operation whose last start-up frame, out, is still to be
// pulled. Who calls it closes its Reader.
func (r *rig) unpulled(c *end, out []byte) *connect.Connection {
	require.NoError(r.t, c.qp.end.BeginConnecting(c.conn.param()))
	memory := transport.Memory{Pool: r.hosts[1].pool, Stride: r.hosts[1].pool.Stride(),
		Reader: r.client.table.NewReader(), InOrder: true}
	return connect.NewInitiator(&r.client.host, &c.qp.end, &stillTransport{}, memory, out,
		&mpa.Terms{Agreement: mpa.Agreement{Send: mpa.Mode{CRC: true}, Receive: mpa.Mode{CRC: true},
			Version: 1}})
}

// stillTransport transports nothing.
type stillTransport struct{ transport.Conn }

func (*stillTransport) EMSS() int      { return 1460 }
func (*stillTransport) Now() int64     { return 1 }
func (*stillTransport) SetTimer(int64) {}
func (*stillTransport) Send()          {}
func (*stillTransport) Wake()          {}

// Peers that want markers from us and send none themselves, and the other way round: each
// direction is its receiver's choice.
//
// req: 5044-7.1.1-2, 5044-C.3-1, P2P-17
func TestProfileMarkersOneWay(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) { // theirs, as Responder
		c := r.newEnd(r.client,
			opts{ConnParam: ConnParam{PeerToPeer: true, RTR: RTRWrite, NoMarkers: true}})
		p := r.peerAccepts(c)
		p.play("< "+hexReq+"5002 0004 8000 8000", "> "+hexRep+"d002 0004 8000 8000")
		c.expectInService()
		c.postRecv(c.recvAt(3, 0, 10))
		c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 0)})
		p.play("< "+hexReq+"5002 0004 8000 8000",
			"< "+withCRC(t, "00000000 000e c1 40 00000001 0000000000000000"),
			"< "+withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000"),
			"> "+withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000"))
		require.Equal(t, OpRecv, c.await(1)[0].Op)
	})
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) { // theirs, as Initiator
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
		p := r.peerDials()
		p.play("> " + hexReq + "d002 0004 8000 8000")
		require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
		s.post(WorkRequest{Op: OpSend, Local: s.source.Slice(0, 0)})
		p.play("< "+hexRep+"5002 0004 8000 8000", "> "+withCRC(t, "000e c1 40 00000001 0000000000000000"),
			"< "+withCRC(t, "00000000 0012 41 43 00000000 00000000 00000001 00000000"))
	})
}

// Peers that turn CRC off: when both do, the field stays and nobody looks at it; when we do not,
// it is on.
//
// req: 5044-7.1.1-3, D01-6.1.1-8, D01-6.1.1-9
func TestProfileNoCRC(t *testing.T) {
	for _, off := range []bool{true, false} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true, NoCRC: off}})
			p := r.peerDials()
			flags, crc := "50", withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000")
			if off {
				flags, crc = "10", "0012 41 43 00000000 00000000 00000001 00000000 00000000"
			}
			p.play("> " + hexReq + "1002 0004 8000 8000")
			require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
			s.post(WorkRequest{Op: OpSend, Local: s.source.Slice(0, 0)})
			p.play("< " + hexRep + flags + "02 0004 8000 8000")
			rtr := "> 000e c1 40 00000001 0000000000000000 deadbeef" // no CRC at all
			if !off {
				p.write(unhex(t, rtr[2:]))
				r.until("the end of the stream", func() bool { return p.ended() != nil })
				p.closeSend()
				s.awaitClosed()
				var me *mpa.Error
				require.ErrorAs(t, s.qp.Err(), &me)
				require.Equal(t, mpa.ErrCRC, me.Code)
				return
			}
			p.play("< "+hexRep+flags+"02 0004 8000 8000", rtr, "< "+crc)
		})
	}
}

// Two Initiators, and two Responders, in every dialect that has frames: both ends say what it was.
//
// req: D01-6.1-10, D01-6.1-30, D01-6.1-31
func TestTwoOfOneRole(t *testing.T) {
	for d := RDDP01; d <= RFC6581; d++ {
		t.Run(fmt.Sprint(d), func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				sc, cc := r.streams()
				a, b := r.newEnd(r.server, opts{ConnParam: ConnParam{Dialect: d}}),
					r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: d}})
				// The second to enter may find the first one's Request unread, and then it is no party to MPA
				// at all.
				require.NoError(t, a.qp.StartConnectStream(r.ctx, sc, a.conn))
				if err := b.qp.StartConnectStream(r.ctx, cc, b.conn); err != nil {
					require.ErrorIs(t, err, ErrUnread)
					_ = cc.Close()
				} else {
					b.awaitClosed()
				}
				a.awaitClosed()
				require.Error(t, a.qp.Err())
				p := r.peerDials()
				frame := (&mpa.Frame{Kind: mpa.Reply, Rev: uint8(d.Rev())}).Append(nil)
				p.write(frame)
				require.ErrorIs(t, r.failure().Err, mpa.ErrBothRespond)
				p.expectReset()
				c := r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: d}})
				q := r.peerAccepts(c)
				own := q.expectFrame(mpa.Request)
				q.write(own.Append(nil))
				c.expectClosedBy(mpa.ErrBothInitiate)
			})
		})
	}
}
