package rnic

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// hasty is a raw Initiator that does not wait for anything, on a turned rig, and the connection's
// other end, a stream.
type hasty struct {
	*peer
	r    *rig
	conn net.Conn
	log  *segmentLog // of what the Initiator sends
	at   int         // of the log's stream: where MPA begins
}

var hello = []byte("let us speak MPA")

// newHasty connects one; hello was said and heard.
func newHasty(t *testing.T, cfg rigConfig, opts stream.Options) *hasty {
	r, log := logged(t, cfg)
	log.port = streamPort
	p := &hasty{r: r, log: log, at: len(hello)}
	raw := r.newPollerStream(r.hosts[1])
	p.peer = r.newPeer(raw)
	p.start(mpa.Mode{CRC: true})
	r.blocking(func() error {
		l, err := stream.Listen([]*stack.Poller{r.hosts[0].poller}, streamPort, opts)
		if err != nil {
			return err
		}
		client := r.hosts[1].poller
		err = client.Submit(func() {
			var err error
			raw.Conn, err = client.Dial(netip.AddrPortFrom(r.hosts[0].poller.Addr(), streamPort), raw)
			raw.fail(err)
		})
		if err == nil {
			p.conn, err = l.Accept()
		}
		if err == nil {
			err = l.Close()
		}
		return err
	})
	p.write(hello)
	r.hear(p.conn, hello)
	t.Cleanup(func() { _ = p.conn.Close() })
	return p
}

// dribble writes b in segments of the sizes that cut says.
func (p *hasty) dribble(b []byte, cut func() int) {
	for len(b) > 0 {
		n := min(len(b), cut())
		p.write(b[:n])
		b = b[n:]
	}
}

// lose has the segment with octet k of MPA's stream lost, each time it is sent, until it is set
// to nil.
func (p *hasty) lose(k int) {
	p.log.lose = func(s loggedSegment) bool { return s.off <= p.at+k && p.at+k < s.off+len(s.data) }
}

func octetByOctet() int { return 1 }

// respond has the Responder enter MPA, and returns the peer's Request.
func (p *hasty) respond() *ConnRequest {
	p.r.t.Helper()
	l := must(p.r.server.respond(p.r.ctx, p.conn, nil, ListenOptions{}))
	req := must(l.nextRequest(p.r.ctx))
	return req
}

