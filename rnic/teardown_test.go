package rnic

import (
	"bytes"
	"encoding/binary"
	"io"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/tcp"
)

// open lets p's first FPDU arrive, an empty Write, so that the Responder may speak.
func (p *rawInitiator) open() { p.write(p.fpdu(writeTo(0, 0), nil)) }

// wantSend waits for the server's next FPDU, a Send with this MSN that is all of want.
func (p *rawInitiator) wantSend(msn uint32, want []byte) {
	p.r.t.Helper()
	u := p.next()
	h, n, ok := ddp.Parse(u)
	require.True(p.r.t, ok)
	require.Equal(p.r.t, sendOf(msn), h)
	require.Equal(p.r.t, want, u[n:])
}

// A peer that has closed its half still hears what is posted afterwards, when that was chosen, until our end closes too: the
// state tells, no timer runs, and the close is graceful behind what was posted.
//
// req: DDP-8.2.1-4, DDP-8.2.1-5, DDP-8.2-2, C02-8.2-2
func TestHalfClosedByPeer(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{AllowHalfClosed: true}})
		p, _ := r.startRaw(s, false)
		p.open()
		p.closeSend()
		r.until("the half-closed state", func() bool { return s.qp.State() == Closing })
		for i := range 3 {
			require.NoError(t, errOf(s.qp.PostSend(WorkRequest{Op: OpSend, ID: uint64(i), Local: s.source.Slice(i, 100), Signaled: true})))
			p.wantSend(uint32(i+1), s.source.Bytes()[i:i+100])
			if r.kind == turned {
				r.pass(3 * connect.CloseTimeout)
			}
		}
		require.False(t, isDone(s.qp))
		require.NoError(t, p.ended())
		require.Len(t, r.await(s, 3), 3)
		require.NoError(t, errOf(s.qp.PostSend(WorkRequest{Op: OpSend, ID: 9, Local: s.source.Slice(0, 100)})))
		s.qp.Disconnect()
		p.wantSend(4, s.source.Bytes()[:100])
		require.Equal(t, io.EOF, p.untilEnded())
		r.untilDone(s.qp)
		require.NoError(t, s.qp.Err())
		require.Empty(t, r.server.host.Live())
	})
}

// A Responder that was never allowed to speak has no half to keep open.
func TestHalfClosedWithoutAVoice(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{AllowHalfClosed: true}})
		p, _ := r.startRaw(s, false)
		p.closeSend()
		r.untilDone(s.qp)
		require.NoError(t, s.qp.Err())
	})
}

// A half that was left open ends in error when the peer resets it.
func TestHalfClosedThenReset(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{ConnParam: ConnParam{AllowHalfClosed: true}})
		p, _ := r.startRaw(s, false)
		p.open()
		p.closeSend()
		r.until("the half-closed state", func() bool { return s.qp.State() == Closing })
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

// Behind our own close the peer still speaks, and is heard: Writes and Sends, into buffers posted before and after.
//
// req: DDP-8.2.1-6, D01-6.2-1
func TestReceiveBehindOwnClose(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s := r.newEnd(r.server, opts{})
		require.NoError(t, errOf(s.qp.PostRecv(s.recvAt(1, 0, 100))))
		p, _ := r.startRaw(s, false)
		p.open()
		s.qp.Disconnect()
		require.Equal(t, io.EOF, p.untilEnded())
		require.Equal(t, Closing, s.qp.State())
		require.NoError(t, errOf(s.qp.PostRecv(s.recvAt(2, 100, 100))))
		p.write(p.fpdu(writeTo(s.region.STag(), 5), []byte("written")))
		p.write(p.fpdu(sendOf(1), []byte("before")))
		p.write(p.fpdu(sendOf(2), []byte("behind")))
		n := s.qp.Number()
		require.Equal(t, []Completion{{ID: 1, QP: n, Op: OpRecv, Len: 6}, {ID: 2, QP: n, Op: OpRecv, Len: 6}}, r.await(s, 2))
		require.Equal(t, "written", string(s.region.Bytes()[5:12]))
		require.Equal(t, "before", string(s.inbox.Bytes()[:6]))
		require.Equal(t, "behind", string(s.inbox.Bytes()[100:106]))
		require.False(t, isDone(s.qp), "closed before the peer was")
		p.closeSend()
		r.untilDone(s.qp)
		require.NoError(t, s.qp.Err())
	})
}

