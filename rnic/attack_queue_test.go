package rnic

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/tcp"
)

// partOf is a segment of a Send that is not its last.
func partOf(msn uint32) fpdu {
	f := sendFPDU(msn, "part")
	f.Last = false
	return f
}

// One of several that share receive buffers takes all it can, first by a number far ahead and
// messages without an end, then by more messages than its share. The first is bounded by its
// RecvDepth. Of the second the limit event tells in time, and the counters which to end. The
// other stream never misses a buffer.
//
// req: 5042-6.4.3.1-1, 5042-6.4.3.1-3, 5041-8.3.2-5
func TestAttackSharedBuffers(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	const depth, each, limit = 16, 4, 6
	a := r.assault(opts{})
	pd := r.server.AllocPD()
	p := newPool(t, pd, depth, depth)
	opt := qpOpts(QPOptions{PD: pd, SRQ: p.SharedReceiveQueue, RecvDepth: each})
	fair, client := r.connect(opt, opts{})
	fairGoesOn := func() {
		for range 3 * depth {
			r.tell(client, "fair")
			require.NoError(t, p.post(fair.await(1)[0].ID))
		}
	}
	a.again(opt)
	a.p.inject(partOf(each))
	r.until("the buffers taken", func() bool { return p.Left() == depth-each })
	fairGoesOn()
	require.Equal(t, each, r.stats(a.s.qp).SharedHeld)
	events := r.server.Events()
	a.p.reset()
	a.s.awaitClosed()
	for _, c := range a.s.await(each) {
		require.NoError(t, p.post(c.ID))
	}
	require.Equal(t, EventFailed, soon(&r.driver, events).Kind)

	a.again(opt)
	require.NoError(t, p.Arm(limit))
	for msn := uint32(1); msn <= depth-limit+1; msn++ {
		require.Empty(t, events, "the event is early")
		a.p.inject(sendFPDU(msn, "greed"))
		r.until("it was taken", func() bool { return p.Left() == depth-int(msn) })
	}
	requireEvent(t, Event{Kind: EventSRQLimit, SRQ: p.SharedReceiveQueue, Count: limit - 1},
		soon(&r.driver, events))
	require.EqualValues(t, 3*depth, r.stats(fair.qp).SharedTaken)
	require.EqualValues(t, depth-limit+1, r.stats(a.s.qp).SharedTaken)
	a.s.qp.Abort()
	a.s.awaitClosed()
	for _, c := range a.s.await(depth - limit + 1) {
		require.NoError(t, p.post(c.ID))
	}
	fairGoesOn()
	a.bystander.goesOn()
}

// Connection after connection that begins with Terminates, whatever is in them: each is the end
// of its own stream, is not answered, and leaves nothing behind; events that nobody reads are
// lost and counted.
func TestAttackTerminates(t *testing.T) {
	r := newRig(t, turned, rigConfig{server: Config{EventsMax: 8}})
	const storm = 40
	rng := rand.New(rand.NewPCG(1, 2))
	events := r.server.Events()
	a := r.assault(opts{})
	pd := r.server.AllocPD()
	cq := must(r.server.CreateCQ(64))
	opt := QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq}
	for range storm {
		q := must(r.server.CreateQP(opt))
		p, _ := r.peerConnects(&end{qp: q}, false)
		var burst []fpdu
		for msn := range uint32(3) {
			body := randomBytes(rng.Uint64(), rng.IntN(qp.TerminateLenMax+1))
			burst = append(burst, messageFPDU(rdmap.OpTerminate, msn+1, body))
		}
		p.inject(burst...)
		p.closeSend()
		r.untilDone(q)
		p.expectNothing() // no answer
	}
	require.EqualValues(t, storm, r.server.EventCount(EventTerminated))
	require.Len(t, events, 8)
	require.EqualValues(t, storm-8, r.server.EventsLost())
	a.bystander.goesOn()
}

