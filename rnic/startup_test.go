package rnic

import (
	"bytes"
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/stack"
)

// What is no Request closes the connection at once and is reported, whatever it is and however it
// is cut.
//
// req: D01-6.1-14, D01-6.1-26, D01-6.1.1-4, D01-6.1.2-2, D01-6.1-32, D01-6.1-34, D01-7-7
// req: 5044-7.1.1-7
func TestResponderRefusesBadRequest(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"HTTP", []byte("GET / HTTP/1.0\r\n\r\n"), mpa.ErrKey},
		{"one octet of the key", func() []byte {
			b := request(mpa.Frame{Rev: 1})
			b[15] = 'E'
			return b
		}(), mpa.ErrKey},
		{"lower case frame", []byte("MPA ID Req frame"), mpa.ErrKey},
		{"a Reply", (&mpa.Frame{Kind: mpa.Reply, Rev: 1}).Append(nil), mpa.ErrBothRespond},
		{"513 octets of private data", append(request(mpa.Frame{Rev: 1})[:18], 0x02, 0x01),
			mpa.ErrPrivateData},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				p := r.peerDials()
				p.write(tc.bytes)
				f := r.failure()
				require.ErrorIs(t, f.Err, tc.want)
				require.False(t, f.Started)
				require.True(t, f.Remote.IsValid())
				p.expectReset()
				require.Empty(t, p.octets())
				require.Nil(t, r.listener.Poll())
			})
		})
	}
}

// What is no Reply closes the connection at once and is the error of Connect.
//
// req: D01-6.1-22, D01-6.1.1-5, D01-6.1-30
func TestInitiatorRefusesBadReply(t *testing.T) {
	for _, tc := range []struct {
		name  string
		bytes []byte
		want  error
	}{
		{"wrong key", []byte("MPA ID Rep frame...."), mpa.ErrKey},
		{"both ends initiate", request(mpa.Frame{Rev: 1}), mpa.ErrBothInitiate},
		{"private data too long", append((&mpa.Frame{Kind: mpa.Reply, Rev: 1}).Append(nil)[:18], 0xff,
			0xff), mpa.ErrPrivateData},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				addr, accept := r.peerListens()
				c := r.newEnd(r.client, opts{})
				require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
				p := accept()
				p.write(tc.bytes)
				c.expectClosedBy(tc.want)
				require.Equal(t, Closed, c.qp.State())
				p.expectReset()
			})
		})
	}
}

// The Request says what the QueuePair's options want: CRC unless switched off, markers over a
// Poller only.
//
// req: D01-6.1-11, D01-5.2-3, 5044-1.2-1, 5044-7.1.1-4, D01-6.1-5
func TestRequestFrame(t *testing.T) {
	for _, tc := range []struct {
		opt         opts
		markers, cr bool
	}{
		{opts{}, true, true},
		{opts{ConnParam: ConnParam{NoMarkers: true}}, false, true},
		{opts{ConnParam: ConnParam{NoCRC: true}}, true, false},
	} {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			addr, accept := r.peerListens()
			c := r.newEnd(r.client, tc.opt)
			require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.with([]byte("hello"))))
			p := accept()
			f := p.expectFrame(mpa.Request)
			n := p.at
			require.Len(t, p.octets(), n, "nothing after the Request")
			require.Equal(t, mpa.Frame{
				Kind: mpa.Request, Rev: 1, CRC: tc.cr, Markers: tc.markers && r.kind != sockets,
				PrivateData: []byte("hello"),
			}, f)
		})
	}
}

// Start-up frames and the first FPDU may be cut anywhere, here after every octet.
//
// req: D01-6.1-20
func TestStartupOctetByOctet(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		p := r.peerDials()
		for _, b := range request(mpa.Frame{Rev: 1, CRC: true, PrivateData: []byte("a few octets")}) {
			p.write([]byte{b})
		}
		req := r.request()
		require.Equal(t, []byte("a few octets"), req.PrivateData())
		require.Equal(t, 1, req.Revision())
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		p.start(mpa.Mode{Markers: p.expectFrame(mpa.Reply).Markers, CRC: true})
		for _, b := range p.frame(writeFPDU(s.region.STag(), 5, "payload")) {
			p.write([]byte{b})
		}
		r.until("the payload in memory", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
		require.Equal(t, []byte("\x00payload\x00"), s.region.Bytes()[4:13])
	})
}

