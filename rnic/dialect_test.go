package rnic

import (
	"bytes"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// converse sends and writes both ways, first from the end that the model lets.
func (r *rig) converse(first, second *end) {
	r.t.Helper()
	r.exchange(second, first)
}

// All pairs of dialects: which combine, in what they then speak, and how the others fail.
//
// req: 5044-C-1, 5044-C.1-2, 5044-C.2-1, 5044-C.2-3, P2P-3, P2P-14, P2P-15, P2P-17, P2P-18
// req: 6581-10-1, 6581-10-3, 6581-6-3, 6581-9.3-2, C02-8.1-3
func TestDialectPairs(t *testing.T) {
	for outstanding := Culley02; outstanding <= RFC6581; outstanding++ {
		for served := Culley02 - 1; served <= RFC6581; served++ { // the first is the default
			listen := ListenOptions{}
			if served >= Culley02 {
				listen.Dialects = []Dialect{served}
			}
			t.Run(fmt.Sprintf("%v to %v", outstanding, served), func(t *testing.T) {
				newRig(t, turned, rigConfig{listen: listen}).pair(outstanding, served)
			})
		}
	}
}

func (r *rig) pair(outstanding, served Dialect) {
	t := r.t
	spoken, works := outstanding, served == outstanding || served == 0 && outstanding != Culley02
	if outstanding == RTR && served == RFC5044 {
		spoken, works = RFC5044, true // the S bit is reserved there
	}
	p2p := outstanding == RTR || outstanding == RFC6581
	s := r.newEnd(r.server, opts{})
	c := r.newEnd(r.client, connOpts(ConnParam{Dialect: outstanding, PeerToPeer: p2p}))
	require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn))
	if !works {
		r.pairFails(outstanding, served, s, c)
		return
	}
	req := r.request()
	require.Equal(t, spoken, req.Dialect())
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	c.expectInService()
	for _, e := range []*end{s, c} {
		st := e.qp.Startup()
		require.Equal(t, spoken, st.Dialect)
		require.Equal(t, spoken != Culley02 && spoken != RDDP01, st.Version == 1)
		require.Equal(t, p2p && spoken == outstanding, st.PeerToPeer)
	}
	if p2p && spoken == outstanding || outstanding == Culley02 {
		r.converse(s, c) // the Responder speaks first
	}
	r.converse(c, s)
	r.works(s, c)
	r.close(s, c)
	require.Zero(t, r.client.StartupCounters())
}

// pairFails: both ends say what was wrong, and neither serves.
func (r *rig) pairFails(outstanding, served Dialect, s, c *end) {
	t := r.t
	switch {
	case outstanding == Culley02: // its first FPDU is no Request
		c.expectInService()
		c.post(c.write(s, 1, 0, 8))
		require.ErrorIs(t, r.failure().Err, mpa.ErrKey)
		c.expectClosedBy(stack.ErrReset)
	case served == Culley02: // a Request is no FPDU
		r.accept(s)
		c.expectClosedBy(stack.ErrReset)
		s.expectClosedBy(ErrFirstMarker)
	default:
		c.awaitClosed()
		f := r.failure()
		re := errorAs[*RevisionError](t, f.Err)
		require.Equal(t, []Dialect{served}, re.Served)
		if outstanding == RFC5044 && served == RTR { // of one Rev: the Responder's No is all there is
			require.EqualError(t, errorAs[*RejectedError](t, c.qp.Err()),
				"rnic: connection rejected by the peer (0 octets of private data): its ULP "+
					"said no, or it does not serve rfc5044")
			require.EqualError(t, f.Err, "rnic: peer asks in rfc5044 (MPA revision 1), served here: rtr")
			break
		}
		require.EqualError(t, errorAs[*RevisionError](t, c.qp.Err()),
			fmt.Sprintf("rnic: asked in %v (MPA revision %d), the peer answered with revision %d: it does "+
				"not serve that dialect", outstanding, outstanding.Rev(), served.Rev()))
		require.EqualError(t, f.Err,
			fmt.Sprintf("rnic: peer asks in %v (MPA revision %d), served here: %v", outstanding,
				outstanding.Rev(), served))
	}
	require.Equal(t, Closed, c.qp.State())
	if served != Culley02 {
		require.Nil(t, r.listener.Poll())
	}
}

// emptyMarked is a Send of no octets, of DDP's and RDMAP's versions 0, after a marker.
const emptyMarked = "00000000 0012 40 03 00000000 00000000 00000001 00000000"

// markedWrite is culley-02's first FPDU, a Write of two octets to e's region.
func markedWrite(t *testing.T, e *end) []byte {
	return unhex(t, withCRC(t, fmt.Sprintf("00000000 0010 c0 00 %08x 0000000000000000 abcd 0000",
		uint32(e.region.STag()))))
}

