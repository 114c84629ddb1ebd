package rnic

import (
	"bytes"
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/connect"
	"github.com/rnicd/rnicd/stack"
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
// req: DDP-6.3-7, DDP-6.3-8, DDP-6.3-10, 5040-3.1-4
func TestHalfClosedByPeer(t *testing.T) {
	r, s, p := served(t, connOpts(ConnParam{AllowHalfClosed: true}))
	p.open()
	p.closeSend()
	s.expectState(Closing)
	for i := range 3 {
		s.post(s.send(uint64(i), i, 100))
		p.wantSend(uint32(i+1), s.source.Bytes()[i:i+100])
		r.pass(3 * connect.CloseTimeout)
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
}

// A Close whose context ends gives up what it waits for.
func TestCloseGivenUp(t *testing.T) {
	_, s, p := served(t, opts{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, s.qp.Close(ctx), context.Canceled)
	p.expectReset()
}

// A half that was left open ends in error when the peer resets it.
func TestHalfClosedThenReset(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		s, p := r.served(connOpts(ConnParam{AllowHalfClosed: true}))
		p.open()
		p.closeSend()
		s.expectState(Closing)
		p.reset()
		for i := 0; !isDone(s.qp); i++ { // a kernel socket tells when it is written to
			_, _ = s.qp.PostSend(s.sendQuietly(0, 100)) // full, or over
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
	r := newRig(t, turned, rigConfig{})
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
}

// What was posted before an orderly close is sent, to its last octet, whichever end closes; what is
// posted after its own close is an error of the call, while the connection still closes and when it
// is gone, and nothing of it is sent.
//
// req: DDP-8.2.1-1, DDP-8.2.1-2, DDP-4-1, DDP-8.2.1-4, DDP-8.2.1-5
func TestPostBeforeAndAfterClose(t *testing.T) {
	each(t, rigConfig{}, map[string]bool{"own": true, "the peer's": false},
		func(t *testing.T, r *rig, own bool) {
			const n = 1 << 20
			s := r.newEndOf(r.server, opts{}, n)
			p, _ := r.peerConnects(s, false)
			p.open()
			s.post(s.send(1, 0, n))
			refused := func() {
				t.Helper()
				for _, op := range []Opcode{OpSend, OpWrite} {
					require.ErrorIs(t, errOf(s.qp.PostSend(as(op, s.send(2, 0, 10)))), ErrClosed)
				}
			}
			if own {
				s.qp.Disconnect()
				refused()
			} else {
				p.closeSend()
			}
			var got []byte
			for _, f := range p.untilFIN() { // nothing of what was posted too late
				got = append(got, f.payload...)
			}
			require.True(t, bytes.Equal(s.source.Bytes(), got))
			if own {
				refused()
				p.closeSend()
			}
			s.expectClosed()
			if own {
				refused()
			}
			s.expectCompletions(Completion{ID: 1, Op: OpSend, Len: n})
			require.Zero(t, s.cq.promised())
		})
}

// An error in what the peer sends marks the connection, and what waits to be sent waits in vain:
// one message goes out, the Terminate, then our FIN, and nothing else, however much was posted
// before and is posted after it. After a Terminate of the peer's not even that goes out. What was
// posted comes back, and the connection is gone when the peer has closed its half.
//
// req: DDP-5-9, DDP-5-10, DDP-5-13, DDP-8.2.2-5, DDP-9.1-14, 5040-5.4-5, 5041-3-1
// req: 5040-5.4-6, 5040-6.2.1-2
func TestNothingPostedFollowsATerminate(t *testing.T) {
	for name, said := range map[string]fpdu{"ours": writeFPDU(0xdead, 0, "wrong"),
		"the peer's": terminateFPDU([]byte{0x11, 0x01, 0, 0})} {
		t.Run(name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				const requests, size = 32, 1 << 20
				s := r.newEndOf(r.server, qpOpts(QPOptions{SendDepth: requests}), size)
				p, _ := r.peerConnects(s, false)
				p.open()
				for i := range requests {
					s.post(s.send(uint64(i), 0, size))
				}
				p.nextFPDU() // the first message has begun
				p.inject(said)
				s.expectState(Terminating)
				want := requests
				if errOf(s.qp.PostSend(s.send(requests, 0, size))) == nil {
					want++ // else it was too late for this, too
				}
				sent := p.untilFIN()
				if name == "ours" {
					last := len(sent) - 1
					require.Equal(t, terminateFPDU("").Header, sent[last].Header)
					require.Equal(t, []byte{0x11, 0}, sent[last].payload[:2])
					sent = sent[:last]
				}
				whole := 0
				for _, f := range sent {
					require.EqualValues(t, rdmap.QNSend, f.QN)
					whole += map[bool]int{true: 1}[f.Last]
				}
				p.ends(s)
				require.Empty(t, r.server.host.Live())
				for i, c := range s.await(want) {
					require.Equal(t, uint64(i), c.ID)
					require.Equal(t, i >= whole, c.Status == Flushed, "request %d, %d were sent", i, whole)
				}
				require.Less(t, whole, requests, "nothing was left to withhold")
			})
		})
	}
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
			require.Equal(t, uint64(1), must(q.end.Stats(t.Context())).Engine.WritesRecvd)
		})
	}
}