// The Request, octet by octet, and an FPDU after it are there before the Responder enters MPA,
// except one octet: any of them. What is there was acknowledged, and is used when the gap is
// filled, before or after the ULP has decided.
//
// req: 5044-7.1.5-1, D01-6.1.4-3, D01-6.1-1, D01-6.1-13
func TestHandedOverAroundAGap(t *testing.T) {
	private := []byte("a few octets")
	frame := request(mpa.Frame{Rev: 1, CRC: true, PrivateData: private})
	for k := range len(frame) + 28 {
		p := newHasty(t, rigConfig{}, stream.Options{})
		r := p.r
		s := r.newEnd(r.server, connOpts(ConnParam{NoMarkers: true, DropBadCRC: k%2 == 0}))
		fpdu := p.frame(writeFPDU(s.region.STag(), 3, "hasty"))
		require.GreaterOrEqual(t, len(fpdu), 24)
		p.lose(k)
		p.dribble(append(frame[:len(frame):len(frame)], fpdu...), octetByOctet)
		r.pass(300 * time.Millisecond)
		l, err := r.server.respond(r.ctx, p.conn, nil, ListenOptions{})
		require.NoError(t, err, "octet %d", k)
		if pool := r.hosts[0].pool; k == 0 {
			require.Less(t, pool.Available(), pool.Size()-1, "what is beyond the gap waits")
		}
		r.step()
		if k < len(frame) {
			require.Empty(t, l.requests)
			p.log.lose = nil
		}
		req, err := l.nextRequest(r.ctx)
		require.NoError(t, err, "octet %d", k)
		require.Equal(t, private, req.PrivateData())
		require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
		p.log.lose = nil
		p.expectFrame(mpa.Reply)
		r.until("the hasty octets in memory", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
		require.Equal(t, "\x00hasty\x00", string(s.region.Bytes()[2:9]))
		p.inject(writeFPDU(s.region.STag(), 20, "later"))
		r.until("later octets", func() bool { return r.stats(s.qp).WritesRecvd == 2 })
		require.Equal(t, "later", string(s.region.Bytes()[20:25]))
		p.leave(s)
		require.NoError(t, s.qp.Err())
		r.noBufLost()
	}
}

// What a peer sends after its Request is kept within bounds: some of it, or the connection ends.
func TestHandedOverBounds(t *testing.T) {
	const payload = 1400
	for _, tc := range []struct {
		name  string
		fpdus int
		short bool // the pool is
		want  error
	}{
		{"within", 200, false, nil},
		{"too many", 600, false, connect.ErrPipelined},
		{"few, of a pool that is short", 30, true, connect.ErrPipelined},
		{"the Request alone, of a pool that is short", 0, true, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newHasty(t, rigConfig{pool: 4096}, stream.Options{ReceiveWindow: 1 << 20})
			r, pool := p.r, p.r.hosts[0].pool
			s := r.newEndOf(r.server, unmarked, 1<<20)
			b := request(mpa.Frame{Rev: 1, CRC: true})
			data := randomBytes(1, tc.fpdus*payload)
			for i := range tc.fpdus {
				b = append(
					b, p.frame(writeFPDU(s.region.STag(), uint64(i*payload), data[i*payload:][:payload]))...)
			}
			if tc.fpdus == 0 {
				p.lose(0)
				p.dribble(b, octetByOctet)
			} else {
				p.write(b)
			}
			r.pass(2 * time.Second)
			var taken []mem.Buf
			for tc.short && pool.Available() >= r.hosts[0].poller.Budget().Spare-64 {
				taken = append(taken, pool.Alloc())
			}
			l := must(r.server.respond(r.ctx, p.conn, nil, ListenOptions{}))
			p.log.lose = nil
			if tc.want == nil {
				req := must(l.nextRequest(r.ctx))
				require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
				r.until("all octets", func() bool { return r.stats(s.qp).WritesRecvd == uint64(tc.fpdus) })
				require.Equal(t, data, s.region.Bytes()[:len(data)])
				s.qp.Abort()
				s.awaitClosed()
			} else {
				r.until("its end", func() bool { return len(r.server.host.Live()) == 0 })
				_, err := l.nextRequest(r.ctx)
				require.ErrorIs(t, err, tc.want)
				p.expectReset()
			}
			for _, b := range taken {
				pool.Free(b)
			}
			r.noBufLost()
		})
	}
}

// The stream's window was shut, for nobody read from it: MPA opens it as it enters.
func TestHandedOverWindow(t *testing.T) {
	p := newHasty(t, rigConfig{}, stream.Options{ReceiveWindow: 2000, ReceiveWindowMax: 2000})
	r := p.r
	s := r.newEnd(r.server, unmarked)
	want := randomBytes(1, 40_000)
	b := request(mpa.Frame{Rev: 1, CRC: true})
	for at := 0; at < len(want); at += 1000 {
		b = append(b, p.frame(writeFPDU(s.region.STag(), uint64(at), want[at:][:1000]))...)
	}
	p.write(b)
	r.pass(2 * time.Second)
	req := p.respond()
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	begin := r.time
	r.until("all octets", func() bool { return r.stats(s.qp).WritesRecvd == 40 })
	require.Less(t, r.time-begin, int64(time.Second))
	require.Equal(t, want, s.region.Bytes()[:len(want)])
	wnd := 0
	require.NoError(t, r.hosts[1].poller.Submit(func() {
		wnd = p.peerStream.(*pollerStream).conn.Stats().SndWnd
	}))
	r.step()
	require.Greater(t, wnd, 1<<18, "octets the peer may send")
}