// Writes and Reads of nothing, which no STag bounds: legal, so the stream goes on. They take no
// memory however many there are, complete nothing, and no more Reads than IRD are answered for at
// a time.
//
// req: 5040-5.2.1-3, 5040-5.2.1-9, 5040-5.2.1-10
func TestAttackNothing(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	const rounds, writes, reads = 50, 100, 8
	a := r.assault(connOpts(ConnParam{IRD: reads}))
	msn := uint32(0)
	for range rounds {
		var burst []fpdu
		var outstanding []rdmap.ReadRequest
		for range writes {
			burst = append(burst, writeFPDU(0xdead, 1<<63, ""))
		}
		for range reads {
			msn++
			h, rr := readOf(msn, 0xdead, 1<<63, 0)
			burst, outstanding = append(burst, readFPDU(h, rr)), append(outstanding, rr)
		}
		a.p.inject(burst...)
		for _, rr := range outstanding {
			require.Empty(t, a.p.response(rr))
		}
	}
	st := r.stats(a.s.qp)
	require.EqualValues(t, rounds*writes, st.WritesRecvd)
	require.EqualValues(t, rounds*reads, st.ReadsServed)
	a.s.expectNoCompletion()
	require.Zero(t, st.Receive.HeldBufs)
	require.Equal(t, RTS, a.s.qp.State())
	a.bystander.goesOn()
	require.GreaterOrEqual(t, r.hosts[0].pool.Available(), r.hosts[0].pool.Size()/4*3)
}

// A peer that asks for as much as IRD allows and then takes nothing, with its window shut or by
// acknowledging nothing: what waits for it is Requests, and no more Bufs than a share. Another
// peer writes, reads and is answered all the while. Who never acknowledges ends by the user
// timeout, the other when the ULP says so, and all comes back.
func TestAttackUnreadResponses(t *testing.T) {
	for name, shut := range map[string]bool{"window shut": true, "never acknowledges": false} {
		t.Run(name, func(t *testing.T) {
			const bufs, ird, size = 512, 16, 1 << 20
			h := newSegmentRig(t, segmentRigConfig{bufs: bufs})
			u := h.besideUnread(ird)
			s := h.newEnd(connOpts(ConnParam{IRD: ird}))
			m := must(s.pd.Register(make([]byte, size), RemoteRead))
			c := h.startUp(3000, 1460, s)
			window := uint16(65535)
			say := func(octets []byte) {
				at := c.seq(len(c.stream) - len(octets))
				h.send(c, at, c.next, tcp.ACK, window, c.options(), octets)
			}
			stay := func(turns int) { // the one that never acknowledges says nothing more
				for range turns {
					if shut {
						say(nil)
					}
					h.turn(100 * time.Millisecond)
				}
			}
			if shut {
				window = 0
				say(nil)
			}
			lo := len(c.stream)
			for msn := range uint32(ird) {
				c.say(readFPDU(readOf(msn+1, m.STag(), 0, size)))
			}
			say(c.stream[lo:])
			least := h.pool.Available()
			for range 300 {
				stay(1)
				least = min(least, h.pool.Available())
				u.round()
			}
			require.Greater(t, least, bufs/4)
			st := s.qp.engine.Stats()
			require.EqualValues(t, ird, st.Receive.FPDUs, "Requests that were taken")
			require.LessOrEqual(t, st.ReadsServed, uint64(1))
			stay(1000)
			require.Equal(t, !shut, isDone(s.qp), "%v", s.qp.Err())
			s.qp.Abort()
			h.turns(3, time.Millisecond)
			require.True(t, isDone(s.qp))
			u.round()
			require.GreaterOrEqual(t, h.pool.Available(), bufs-4)
		})
	}
}

// reader is an innocent connection that writes, reads what it wrote, and acknowledges.
type reader struct {
	h      *segmentRig
	end    *end
	region *MemoryRegion
	c      *forged
	msn    uint32
}

func (h *segmentRig) besideUnread(ird int) *reader {
	h.t.Helper()
	u := &reader{h: h, end: h.newEnd(connOpts(ConnParam{IRD: ird, NoMarkers: true}))}
	u.region = must(u.end.pd.Register(make([]byte, 64), remoteBoth))
	u.c = h.startUp(9, 1460, u.end)
	return u
}

func (u *reader) round() {
	u.h.t.Helper()
	u.msn++
	text := []byte{byte(u.msn), byte(u.msn >> 8), 3}
	head, rr := readOf(u.msn, u.region.STag(), 0, len(text))
	u.c.inject(writeFPDU(u.region.STag(), 0, text), readFPDU(head, rr))
	u.c.expectFPDU(answerFPDU(rr, 0, string(text), true))
	u.c.expectNothing()
	u.c.sendOctets(len(u.c.stream), len(u.c.stream), 0) // acknowledges it
}