// Whichever end closes, and whether gracefully or for an error: both ends hear of the end of the
// stream, which over TCP is that of the connection, the connection is gone, and only an error is
// told as one. An end that its ULP did not ask for is one event. The states say how it ended:
// Terminating with a Terminate, whichever end found the error, Error when this end gave the
// connection up without one, neither when it ended in order or the transport was lost.
//
// req: DDP-5-11, DDP-5-12, DDP-5-13, DDP-8.2-2, 5041-3-1, C02-8.2-1, 5042-2.2.7-1
func TestEndOfStreamIsEndOfConnection(t *testing.T) {
	type side struct {
		event  EventKind // 0: none
		before State     // between RTS and Closed; RTS: none
	}
	for _, tc := range []struct {
		name string
		do   func(s, c *end)
		s, c side
	}{
		{"close", func(_, c *end) { c.qp.Disconnect() },
			side{EventPeerClosed, Closing}, side{0, Closing}},
		{"close at the other end", func(s, _ *end) { s.qp.Disconnect() },
			side{0, Closing}, side{EventPeerClosed, Closing}},
		{"close at both", func(s, c *end) { s.qp.Disconnect(); c.qp.Disconnect() },
			side{0, Closing}, side{0, Closing}},
		{"error in what came", func(s, c *end) {
			require.NoError(c.d.t, c.wrong(s, func(wr *WorkRequest) { wr.RemoteSTag++ }))
		}, side{EventTerminated, Terminating}, side{EventTerminated, Terminating}},
		{"local error", func(_, c *end) {
			c.post(WorkRequest{Op: OpSend, Local: SGE{STag: 0xbad, Length: 1}})
		}, side{EventFailed, RTS}, side{EventFailed, Error}},
		{"abort", func(_, c *end) { c.qp.Abort() }, side{EventFailed, RTS}, side{0, RTS}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
				events := []<-chan Event{r.server.Events(), r.client.Events()}
				s, c := r.connect(opts{}, opts{})
				r.exchange(s, c)
				require.Len(t, r.server.host.Live(), 1)
				tc.do(s, c)
				states := r.states(s, c)
				r.until("both connections gone", func() bool {
					return len(r.server.host.Live())+len(r.client.host.Live()) == 0
				})
				for i, want := range []side{tc.s, tc.c} {
					q := []*end{s, c}[i].qp
					require.Equal(t, want.before != Closing, q.Err() != nil, "%v", q.Err())
					if r.kind == turned {
						require.Equal(t, slices.Compact([]State{RTS, want.before, Closed}), states[i])
					}
					if want.event != 0 {
						e := soon(&r.driver, events[i])
						require.Equal(t, want.event, e.Kind, "%v", e)
						require.Same(t, q, e.QP)
						require.Equal(t, want.event != EventPeerClosed, e.Err != nil)
						require.ErrorIs(t, q.Err(), e.Err)
						require.EqualValues(t, 1, q.adapter.EventCount(want.event))
					}
					// In real time the one that closes first may be heard of before the other closes.
					if r.kind == turned || tc.s.event+tc.c.event != 0 {
						noEvent(t, events[i])
					}
				}
			})
		})
	}
}