// What was posted before an orderly close is sent, to its last octet; what is posted behind it is an error of the call, while
// the connection still closes and when it is gone, and nothing of it is sent.
//
// req: DDP-8.2.1-1, DDP-8.2.1-2, DDP-4-1
func TestPostBehindOwnClose(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const n = 1 << 20
		s := r.newEndOf(r.server, opts{}, n)
		p, _ := r.startRaw(s, false)
		p.open()
		require.NoError(t, errOf(s.qp.PostSend(WorkRequest{Op: OpSend, ID: 1, Local: s.source.Slice(0, n), Signaled: true})))
		s.qp.Disconnect()
		refused := func() {
			t.Helper()
			require.ErrorIs(t, errOf(s.qp.PostSend(WorkRequest{Op: OpSend, ID: 2, Local: s.source.Slice(0, 10)})), ErrClosed)
			require.ErrorIs(t, errOf(s.qp.PostSend(WorkRequest{Op: OpWrite, ID: 3, Local: s.source.Slice(0, 10)})), ErrClosed)
		}
		refused()
		var got []byte
		for len(got) < n {
			got = append(got, p.next()[ddp.UntaggedLen:]...)
		}
		require.True(t, bytes.Equal(s.source.Bytes(), got))
		require.Equal(t, io.EOF, p.untilEnded())
		require.Len(t, p.octets(), p.at, "octets of what was posted too late")
		refused()
		p.closeSend()
		r.untilDone(s.qp)
		refused()
		require.NoError(t, s.qp.Err())
		require.Equal(t, []Completion{{ID: 1, QP: s.qp.Number(), Op: OpSend, Len: n}}, r.await(s, 1))
		require.Zero(t, s.cq.q.Promised())
	})
}

// An error in what the peer sends marks the connection, and what waits to be sent waits in vain: one message goes out, the
// Terminate, then our FIN, and nothing else, however much was posted before and is posted behind it. The connection is gone
// when the peer has closed its half.
//
// req: DDP-5-9, DDP-5-10, DDP-5-13, DDP-8.2.2-5, DDP-9.1-14, 5040-5.4-5, 5041-3-1
func TestNothingPostedFollowsATerminate(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const requests, size = 32, 1 << 20
		s := r.newEndOf(r.server, opts{QPOptions: QPOptions{SendDepth: requests}}, size)
		p, _ := r.startRaw(s, false)
		p.open()
		for i := range requests {
			require.NoError(t, errOf(s.qp.PostSend(WorkRequest{Op: OpSend, ID: uint64(i), Local: s.source.Slice(0, size), Signaled: true})))
		}
		p.next() // the first message has begun
		p.write(p.fpdu(writeTo(0xdead, 0), []byte("wrong")))
		r.until("the mark", func() bool { return s.qp.State() == Terminating })
		late := errOf(s.qp.PostSend(WorkRequest{Op: OpSend, ID: requests, Local: s.source.Slice(0, size)})) == nil // it may be too late for this, too

		sent := 0
		for {
			u := p.next()
			h, n, ok := ddp.Parse(u)
			require.True(t, ok)
			if h.QN == rdmap.QNTerminate {
				term, ok := rdmap.ParseTerminate(u[n:])
				require.True(t, ok)
				require.Equal(t, rdmap.Cause(0x1100), term.Cause)
				break
			}
			if h.Last {
				sent++
			}
		}
		require.Equal(t, io.EOF, p.untilEnded())
		require.Len(t, p.octets(), p.at, "octets behind the Terminate")
		p.closeSend()
		r.untilDone(s.qp)
		require.Empty(t, r.server.host.Live())

		want := requests
		if late {
			want++
		}
		for i, c := range r.await(s, want) {
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
		p, _ := r.startRaw(s, false)
		p.open()
		for i := range requests {
			require.NoError(t, errOf(s.qp.PostSend(WorkRequest{Op: OpSend, ID: uint64(i), Local: s.source.Slice(0, size), Signaled: true})))
		}
		p.next()
		h := ddp.Header{Last: true, Version: 1, ULP: rdmap.Control(1, rdmap.OpTerminate), QN: rdmap.QNTerminate, MSN: 1}
		p.write(p.fpdu(h, []byte{0x11, 0x01, 0, 0}))
		require.Equal(t, io.EOF, p.untilEnded())
		require.Less(t, len(p.octets()), requests*size, "it sent everything nevertheless")
		p.closeSend()
		r.untilDone(s.qp)
		cs := r.await(s, requests)
		require.Equal(t, Flushed, cs[requests-1].Status)
		for i, c := range cs {
			require.Equal(t, uint64(i), c.ID)
		}
	})
}

