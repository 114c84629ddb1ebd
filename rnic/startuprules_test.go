package rnic

import (
	"encoding/hex"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/stream"
)

// Figure 9 of the draft (10 of RFC 5044): start-up right after TCP's, private data both ways, the
// Initiator's FPDU, then the Responder's.
//
// req: D01-6.1.3.2-1, P2P-19, D01-6.1-3, D01-6.1-24
func TestImmediateStartupTranscript(t *testing.T) {
	const request, reply = hexReq + "4001 0003 616263", hexRep + "4001 0002 7879"
	t.Run("responder", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
			p := r.peerDials()
			p.play("> " + request)
			req := r.request()
			require.Equal(t, "abc", string(req.PrivateData()))
			require.NoError(t, req.Accept(r.ctx, s.qp, s.with([]byte("xy"))))
			s.post(WorkRequest{Op: OpSend, Local: s.source.Slice(0, 0)})
			p.play("< "+reply,
				"> "+withCRC(t, fmt.Sprintf("0010 c1 40 %08x 0000000000000000 abcd", uint32(s.region.STag()))+
					"0000"),
				"< "+withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000"))
			r.until("the Write", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
		})
	})
	t.Run("initiator", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			c := r.newEnd(r.client, opts{ConnParam: ConnParam{NoMarkers: true}})
			addr, accept := r.peerListens()
			require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.with([]byte("abc"))))
			p := accept()
			p.play("< "+request, "> "+reply)
			c.expectInService()
			require.Equal(t, "xy", string(c.qp.PeerPrivateData()))
			c.postRecv(c.recvAt(4, 0, 1))
			c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 0)})
			send := withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000")
			p.play("< "+request, "< "+send, "> "+send)
			c.expectCompletions(Completion{ID: 4, Op: OpRecv})
		})
	})
}

// The Responder's endpoint may be chosen by the private data, when start-up has come that far;
// without one there is no full operation, and one that is in use will not do.
//
// req: D01-6.1-6, D01-6.1-7
func TestEndpointIsBoundByAccept(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		used, c := r.connect(opts{}, opts{})
		next := r.newEnd(r.client, opts{})
		req := r.dial(next, []byte("ticket 7"))
		require.ErrorIs(t, req.Accept(r.ctx, used.qp, used.conn), ErrState)
		if r.kind == turned {
			r.pass(time.Second)
		}
		require.Equal(t, Connecting, next.qp.State())
		s := r.newEnd(r.server, opts{}) // made for this ticket
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		next.expectInService()
		r.converse(next, s)
		r.converse(c, used)
	})
}

// The Initiator's ULP may dislike the Reply's private data, and closes.
//
// req: D01-6.1-27
func TestInitiatorDislikesTheReply(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.newEnd(r.server, opts{}),
			r.newEnd(r.client, opts{ConnParam: ConnParam{PeerToPeer: true}})
		require.NoError(t, r.dial(c, nil).Accept(r.ctx, s.qp, s.with([]byte("version 3"))))
		c.expectInService()
		require.Equal(t, "version 3", string(c.qp.PeerPrivateData()))
		r.close(s, c)
	})
}

// Delayed start-up in each dialect, over a connection that loses, repeats and turns round
// segments while the stacks are switched: no octet of either mode is taken for the other's.
//
// req: 5044-7.1.5-1, D01-6.1.4-3, P2P-20, D01-6.1-1
func TestDelayedStartupOfEachDialectUnderLoss(t *testing.T) {
	for d := Culley02; d <= RFC6581; d++ {
		t.Run(d.String(), func(t *testing.T) {
			for seed := range uint64(sample.Count(1, 2)) {
				r := newRig(t, turned, rigConfig{faults: true})
				s := r.newEnd(r.server, opts{})
				c := r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: d, PeerToPeer: d >= RTR}})
				sc, cc := r.streams()
				for _, h := range r.hosts {
					lossy := fault.Faults{Drop: 0.05, Duplicate: 0.05, Reorder: 0.1}
					require.NoError(t, h.faulty.Set(lossy, lossy))
				}
				r.chat(sc, cc, seed)
				l, err := r.server.respond(r.ctx, sc, helloAck, ListenOptions{Dialects: []Dialect{d}})
				require.NoError(t, err)
				r.hear(cc, helloAck)
				require.NoError(t, c.qp.StartConnectStream(r.ctx, cc, c.conn))
				req, err := l.nextRequest(r.ctx)
				require.NoError(t, err)
				require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
				c.expectInService()
				if d >= RTR || d == Culley02 {
					r.converse(s, c)
				}
				r.works(s, c)
				for _, h := range r.hosts {
					require.NoError(t, h.faulty.Set(fault.Faults{}, fault.Faults{}))
				}
				r.close(s, c)
				r.noBufLost()
			}
		})
	}
}

