package rnic

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/tcp"
)

// open lets p's first FPDU arrive, an empty Write, so that the Responder may speak.
func (p *peer) open() { p.inject(writeFPDU(0, 0, "")) }

// wantSend waits for the server's next FPDU, a Send with this MSN that is all of want.
func (p *peer) wantSend(msn uint32, want []byte) {
	p.d.t.Helper()
	p.expectFPDU(sendFPDU(msn, want))
}

// A peer that has closed its half still hears what is posted afterwards, when that was chosen,
// until our end closes too: the state tells, no timer runs, and the close is graceful after what
// was posted.
//
// req: DDP-8.2.1-4, DDP-8.2.1-5, DDP-8.2-2, C02-8.2-2
func TestHalfClosedByPeer(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{AllowHalfClosed: true}})
		p, _ := r.peerConnects(s, false)
		p.open()
		p.closeSend()
		s.expectState(Closing)
		for i := range 3 {
			s.post(WorkRequest{Op: OpSend, ID: uint64(i), Local: s.source.Slice(i, 100), Signaled: true})
			p.wantSend(uint32(i+1), s.source.Bytes()[i:i+100])
			if r.kind == turned {
				r.pass(3 * connect.CloseTimeout)
			}
		}
		require.False(t, isDone(s.qp))
		require.NoError(t, p.ended())
		require.Len(t, s.await(3), 3)
		s.post(WorkRequest{Op: OpSend, ID: 9, Local: s.source.Slice(0, 100)})
		s.qp.Disconnect()
		p.wantSend(4, s.source.Bytes()[:100])
		p.expectFIN()
		s.expectClosed()
		require.Empty(t, r.server.host.Live())
	})
}

// A Responder that was never allowed to speak has no half to keep open.
func TestHalfClosedWithoutAVoice(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{AllowHalfClosed: true}})
		p, _ := r.peerConnects(s, false)
		p.closeSend()
		s.expectClosed()
	})
}

// A half that was left open ends in error when the peer resets it.
func TestHalfClosedThenReset(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{AllowHalfClosed: true}})
		p, _ := r.peerConnects(s, false)
		p.open()
		p.closeSend()
		s.expectState(Closing)
		p.reset()
		for i := 0; !isDone(s.qp); i++ { // a kernel socket tells when it is written to
			_, _ = s.qp.PostSend(WorkRequest{Op: OpSend, Local: s.source.Slice(0, 100)}) // full, or over
			if r.kind == turned {
				r.step()
				require.Less(t, i, stepsMax)
				continue
			}
			require.NoError(t, r.ctx.Err())
			yield()
		}
		require.Error(t, s.qp.Err())
	})
}

// After our own close the peer still speaks, and is heard: Writes and Sends, into buffers posted
// before and after.
//
// req: DDP-8.2.1-6, D01-6.2-1
func TestReceiveAfterOwnClose(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		s.postRecv(s.recvAt(1, 0, 100))
		p, _ := r.peerConnects(s, false)
		p.open()
		s.qp.Disconnect()
		p.expectFIN()
		require.Equal(t, Closing, s.qp.State())
		s.postRecv(s.recvAt(2, 100, 100))
		p.inject(writeFPDU(s.region.STag(), 5, "written"))
		p.inject(sendFPDU(1, "before"))
		p.inject(sendFPDU(2, "beyond"))
		n := s.qp.Number()
		s.expectCompletions(Completion{ID: 1, QP: n, Op: OpRecv, Len: 6},
			Completion{ID: 2, QP: n, Op: OpRecv, Len: 6})
		require.Equal(t, "written", string(s.region.Bytes()[5:12]))
		require.Equal(t, "before", string(s.inbox.Bytes()[:6]))
		require.Equal(t, "beyond", string(s.inbox.Bytes()[100:106]))
		require.False(t, isDone(s.qp), "closed before the peer was")
		p.closeSend()
		s.expectClosed()
	})
}