// stats asks for a QueuePair's counters: over sockets they are read under the lock of the goroutine
// that places octets.
func (r *rig) stats(q *QueuePair) Stats {
	r.t.Helper()
	st, err := q.Stats(r.ctx)
	require.NoError(r.t, err)
	return st
}

// Octets after the Request, in the same segment, wait for the ULP's decision and are not lost.
//
// req: D01-6.1-13
func TestOctetsAfterRequestWait(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
		p := r.peerDials()
		p.start(mpa.Mode{CRC: true})
		p.write(
			append(request(mpa.Frame{Rev: 1, CRC: true}),
				p.frame(writeFPDU(s.region.STag(), 0, "early"))...))
		req := r.request()
		require.Equal(t, make([]byte, 5), s.region.Bytes()[:5], "placed before the ULP decided")
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		r.until("the early octets in memory", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
		require.Equal(t, "early", string(s.region.Bytes()[:5]))
	})
}

// A Responder sends nothing before the first valid FPDU, however much was posted.
//
// req: 5044-7.1.2-1, D01-6.1-25
func TestResponderWaitsForFirstFPDU(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		p, _ := r.peerConnects(s, false)
		s.post(WorkRequest{Op: OpSend, ID: 5, Local: s.source.Slice(0, 10), Signaled: true})
		if r.kind == turned {
			r.pass(5 * time.Second)
		} else {
			n := -1
			l := s.qp.end.Connection.Load()
			require.NoError(t, l.Transport.Submit(func() {
				n, _ = s.qp.engine.Pull([][]byte{make([]byte, 1460)}, false)
			}))
			require.Zero(t, n, "octets pulled")
		}
		p.expectNothing() // after the Reply
		s.expectNoCompletion()
		// A frame whose CRC is wrong would not do, a valid one without any payload does.
		p.inject(writeFPDU(0, 0, ""))
		p.expectFPDU(sendFPDU(1, s.source.Bytes()[:10]))
		s.expectCompletions(Completion{ID: 5, Len: 10, Op: OpSend})
	})
}

// An invalid first FPDU does not open the Responder's half: not even its Terminate goes out.
//
// req: 5044-7.1.2-1
func TestInvalidFirstFPDUOpensNothing(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		p, _ := r.peerConnects(s, false)
		b := p.frame(writeFPDU(s.region.STag(), 0, "bad"))
		b[len(b)-1] ^= 1
		p.write(b)
		p.expectFIN()
		p.closeSend()
		s.awaitClosed()
		var te *TerminateError
		require.ErrorAs(t, s.qp.Err(), &te)
		require.False(t, te.Remote)
		require.Equal(t, make([]byte, 3), s.region.Bytes()[:3])
	})
}

// Garbage after start-up is an error of MPA's and touches no memory.
//
// req: D01-5.4-1, D01-5.2-17, D01-5.2-18
func TestGarbageAfterConnect(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		p, _ := r.peerConnects(s, false)
		p.write(append([]byte{0xff, 0xff}, randomBytes(9, 8000)...)) // a ULPDU_Length above the maximum
		p.expectFIN()
		p.closeSend()
		s.awaitClosed()
		var me *mpa.Error
		require.ErrorAs(t, s.qp.Err(), &me)
		require.Equal(t, make([]byte, regionBytes), s.region.Bytes())
		s.unharmed(t)
	})
}