// Octets after the Request that came while the connection was a stream cannot be made a stream's
// again: RejectStream refuses.
func TestRejectStreamOfAHastyPeer(t *testing.T) {
	p := newHasty(t, rigConfig{}, stream.Options{})
	r := p.r
	p.write(append(unhex(t, hexReq+"4001 0000"), make([]byte, 3000)...))
	r.pass(time.Second)
	l, err := r.server.respond(r.ctx, p.conn, nil, ListenOptions{})
	require.NoError(t, err)
	req, err := l.nextRequest(r.ctx)
	require.NoError(t, err)
	_, err = req.RejectStream(r.ctx, nil)
	require.ErrorIs(t, err, connect.ErrPipelined)
	r.until("the end", func() bool { return len(r.server.host.Live()) == 0 })
	r.noBufLost()
}

// A peer that waits for nothing: Request, Rtr frame and FPDU in one segment. What is after the
// Request is kept for when the ULP has decided, and the Rtr frame is one still; also when it all
// came while the connection was a stream.
//
// req: P2P-14
func TestRtrOfAHastyPeer(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
		p := r.peerDials()
		write := withCRC(t, fmt.Sprintf("0010 c1 40 %08x 0000000000000000 abcd", uint32(s.region.STag()))+
			"0000")
		p.write(unhex(t, hexReq+"5001 0002 6869"+hexRtr+"4001 0000"+write))
		req := r.request()
		require.Equal(t, "hi", string(req.PrivateData()))
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		r.until("the Write", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
		require.Equal(t, []byte{0xab, 0xcd}, s.region.Bytes()[:2])
		s.post(WorkRequest{Op: OpSend, Local: s.source.Slice(0, 0)})
		p.play("< "+hexRep+"5001 0000", "< "+withCRC(t, "0012 41 43 00000000 00000000 00000001 00000000"))
	})
	for _, cut := range []func() int{octetByOctet, func() int { return 1400 }} {
		p := newHasty(t, rigConfig{}, stream.Options{})
		r := p.r
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
		write := withCRC(t, fmt.Sprintf("0010 c1 40 %08x 0000000000000000 abcd", uint32(s.region.STag()))+
			"0000")
		p.dribble(unhex(t, hexReq+"5001 0002 6869"+hexRtr+"4001 0000"+write), cut)
		r.pass(time.Second)
		l, err := r.server.respond(r.ctx, p.conn, nil, ListenOptions{})
		require.NoError(t, err)
		req, err := l.nextRequest(r.ctx)
		require.NoError(t, err)
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		r.until("the Write", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
		require.Equal(t, []byte{0xab, 0xcd}, s.region.Bytes()[:2])
		p.reset()
		s.awaitClosed()
		r.noBufLost()
	}
}

// PrivateDataMax is about Rev 0. From Rev 1 on frames may have 512 octets, however little an
// application wants of Rev 0.
//
// req: D01-6.1-33, 5044-7.1.1-7
func TestPrivateDataMaxIsOfRevZero(t *testing.T) {
	over(t, both, rigConfig{listen: ListenOptions{PrivateDataMax: 2}}, func(t *testing.T, r *rig) {
		for _, d := range []Dialect{RFC5044, RTR, RFC6581} {
			there, back := randomBytes(1, d.PrivateDataMax()), randomBytes(2, d.PrivateDataMax())
			s, c := r.newEnd(r.server, opts{}),
				r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: d, PrivateDataMax: 3}})
			require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.with(there)))
			req := r.request()
			require.Equal(t, there, req.PrivateData())
			require.NoError(t, req.Accept(r.ctx, s.qp, s.with(back)))
			c.expectInService()
			require.Equal(t, back, c.qp.PeerPrivateData())
		}
		for n := 2; n <= 3; n++ { // what is too long for Rev 0 is still refused
			c := r.newEnd(r.client, opts{ConnParam: ConnParam{Dialect: RDDP01}})
			require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.with(make([]byte, n))))
			if n == 2 {
				require.NoError(t, r.request().Reject(r.ctx, nil))
			} else {
				require.ErrorIs(t, r.failure().Err, mpa.ErrPrivateData)
			}
			c.awaitClosed()
		}
	})
}