// culley-02: no frames, a marker first, markers and CRC in both directions, version 0, and either
// end may begin.
//
// req: C02-8.1-1, C02-8.1-4, C02-8.1-3, C02-7.1-7
func TestImmediateStart(t *testing.T) {
	listen := ListenOptions{Dialects: []Dialect{Culley02}}
	t.Run("responder", func(t *testing.T) {
		r := newRig(t, turned, rigConfig{listen: listen})
		p := r.peerDials()
		req := r.request() // the connection alone is one
		require.Equal(t, Culley02, req.Dialect())
		require.Empty(t, req.PrivateData())
		s := r.newEnd(r.server, opts{})
		require.Error(t, req.Accept(r.ctx, s.qp, s.with([]byte("x"))), "there is no frame for it")
		s = r.newEnd(r.server, opts{})
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		s.post(WorkRequest{Op: OpSend})
		p.play("< " + withCRC(t, emptyMarked))
		p.write(markedWrite(t, s))
		r.until("the Write", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
		require.Equal(t, []byte{0xab, 0xcd}, s.region.Bytes()[:2])
	})
	t.Run("initiator", func(t *testing.T) {
		r := newRig(t, turned, rigConfig{})
		c := r.newEnd(r.client, connOpts(ConnParam{Dialect: Culley02}))
		p := r.peerAccepts(c)
		c.expectInService()
		c.post(WorkRequest{Op: OpSend})
		p.play("< " + withCRC(t, emptyMarked))
	})
	t.Run("among others", func(t *testing.T) {
		listen := ListenOptions{Dialects: []Dialect{Culley02, RFC5044}}
		r := newRig(t, turned, rigConfig{listen: listen})
		s, c := r.newEnd(r.server, opts{}), r.newEnd(r.client, connOpts(ConnParam{Dialect: Culley02}))
		require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.conn))
		c.expectInService()
		c.post(c.write(s, 1, 0, 8)) // its first octet tells
		r.accept(s)
		c.await(1)
		r.converse(c, s)
		require.Equal(t, Culley02, s.qp.Startup().Dialect)
		_, c = r.connect(opts{}, opts{})
		require.Equal(t, RFC5044, c.qp.Startup().Dialect)
	})
	t.Run("rejected", func(t *testing.T) {
		r := newRig(t, turned, rigConfig{listen: listen})
		p := r.peerDials()
		require.NoError(t, r.request().Reject(r.ctx, nil))
		p.expectReset()
		require.Empty(t, p.octets())
	})
}

// The first octets of culley-02's stream are no marker. A start-up frame says at once that the peer
// speaks another dialect; anything else is error 3, which a Terminate tells and which does not
// close TCP.
//
// req: C02-9-3, C02-9-9, C02-9-10
func TestFirstOctetsAreNoMarker(t *testing.T) {
	listen := ListenOptions{Dialects: []Dialect{Culley02}}
	r := newRig(t, turned, rigConfig{listen: listen})
	for _, drop := range []bool{false, true} {
		s := r.newEnd(r.server, connOpts(ConnParam{DropBadCRC: drop}))
		p := r.peerDials()
		r.accept(s)
		p.write(request(mpa.Frame{Rev: 1}))
		s.expectClosedBy(ErrFirstMarker)
		p.expectReset()
		require.Empty(t, p.octets())
	}
	s := r.newEnd(r.server, opts{})
	p := r.peerDials()
	r.accept(s)
	p.write([]byte("GET / HTTP/1.0\r\n\r\n"))
	p.skipToFIN()
	require.NotEmpty(t, p.octets(), "a Terminate")
	p.leave(s)
	require.ErrorIs(t, errorAs[*TerminateError](t, s.qp.Err()), ErrFirstMarker)
}