// states waits until all have ended, and returns what states each was in from now on.
func (r *rig) states(ends ...*end) [][]State {
	r.t.Helper()
	seen := make([][]State, len(ends))
	r.until("the end", func() bool {
		over := true
		for i, e := range ends {
			seen[i] = slices.Compact(append(seen[i], e.qp.State()))
			over = over && isDone(e.qp)
		}
		return over
	})
	return seen
}

// Giving a connection up is Error from service and from Closing; a Terminate that was exchanged
// before is still what it was.
func TestErrorState(t *testing.T) {
	for _, tc := range []struct {
		before, after State
	}{{RTS, Error}, {Closing, Error}, {Terminating, Terminating}} {
		t.Run(tc.before.String(), func(t *testing.T) {
			_, s, c := connected(t, opts{}, opts{})
			l := c.qp.end.Connection.Load()
			seen := make(chan State, 1)
			require.NoError(t, connect.Order(l.Transport.Submit, func() {
				c.qp.engine.Leave(tc.before)
				l.Fail(ErrHoarding)
				seen <- c.qp.State()
			}))
			awaitClosed(c, s)
			require.Equal(t, tc.after, <-seen)
			require.Equal(t, Closed, c.qp.State())
			require.ErrorIs(t, c.qp.Err(), ErrHoarding)
		})
	}
}

// The peer speaks on while our half is closing, so that an error is found then, too; a further
// close changes nothing about it.
func TestTerminatingFromClosing(t *testing.T) {
	r, s, c := connected(t, opts{}, connOpts(ConnParam{AllowHalfClosed: true}))
	r.exchange(s, c)
	s.qp.Disconnect()
	c.expectState(Closing)
	c.post(WorkRequest{Op: OpWrite, Local: c.source.Slice(0, 1), RemoteSTag: 0xbad})
	s.expectState(Terminating)
	s.qp.Disconnect()
	require.Equal(t, [][]State{{Terminating, Closed}}, r.states(s))
	require.ErrorAs(t, s.qp.Err(), new(*TerminateError))
}

// A peer that vanishes without a word is noticed within the UserTimeout, of either end, whether
// something is in flight or the end only waits.
//
// req: 9293-MUST-21
func TestUserTimeout(t *testing.T) {
	const after = 2 * time.Second
	cut := fault.Faults{Drop: 1}
	for name, inFlight := range map[string]bool{"in flight": true, "waiting": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, turned, rigConfig{faults: true})
			s, c := r.connect(connOpts(ConnParam{UserTimeout: after}),
				connOpts(ConnParam{UserTimeout: after}))
			r.exchange(s, c)
			r.hosts[0].faults(cut, cut)
			begin := r.time
			for _, x := range [][2]*end{{s, c}, {c, s}} {
				if inFlight {
					x[0].post(x[0].write(x[1], 1, 0, 100))
				}
			}
			for _, e := range []*end{s, c} {
				e.expectClosedBy(stack.ErrTimeout)
			}
			require.LessOrEqual(t, time.Duration(r.time-begin), after+time.Millisecond)
			require.Greater(t, time.Duration(r.time-begin), after/2)
		})
	}
}

// A peer that has nothing to say for a long time answers keep-alives, and stays. Without a
// UserTimeout nothing is asked of it (RFC 9293 section 3.8.4: keep-alives are off by default).
//
// req: 9293-MUST-25
func TestQuietPeer(t *testing.T) {
	for _, after := range []time.Duration{0, 2 * time.Second} {
		r, s, c := connected(t, opts{}, connOpts(ConnParam{UserTimeout: after}))
		r.exchange(s, c)
		sent := r.stats(c.qp).TCP.SegmentsOut
		r.pass(20 * time.Minute)
		require.Equal(t, RTS, c.qp.State())
		require.Equal(t, after > 0, r.stats(c.qp).TCP.SegmentsOut > sent)
		r.exchange(s, c)
	}
}