// What was posted before an orderly close is sent, to its last octet; what is posted after it is
// an error of the call, while the connection still closes and when it is gone, and nothing of it
// is sent.
//
// req: DDP-8.2.1-1, DDP-8.2.1-2, DDP-4-1
func TestPostAfterOwnClose(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const n = 1 << 20
		s := r.newEndOf(r.server, opts{}, n)
		p, _ := r.peerConnects(s, false)
		p.open()
		s.post(WorkRequest{Op: OpSend, ID: 1, Local: s.source.Slice(0, n), Signaled: true})
		s.qp.Disconnect()
		refused := func() {
			t.Helper()
			require.ErrorIs(
				t, errOf(s.qp.PostSend(WorkRequest{Op: OpSend, ID: 2, Local: s.source.Slice(0, 10)})),
				ErrClosed)
			require.ErrorIs(
				t, errOf(s.qp.PostSend(WorkRequest{Op: OpWrite, ID: 3, Local: s.source.Slice(0, 10)})),
				ErrClosed)
		}
		refused()
		var got []byte
		for len(got) < n {
			got = append(got, p.nextFPDU().payload...)
		}
		require.True(t, bytes.Equal(s.source.Bytes(), got))
		p.expectFIN() // nothing of what was posted too late
		refused()
		p.closeSend()
		s.awaitClosed()
		refused()
		require.NoError(t, s.qp.Err())
		s.expectCompletions(Completion{ID: 1, Op: OpSend, Len: n})
		require.Zero(t, s.cq.q.Promised())
	})
}

// An error in what the peer sends marks the connection, and what waits to be sent waits in vain:
// one message goes out, the Terminate, then our FIN, and nothing else, however much was posted
// before and is posted after it. The connection is gone when the peer has closed its half.
//
// req: DDP-5-9, DDP-5-10, DDP-5-13, DDP-8.2.2-5, DDP-9.1-14, 5040-5.4-5, 5041-3-1
func TestNothingPostedFollowsATerminate(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const requests, size = 32, 1 << 20
		s := r.newEndOf(r.server, opts{QPOptions: QPOptions{SendDepth: requests}}, size)
		p, _ := r.peerConnects(s, false)
		p.open()
		for i := range requests {
			s.post(WorkRequest{Op: OpSend, ID: uint64(i), Local: s.source.Slice(0, size), Signaled: true})
		}
		p.nextFPDU() // the first message has begun
		p.inject(writeFPDU(0xdead, 0, "wrong"))
		s.expectState(Terminating)
		// it may be too late for this, too
		late := errOf(
			s.qp.PostSend(WorkRequest{Op: OpSend, ID: requests, Local: s.source.Slice(0, size)})) == nil

		sent := 0
		for {
			f := p.nextFPDU()
			if f.QN == rdmap.QNTerminate {
				term, ok := rdmap.ParseTerminate(f.payload)
				require.True(t, ok)
				require.Equal(t, rdmap.Cause(0x1100), term.Cause)
				break
			}
			if f.Last {
				sent++
			}
		}
		p.expectFIN() // nothing after the Terminate
		p.closeSend()
		s.awaitClosed()
		require.Empty(t, r.server.host.Live())

		want := requests
		if late {
			want++
		}
		for i, c := range s.await(want) {
			require.Equal(t, uint64(i), c.ID)
			require.Equal(t, i >= sent, c.Status == Flushed, "request %d of which %d were sent", i, sent)
		}
		require.Less(t, sent, requests, "nothing was left to withhold")
	})
}

// A Terminate of the peer's stops us in the middle of a message, and what was posted comes back.
//
// req: 5040-5.4-6, 5040-6.2.1-2
func TestPeersTerminateStopsUs(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const requests, size = 32, 1 << 20
		s := r.newEndOf(r.server, opts{QPOptions: QPOptions{SendDepth: requests}}, size)
		p, _ := r.peerConnects(s, false)
		p.open()
		for i := range requests {
			s.post(WorkRequest{Op: OpSend, ID: uint64(i), Local: s.source.Slice(0, size), Signaled: true})
		}
		p.nextFPDU()
		p.inject(terminateFPDU([]byte{0x11, 0x01, 0, 0}))
		p.skipToFIN()
		require.Less(t, len(p.octets()), requests*size, "it sent everything nevertheless")
		p.closeSend()
		s.awaitClosed()
		cs := s.await(requests)
		require.Equal(t, Flushed, cs[requests-1].Status)
		for i, c := range cs {
			require.Equal(t, uint64(i), c.ID)
		}
	})
}