// DDP finds an error and does not end the stream by itself: the ULP, here RDMAP, does, once its Terminate is out. While the
// peer's window is closed there is neither FIN nor RST; then the Terminate comes, and then the FIN.
//
// req: DDP-8.2-1, DDP-8.2.2-6, 5040-6.2.1-3
func TestStreamOutlivesItsErrorUntilTheTerminateIsOut(t *testing.T) {
	h := newHostile(t, hostileConfig{bufs: 1024, connsMax: 8})
	q := h.newQP(opts{})
	c, p := h.startUp(4000, 1460, q)
	replied := c.next
	lo := len(c.stream)
	c.stream = append(c.stream, p.fpdu(writeTo(0x1234, 0), []byte("x"))...)
	say := func(window uint16, lo, hi int) {
		h.send(c, c.seq(lo), replied, tcp.ACK, window, c.options(), c.stream[lo:hi])
		h.turn(10 * time.Millisecond)
	}
	say(0, lo, len(c.stream))
	require.Equal(t, Terminating, q.State())
	for range 100 {
		say(0, len(c.stream), len(c.stream))
	}
	require.False(t, c.reset)
	require.False(t, isDone(q))
	require.LessOrEqual(t, len(c.in), 1, "a probe of the window at the most")
	replied = c.next
	for range 10 {
		say(65535, len(c.stream), len(c.stream))
		replied = c.next
	}
	head, n, ok := ddp.Parse(c.in[2:])
	require.True(t, ok)
	require.Equal(t, uint32(rdmap.QNTerminate), head.QN)
	size := (2+int(binary.BigEndian.Uint16(c.in))+3)&^3 + 4
	require.Len(t, c.in, size)
	term, ok := rdmap.ParseTerminate(c.in[2+n : size-mpa.CRCLen])
	require.True(t, ok)
	require.Equal(t, rdmap.Cause(0x1100), term.Cause)
	require.Equal(t, mpa.FrameLen+size+1, c.next.Sub(c.irs+1), "a FIN behind it")
	require.False(t, c.reset)
}

// Behind the peer's FIN there is nothing: octets that carry sequence numbers beyond it are no part of the stream, however
// well framed, and the stream ends as the FIN says. A FIN in front of octets that were taken already is none.
//
// req: DDP-8.2.1-3
func TestOctetsBehindAFIN(t *testing.T) {
	for name, ahead := range map[string]bool{"later": false, "taken before the FIN": true} {
		t.Run(name, func(t *testing.T) {
			h := newHostile(t, hostileConfig{bufs: 1024, connsMax: 8})
			q, region, c, p := h.orderly()
			lo := len(c.stream)
			c.stream = append(c.stream, p.fpdu(writeTo(region.STag(), 0), []byte("first"))...)
			mid := len(c.stream)
			c.stream = append(c.stream, p.fpdu(writeTo(region.STag(), 8), []byte("behind"))...)
			if ahead {
				h.octets(c, mid, len(c.stream), 0)
				h.turn(time.Millisecond)
			}
			h.octets(c, lo, mid, tcp.FIN)
			h.turn(time.Millisecond)
			for _, shift := range []tcp.Seq{0, 1} { // in the FIN's place, and behind it
				h.send(c, c.seq(mid)+shift, c.next, tcp.ACK, 65535, c.options(), c.stream[mid:])
				h.turn(time.Millisecond)
			}
			require.Equal(t, "first", string(region.Bytes()[:5]))
			if ahead {
				require.Equal(t, RTS, q.State(), "a FIN that lies is not taken")
				return
			}
			require.Equal(t, make([]byte, 6), region.Bytes()[8:14])
			h.octets(c, mid, mid, 0) // acknowledges nothing new; our FIN is out
			h.send(c, c.seq(mid)+1, c.next, tcp.ACK, 65535, c.options(), nil)
			h.turns(3, time.Millisecond)
			require.True(t, isDone(q))
			require.NoError(t, q.Err())
			require.Equal(t, uint64(1), q.end.Final.Engine.WritesRecvd)
		})
	}
}

// Whoever closes, and whether gracefully or for an error: both ends hear of the end of the stream, which over TCP is that of
// the connection, the connection is gone, and only an error is told as one.
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
				r.until("both connections gone", func() bool { return len(r.server.host.Live())+len(r.client.host.Live()) == 0 })
			})
		})
	}
}