// Markers are in a direction when, and only when, its receiver asked for them.
//
// req: 5044-7.1.1-2, D01-6.1.1-6, D01-6.1.1-7, D01-5.1-1, D01-5.1-9, D01-6.1-29
func TestMarkersByDirection(t *testing.T) {
	for _, theirs := range []bool{false, true} {
		for _, ours := range []bool{false, true} {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: !ours}})
				p, f := r.peerConnects(s, theirs)
				require.Equal(t, ours && r.kind != sockets, f.Markers, "M of the Reply")
				payload := randomBytes(3, 1200)
				p.inject(writeFPDU(s.region.STag(), 0, payload)) // with markers as the Reply asks
				r.until("the Write in memory", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
				require.Equal(t, payload, s.region.Bytes()[:1200])

				s.post(WorkRequest{Op: OpSend, Local: s.source.Slice(0, 20)})
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

// CRC is off only when both ends say so.
//
// req: D01-5.2-2, D01-5.2-7, D01-5.2-8, D01-5.2-12, D01-6.1.1-8, D01-6.1.1-9, 5044-4.4-1
// req: 5044-7.1.1-3
func TestCRCOffOnlyByBoth(t *testing.T) {
	for _, tc := range []struct {
		name         string
		theirs, ours bool // CRC wanted
	}{{"both on", true, true}, {"theirs on", true, false}, {"ours on", false, true},
		{"both off", false, false}} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoCRC: !tc.ours, NoMarkers: true}})
				p := r.peerDials()
				p.write(request(mpa.Frame{Rev: 1, CRC: tc.theirs}))
				require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
				require.Equal(t, tc.ours || tc.theirs, p.expectFrame(mpa.Reply).CRC, "C of the Reply")
				p.start(mpa.Mode{CRC: true})
				b := p.frame(writeFPDU(s.region.STag(), 0, "CRC is wrong"))
				b[len(b)-1] ^= 1
				p.write(b)
				if !tc.ours && !tc.theirs {
					r.until("the Write in memory", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
					require.Equal(t, "CRC is wrong", string(s.region.Bytes()[:12]))
					return
				}
				p.expectFIN()
				p.reset()
				s.awaitClosed()
				var me *mpa.Error
				require.ErrorAs(t, s.qp.Err(), &me)
				require.Equal(t, mpa.ErrCRC, me.Code)
				require.Equal(t, make([]byte, 12), s.region.Bytes()[:12])
			})
		})
	}
}

// A Revision 0 peer is served with DDP and RDMAP version 0, and with markers and CRC in both
// directions.
//
// req: 5044-C.2-5, 5044-C.1-3, 5044-3-2, 5044-C.1-2
func TestRevisionZero(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true, NoCRC: true}})
		p := r.peerDials()
		p.write(request(mpa.Frame{Rev: 0, CRC: true, Markers: true}))
		req := r.request()
		require.Equal(t, 0, req.Revision())
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		require.Equal(t, mpa.Frame{Kind: mpa.Reply, Rev: 0, CRC: true, Markers: true},
			p.expectFrame(mpa.Reply))
		p.start(mpa.Mode{CRC: true, Markers: true})
		h := writeTo(s.region.STag(), 0)
		h.Version, h.ULP = 0, 0
		p.inject(fpdu{h, []byte("version 0")})
		r.until("the Write in memory", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
		require.Equal(t, "version 0", string(s.region.Bytes()[:9]))
		s.post(WorkRequest{Op: OpSend, Local: s.source.Slice(0, 4)})
		r.until("the Send", func() bool { return len(p.octets()) >= p.at+4+2+18+4+4 })
		require.Equal(t, []byte{0, 0, 0, 0, 0, 22, 0x40, 0x03}, p.octets()[p.at:p.at+8],
			"marker, length, DDP and RDMAP control")
	})
}

// An Initiator that reads Rev 0 in the Reply goes on with version 0, markers and CRC.
//
// req: 5044-C.2-6, 5044-C.1-5
func TestInitiatorMeetsRevisionZero(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		addr, accept := r.peerListens()
		c := r.newEnd(r.client, opts{ConnParam: ConnParam{NoMarkers: true}})
		require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
		p := accept()
		p.expectFrame(mpa.Request)
		n := p.at
		p.write((&mpa.Frame{Kind: mpa.Reply, Rev: 0, CRC: true, Markers: true}).Append(nil))
		c.expectState(RTS)
		c.post(WorkRequest{Op: OpSend, Local: c.source.Slice(0, 4)})
		r.until("the Send", func() bool { return len(p.octets()) >= n+4+2+18+4+4 })
		require.Equal(t, []byte{0, 0, 0, 0, 0, 22, 0x40, 0x03}, p.octets()[n:n+8])
		p.start(mpa.Mode{CRC: true, Markers: true})
		h := writeTo(c.region.STag(), 0)
		h.Version, h.ULP = 0, 0
		p.inject(fpdu{h, []byte("with markers")})
		r.until("the Write in memory", func() bool { return r.stats(c.qp).WritesRecvd == 1 })
	})
}