// DDP finds an error and does not end the stream by itself: the ULP, here RDMAP, does, once its
// Terminate is out. While the peer's window is closed there is neither FIN nor RST; then the
// Terminate comes, and then the FIN.
//
// req: DDP-8.2-1, DDP-8.2.2-6, 5040-6.2.1-3
func TestStreamOutlivesItsErrorUntilTheTerminateIsOut(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 1024, connsMax: 8})
	s := h.newEnd(opts{})
	c := h.startUp(4000, 1460, s)
	replied := c.next
	from, to := c.say(writeFPDU(0x1234, 0, "x"))
	say := func(window uint16, lo, hi int) {
		h.send(c, c.seq(lo), replied, tcp.ACK, window, c.options(), c.stream[lo:hi])
		h.turn(10 * time.Millisecond)
	}
	say(0, from, to)
	require.Equal(t, Terminating, s.qp.State())
	for range 100 {
		say(0, len(c.stream), len(c.stream))
	}
	require.False(t, c.peerReset)
	require.False(t, isDone(s.qp))
	require.LessOrEqual(t, len(c.in)-c.at, 1, "a probe of the window at the most")
	replied = c.next
	for range 10 {
		say(65535, len(c.stream), len(c.stream))
		replied = c.next
	}
	c.expectTerminateFor(0x1100)
	c.expectFIN()
	require.Equal(t, c.at+1, c.next.Sub(c.irs+1), "octets of the stream, and the FIN after them")
}

// After the peer's FIN there is nothing: octets that carry sequence numbers beyond it are no part
// of the stream, however well framed, and the stream ends as the FIN says. A FIN in front of
// octets that were taken already is none.
//
// req: DDP-8.2.1-3
func TestOctetsAfterAFIN(t *testing.T) {
	for name, ahead := range map[string]bool{"later": false, "taken before the FIN": true} {
		t.Run(name, func(t *testing.T) {
			h := newSegmentRig(t, segmentRigConfig{bufs: 1024, connsMax: 8})
			q, region, c := h.orderly()
			lo, mid := c.say(writeFPDU(region.STag(), 0, "first"))
			_, hi := c.say(writeFPDU(region.STag(), 8, "beyond"))
			if ahead {
				c.sendOctets(mid, hi, 0)
				h.turn(time.Millisecond)
			}
			c.sendOctets(lo, mid, tcp.FIN)
			h.turn(time.Millisecond)
			for _, shift := range []tcp.Seq{0, 1} { // in the FIN's place, and after it
				h.send(c, c.seq(mid)+shift, c.next, tcp.ACK, 65535, c.options(), c.stream[mid:])
				h.turn(time.Millisecond)
			}
			require.Equal(t, "first", string(region.Bytes()[:5]))
			if ahead {
				require.Equal(t, RTS, q.State(), "a FIN that lies is not taken")
				return
			}
			require.Equal(t, make([]byte, 6), region.Bytes()[8:14])
			c.sendOctets(mid, mid, 0) // acknowledges nothing new; our FIN is out
			h.send(c, c.seq(mid)+1, c.next, tcp.ACK, 65535, c.options(), nil)
			h.turns(3, time.Millisecond)
			require.True(t, isDone(q))
			require.NoError(t, q.Err())
			last, err := q.end.Stats(t.Context())
			require.NoError(t, err)
			require.Equal(t, uint64(1), last.Engine.WritesRecvd)
		})
	}
}

// Whichever end closes, and whether gracefully or for an error: both ends hear of the end of the
// stream, which over TCP is that of the connection, the connection is gone, and only an error is
// told as one.
//
// req: DDP-5-11, DDP-5-12, DDP-5-13, DDP-8.2-2, 5041-3-1, C02-8.2-1
func TestEndOfStreamIsEndOfConnection(t *testing.T) {
	for _, tc := range []struct {
		name     string
		end      func(t *testing.T, s, c *end)
		graceful bool
	}{
		{"close", func(_ *testing.T, s, c *end) { c.qp.Disconnect() }, true},
		{"close at the other end", func(_ *testing.T, s, c *end) { s.qp.Disconnect() }, true},
		{"close at both", func(_ *testing.T, s, c *end) { s.qp.Disconnect(); c.qp.Disconnect() }, true},
		{"DDP error", func(t *testing.T, s, c *end) {
			require.NoError(t, c.wrong(s, func(wr *WorkRequest) { wr.RemoteSTag++ }))
		}, false},
		{"abort", func(_ *testing.T, s, c *end) { c.qp.Abort() }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
				s, c := r.connect(opts{}, opts{})
				r.exchange(s, c)
				require.Len(t, r.server.host.Live(), 1)
				tc.end(t, s, c)
				for _, q := range []*QueuePair{s.qp, c.qp} {
					r.untilDone(q)
					require.Equal(t, Closed, q.State())
					require.Equal(t, tc.graceful, q.Err() == nil, "%v", q.Err())
				}
				r.until("both connections gone", func() bool {
					return len(r.server.host.Live())+len(r.client.host.Live()) == 0
				})
			})
		})
	}
}