// Under DropBadCRC a first segment whose marker was damaged is not taken, as often as it comes and
// whether its FPDU is whole or not; the same segment undamaged is.
//
// req: C02-9-7, D01-7-9
func TestDamagedFirstMarkerIsDropped(t *testing.T) {
	r := newRig(t, turned, rigConfig{listen: ListenOptions{Dialects: []Dialect{Culley02}}})
	s := r.newEnd(r.server, connOpts(ConnParam{DropBadCRC: true}))
	p := r.peerDials()
	r.accept(s)
	l, write := s.qp.end.Connection.Load(), markedWrite(t, s)

	for _, n := range []int{len(write), 10, 10, 10, 10, 10, 10, len(write)} {
		bad := bytes.Clone(write)
		bad[2], bad[7] = bad[7], bad[2]
		bad[3], bad[6] = bad[6], bad[3]
		require.Equal(t, stack.Refused, offer(l, 0, bad[:n]))
		require.NoError(t, l.Err)
	}
	const cut = 25 // not less than the shortest FPDU has, which no damage could explain
	// Cut short it may be what is left of a longer one, until the peer sends it again: at another
	// time than the network's copies say.
	for range 4 {
		require.Equal(t, stack.Refused, offer(l, 0, write[:cut]))
	}
	r.pass(time.Second)
	p.write(write[:cut])
	p.write(write[cut:])
	r.until("the Write", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
	require.Equal(t, []byte{0xab, 0xcd}, s.region.Bytes()[:2])
}

// Options of a Listener that cannot be.
func TestListenOptions(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	for _, opt := range []ListenOptions{{Dialects: []Dialect{7}}, {PrivateDataMax: 1 << 17}} {
		_, err := r.server.Listen(r.ctx, ":9999", opt)
		require.Error(t, err)
	}
	require.Zero(t, (&QueuePair{}).Startup())
}

// At Rev 0 private data may be as long as the application has room for, which is PrivateDataMax.
// That says nothing of Rev 1 and later, whose frames have 512 octets. What is longer is improper.
//
// req: D01-6.1-33, D01-6.1-34, D01-6.1.1-17, D01-6.1-12, D01-6.1-16, D01-6.1.1-18, 5044-7.1.1-7
func TestPrivateDataByDialect(t *testing.T) {
	for _, tc := range []struct {
		d       Dialect
		room, n int // PrivateDataMax, and octets
		want    error
	}{
		{RDDP01, 65535, 65535, nil}, {RDDP01, 0, 512, nil}, {RDDP01, 0, 513, mpa.ErrPrivateData},
		{RDDP01, 2, 2, nil}, {RDDP01, 2, 3, mpa.ErrPrivateData},
		{RFC5044, 2, 512, nil}, {RTR, 2, 512, nil}, {RFC6581, 2, 508, nil},
	} {
		t.Run(fmt.Sprintf("%v, %d octets, room for %d", tc.d, tc.n, tc.room), func(t *testing.T) {
			r := newRig(t, turned, rigConfig{listen: ListenOptions{PrivateDataMax: tc.room}})
			there, back := randomBytes(1, tc.n), randomBytes(2, tc.n)
			s, c := r.newEnd(r.server, opts{}),
				r.newEnd(r.client, connOpts(ConnParam{Dialect: tc.d, PrivateDataMax: tc.room}))
			require.NoError(t, c.qp.StartConnect(r.ctx, r.addr(), c.with(there)))
			if tc.want != nil {
				require.ErrorIs(t, r.failure().Err, tc.want)
				c.awaitClosed()
				return
			}
			req := r.request()
			require.Equal(t, tc.d.Rev(), req.Revision())
			require.True(t, bytes.Equal(there, req.PrivateData()))
			require.NoError(t, req.Accept(r.ctx, s.qp, s.with(back)))
			c.expectInService()
			require.True(t, bytes.Equal(back, c.qp.PeerPrivateData()))
			r.converse(c, s)
		})
	}
}

// A Responder that does not serve Rev 0 answers with Rev 1 and closes in order.
//
// req: 5044-C.2-2, 5044-C.2-5, 5044-7.1.1-6
func TestRevisionZeroRequest(t *testing.T) {
	r := newRig(t, turned, rigConfig{listen: ListenOptions{Dialects: []Dialect{RFC5044, RFC6581}}})
	p := r.peerDials()
	p.play("> "+hexReq+"c000 0000", "< "+hexRep+"6001 0000")
	p.expectFIN()
	p.closeSend()
	errorAs[*RevisionError](t, r.failure().Err)
}

// What the Initiator cannot go on with it says in a Terminate of layer 2, type 0, before anything
// else, and ends the connection.
//
// req: 6581-8-1, 6581-8-2, 6581-9.1-8, 6581-9.2-9, 6581-9.3-1
func TestEstablishmentErrors(t *testing.T) {
	for _, tc := range []struct {
		reply, code string
		want        error
	}{
		{"c000 0000", "07", mpa.ErrRTR}, {"8000 8003", "06", mpa.ErrIRD},
		{"0000 0000", "05", mpa.ErrModel},
	} {
		t.Run(tc.want.Error(), func(t *testing.T) {
			r := newRig(t, turned, rigConfig{})
			c := r.newEnd(r.client, connOpts(ConnParam{Dialect: RFC6581, PeerToPeer: true,
				RTR: RTRWrite, IRD: 2, ORD: 1, NoMarkers: true}))
			p := r.peerAccepts(c)
			asked := hexReq + "5002 0004 8002 8001"
			said := withCRC(t, "0016 41 47 00000000 00000002 00000001 00000000 20"+tc.code+"0000")
			p.play("< "+asked, "> "+hexRep+"5002 0004"+tc.reply, "< "+said)
			p.expectFIN()
			p.leave(c)
			require.ErrorIs(t, c.qp.Err(), tc.want)
			require.ErrorIs(t, c.qp.inService(r.ctx), tc.want)
			// The peer, if it is ours, learns it.
			q := r.peerDials()
			q.write(unhex(t, asked))
			s := r.newEnd(r.server, unmarked)
			r.accept(s)
			q.write(unhex(t, said))
			q.leave(s)
			te := errorAs[*TerminateError](t, s.qp.Err())
			require.True(t, te.Remote)
			require.ErrorContains(t, te, "layer 2, type 0, code 0x"+tc.code)
		})
	}
}

// Both ULPs learn what the other's frame said, the Initiator's also when it is rejected.
//
// req: 6581-9.1-2, 6581-9.1-5, 6581-9.1-6, 6581-9.1-9, 6581-9-2
func TestReadDepthsReachTheULP(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s, c := r.newEnd(r.server, connOpts(ConnParam{IRD: 9, ORD: 8, ORDMin: 5})),
		r.newEnd(r.client, connOpts(ConnParam{Dialect: RFC6581, IRD: 4, ORD: 12}))
	private := randomBytes(1, 508)
	rejected := func() RejectedError {
		c.awaitClosed()
		return *errorAs[*RejectedError](t, c.qp.Err())
	}
	req := r.dial(c, private)
	require.Equal(t, private, req.PrivateData())
	ird, ord, ok := req.ReadDepths()
	require.Equal(t, [3]any{4, 12, true}, [3]any{ird, ord, ok})
	require.False(t, req.PeerToPeer())
	require.ErrorIs(t, req.Accept(r.ctx, s.qp, s.conn), mpa.ErrORDShort)
	require.Equal(t, Closed, s.qp.State())
	no := rejected()
	require.Equal(t, RejectedError{Asked: RFC6581, Rev: 2, Enhanced: true, IRD: 9, ORD: 5}, no)
	require.False(t, no.MaybeDialect(), "a Reply of the enhanced format is an answer in the dialect")

	c = r.newEnd(r.client, connOpts(ConnParam{Dialect: RFC6581, IRD: 4, ORD: 12}))
	require.NoError(t, r.dial(c, nil).Reject(r.ctx, []byte("no")))
	require.Equal(t, RejectedError{PrivateData: []byte("no"), Asked: RFC6581, Rev: 2, Enhanced: true,
		IRD: 12, ORD: 4}, rejected())

	c = r.newEnd(r.client, connOpts(ConnParam{Dialect: RFC6581, IRD: ReadDepthULP, ORD: 12}))
	s = r.newEnd(r.server, connOpts(ConnParam{IRD: 9, ORD: 8, ORDMin: 5}))
	req = r.dial(c, nil)
	require.Error(
		t, req.Accept(r.ctx, r.newEnd(r.server, opts{}).qp, ConnParam{PrivateData: make([]byte, 509)}))
	require.NoError(t, req.Accept(r.ctx, s.qp, s.with(private)))
	c.expectInService()
	require.Equal(t, private, c.qp.PeerPrivateData())
	require.Equal(t, Startup{Dialect: RFC6581, Version: 1, Enhanced: true, IRD: ReadDepthULP, ORD: 9,
		PeerIRD: 9, PeerORD: ReadDepthULP}, c.qp.Startup())
	require.Equal(t, Startup{Dialect: RFC6581, Version: 1, Enhanced: true, IRD: 9, ORD: 8,
		PeerIRD: ReadDepthULP, PeerORD: 12}, s.qp.Startup())
	r.converse(c, s)
	r.close(s, c)
}

// The enhanced format is asked for as soon as anything is wanted that only it can settle, and not
// before.
//
// req: 6581-10-2
func TestWhatIsAskedEnhanced(t *testing.T) {
	for _, tc := range []struct {
		opt  opts
		want []Dialect
	}{
		{opts{}, []Dialect{RFC5044}},
		{connOpts(ConnParam{IRD: 1}), []Dialect{RFC6581, RFC5044}},
		{connOpts(ConnParam{ORD: 1}), []Dialect{RFC6581, RFC5044}},
		{connOpts(ConnParam{PeerToPeer: true}), []Dialect{RFC6581, RTR}},
		{connOpts(ConnParam{PeerToPeer: true, IRD: 1, ORD: 1}), []Dialect{RFC6581, RTR}},
		{connOpts(ConnParam{Dialect: RFC5044, IRD: 1}), []Dialect{RFC5044}},
	} {
		require.Equal(t, tc.want, tc.opt.dialects(), "%+v", tc.opt)
	}
	r := newRig(t, turned, rigConfig{})
	c := r.newEnd(r.client, connOpts(ConnParam{IRD: 1, NoMarkers: true}))
	p := r.peerAccepts(c)
	p.play("< " + hexReq + "5002 0004 0001 0000")
}