// A Request of a revision we do not serve is answered with ours, rejecting, and closed; a Reply
// is just closed.
//
// req: 5044-7.1.1-5
func TestRevisionNotServed(t *testing.T) {
	t.Run("responder", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			p := r.peerDials()
			p.write(request(mpa.Frame{Rev: 9, CRC: true}))
			f := p.expectFrame(mpa.Reply)
			require.Equal(t, uint8(2), f.Rev)
			require.True(t, f.Reject)
			p.expectFIN()
			p.closeSend()
			var re *RevisionError
			require.ErrorAs(t, r.failure().Err, &re)
			require.Equal(t, 9, re.Revision)
			require.Nil(t, r.listener.Poll())
		})
	})
	t.Run("initiator", func(t *testing.T) {
		over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
			addr, accept := r.peerListens()
			c := r.newEnd(r.client, opts{})
			require.NoError(t, c.qp.StartConnect(r.ctx, addr, c.conn))
			p := accept()
			p.write((&mpa.Frame{Kind: mpa.Reply, Rev: 2, CRC: true}).Append(nil))
			c.awaitClosed()
			var re *RevisionError
			require.ErrorAs(t, c.qp.Err(), &re)
		})
	})
}

// Reserved bits, and R in a Request, are not looked at.
//
// req: D01-6.1.1-10, D01-6.1.1-12
func TestReservedBitsOfRequest(t *testing.T) {
	listen := ListenOptions{Dialects: []Dialect{RDDP01, RFC5044}} // rtr takes one of the bits
	over(t, both, rigConfig{listen: listen}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		p := r.peerDials()
		b := request(mpa.Frame{Rev: 1, CRC: true})
		b[16] |= 0x3f
		p.write(b)
		require.NoError(t, r.request().Accept(r.ctx, s.qp, s.conn))
		f := p.expectFrame(mpa.Reply)
		require.False(t, f.Reject)
		require.Zero(t, p.octets()[16]&0x3f)
	})
}

// A segment that was refused for what stands after the start-up frame may come again, cut
// otherwise.
func TestStartupFrameComesAgain(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	p := r.peerDials()
	p.start(mpa.Mode{CRC: true})
	frame := request(mpa.Frame{Rev: 1, CRC: true, PrivateData: []byte("abc")})
	p.write(frame)
	req := r.request()
	s := r.newEnd(r.server, opts{ConnParam: ConnParam{NoMarkers: true}})
	fpdu := p.frame(writeFPDU(s.region.STag(), 0, "once"))
	l, b := req.connection, r.hosts[0].pool.Alloc()
	require.Equal(t, stack.Refused, arriveOne(l, 0, b, append(bytes.Clone(frame), fpdu...)),
		"before the decision")
	require.Equal(t, stack.Taken, arriveOne(l, 0, b, frame), "the frame alone")
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	require.Equal(t, stack.Taken, arriveOne(l, 0, b, frame), "after the decision")
	require.Equal(t, stack.Taken, arriveOne(l, 0, b, append(bytes.Clone(frame), fpdu...)))
	require.Equal(t, "once", string(s.region.Bytes()[:4]))
	r.hosts[0].pool.Free(b)
	s.qp.Abort() // this connection's TCP knows nothing of what was offered by hand
	s.awaitClosed()
}

// Start-up takes octets in order only; what overtakes is refused and comes again.
func TestStartupReordered(t *testing.T) {
	r := newRig(t, turned, rigConfig{faults: true})
	p := r.peerDials()
	require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{Reorder: 0.3}, fault.Faults{}))
	for _, b := range request(mpa.Frame{Rev: 1, CRC: true, PrivateData: []byte("a few octets")}) {
		p.write([]byte{b})
	}
	req := r.request()
	require.Equal(t, "a few octets", string(req.PrivateData()))
	require.NoError(t, r.hosts[0].faulty.Set(fault.Faults{}, fault.Faults{}))
	s := r.newEnd(r.server, opts{})
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	require.True(t, p.expectFrame(mpa.Reply).CRC)
}

// StartupOver returns when the Initiator's first FPDU has come, or its RTR message, or the
// connection's end.
func TestStartupOver(t *testing.T) {
	probe, cancel := context.WithCancel(context.Background())
	cancel()
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(opts{}, opts{ConnParam: ConnParam{Dialect: RFC6581, PeerToPeer: true}})
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
	})
}