// However long a frame may be, a connection that says nothing has no buffer for it, and one in
// service has none any more.
func TestStartupBufferComesAndGoes(t *testing.T) {
	over(t, both, rigConfig{listen: ListenOptions{PrivateDataMax: privateDataCap}},
		func(t *testing.T, r *rig) {
			in := func(l *connect.Connection) (n int) {
				require.NoError(t, connect.Order(l.Transport.Submit, func() { n = cap(l.In()) }))
				if r.kind == turned {
					r.step()
				}
				return n
			}
			p := r.peerDials()
			r.until("the connection", func() bool { return len(r.server.host.Live()) == 1 })
			l := r.server.host.Live()[0]
			require.Zero(t, in(l), "octets for a silent peer")
			p.write(request(mpa.Frame{Rev: 1, CRC: true, PrivateData: []byte("hi")}))
			s := r.newEnd(r.server, opts{})
			require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
			require.Zero(t, in(l), "octets that are kept for nothing")
		})
}

// A peer-to-peer Initiator owes its Rtr frame or RTR message: a FIN in its place, or within it,
// is no orderly end. When this end is closing anyway, nothing is missed; but half a frame stays
// half a frame.
//
// req: P2P-14
func TestClosedWithTheLastOfStartupOwed(t *testing.T) {
	for _, tc := range []struct {
		d    Dialect
		said string // and no more
	}{{RTR, ""}, {RTR, hex.EncodeToString([]byte("MPA ID Rtr"))}, {RFC6581, ""}, {RFC6581, "000ec1"}} {
		for _, closing := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v %q %v", tc.d, tc.said, closing), func(t *testing.T) {
				over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
					p := r.peerDials()
					party := mpa.Party{RTR: mpa.AllRTR, PeerToPeer: true}
					f := party.Request(mpa.Dialect(tc.d), nil)
					p.write(f.Append(nil))
					s := r.newEnd(r.server, opts{})
					require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
					p.expectFrame(mpa.Reply)
					s.post(WorkRequest{Op: OpSend, ID: 1, Local: s.source.Slice(0, 5)})
					if closing {
						s.qp.Disconnect()
					}
					p.write(unhex(t, tc.said))
					p.closeSend()
					s.awaitClosed()
					require.Equal(t, Flushed, s.await(1)[0].Status)
					if closing && tc.said == "" {
						require.NoError(t, s.qp.Err())
						return
					}
					var me *mpa.Error
					require.ErrorAs(t, s.qp.Err(), &me)
					require.Equal(t, mpa.ErrConnection, me.Code)
					require.ErrorIs(t, s.qp.Err(), ErrPeerClosed)
					require.ErrorIs(t, r.failure().Err, s.qp.Err())
				})
			})
		}
	}
}

// A Request of Rev 0 with S offers to let us speak first where rtr is served, and the request
// says so beforehand.
func TestPeerToPeerOfRevZero(t *testing.T) {
	for _, served := range [][]Dialect{{RDDP01}, {RDDP01, RTR}} {
		over(t, both, rigConfig{listen: ListenOptions{Dialects: served}}, func(t *testing.T, r *rig) {
			p := r.peerDials()
			p.write(request(mpa.Frame{Rev: 0, S: true, CRC: true, Markers: true}))
			req, s := r.request(), r.newEnd(r.server, opts{})
			require.Equal(t, len(served) == 2, req.PeerToPeer())
			require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
			require.Equal(t, len(served) == 2, s.qp.Startup().PeerToPeer)
		})
	}
}

// What a peer sends after its Request, without being asked, is the stream's when MPA was there
// from the beginning.
func TestRejectStreamOfAHastyDialer(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		p := r.peerDials()
		p.write(append(request(mpa.Frame{Rev: 1, CRC: true}), "hasty"...))
		nc, err := r.request().RejectStream(r.ctx, nil)
		require.NoError(t, err)
		r.deadline(nc)
		r.hear(nc, []byte("hasty"))
	})
}