// Streaming octets beyond a gap are unread, too.
//
// req: D01-6.1.4-1
func TestUnreadBeyondAGap(t *testing.T) {
	p := newHasty(t, rigConfig{}, stream.Options{})
	r := p.r
	p.lose(0)
	p.dribble([]byte("more"), octetByOctet)
	r.pass(100 * time.Millisecond)
	_, err := r.server.AcceptStream(r.ctx, p.conn, helloAck)
	require.ErrorIs(t, err, ErrUnread)
	p.log.lose = nil
	r.hear(p.conn, []byte("more"))
	must(r.server.respond(r.ctx, p.conn, helloAck, ListenOptions{}))
	p.reset()
	r.until("the end", func() bool { return len(r.server.host.Live()) == 0 })
	r.noBufLost()
}

// Octets that nobody comes to want are freed, however the connection ends.
func TestHandedOverInVain(t *testing.T) {
	for name, end := range map[string]func(r *rig, p *hasty, l awaited){
		"peer resets": func(r *rig, p *hasty, l awaited) {
			req := must(l.nextRequest(r.ctx))
			p.reset()
			r.until("the reset", func() bool { return len(r.server.host.Live()) == 0 })
			require.ErrorIs(r.t, req.Accept(r.ctx, r.newEnd(r.server, opts{}).qp, ConnParam{}),
				stack.ErrReset)
		},
		"rejected": func(r *rig, p *hasty, l awaited) {
			require.NoError(r.t, must(l.nextRequest(r.ctx)).Reject(r.ctx, nil))
			require.True(r.t, p.expectFrame(mpa.Reply).Reject)
			p.closeSend()
		},
		"not decided": func(r *rig, _ *hasty, l awaited) {
			req := must(l.nextRequest(r.ctx))
			r.fire(r.server)
			require.ErrorIs(r.t, req.Reject(r.ctx, nil), connect.ErrUndecided)
		},
		"revision": func(r *rig, p *hasty, l awaited) {
			_, err := l.nextRequest(r.ctx)
			require.ErrorContains(r.t, errorAs[*RevisionError](r.t, err),
				"rnic: peer speaks MPA revision 9, served here: rddp-01")
			require.Equal(r.t, uint8(2), p.expectFrame(mpa.Reply).Rev)
			p.closeSend()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newHasty(t, rigConfig{}, stream.Options{})
			r, pool := p.r, p.r.hosts[0].pool
			f := request(mpa.Frame{Rev: 1, CRC: true})
			if name == "revision" {
				f[17] = 9
			}
			p.write(append(f, p.frame(writeFPDU(1, 0, make([]byte, 5000)))...))
			r.pass(time.Second)
			require.Less(t, pool.Available(), pool.Size()-2)
			end(r, p, must(r.server.respond(r.ctx, p.conn, nil, ListenOptions{})))
			r.until("the end", func() bool { return len(r.server.host.Live()) == 0 })
			r.noBufLost()
		})
	}
}

// A bad CRC among octets that TCP has acknowledged is an error, also where a segment would be
// dropped: it would not come again.
//
// req: D01-7-2, C02-9-2
func TestBadCRCHandedOver(t *testing.T) {
	p := newHasty(t, rigConfig{}, stream.Options{})
	r := p.r
	s := r.newEnd(r.server, connOpts(ConnParam{NoMarkers: true, DropBadCRC: true}))
	b := p.frame(writeFPDU(s.region.STag(), 0, "bad"))
	b[len(b)-1] ^= 1
	p.write(append(request(mpa.Frame{Rev: 1, CRC: true}), b...))
	r.pass(time.Second)
	req := p.respond()
	require.NoError(t, req.Accept(r.ctx, s.qp, s.conn))
	s.expectState(Terminating)
	p.leave(s)
	s.expectMPAError(mpa.ErrCRC)
	r.noBufLost()
}
