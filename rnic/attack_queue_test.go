package rnic

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/tcp"
)

// More Reads at once than IRD: the first beyond it is the end; none of them took anything that
// another stream has.
//
// req: 5042-7.2-1, 5042-6.4.3.3-1, 5042-6.4.3.3-2, 5042-6.4.3.3-3
func TestAttackReadFlood(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const ird = 4
		a := r.assault(opts{ConnParam: ConnParam{IRD: ird}})
		m := r.readable(a.s, 64, RemoteRead)
		burst, _ := reads(m, 20*ird, 64)
		a.p.inject(burst...)
		a.repelled(causeNoBuffer)
		require.LessOrEqual(t, r.stats(a.s.qp).ReadsServed, uint64(ird))
	})
}

// More Sends than there are buffers: those that had one are Delivered, the next is the end.
func TestAttackSendFlood(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const buffers = 3
		a := r.assault(opts{})
		for i := range buffers {
			a.s.postRecv(a.s.recvAt(uint64(i), 0, 8))
		}
		var burst []fpdu
		for msn := range uint32(200) {
			burst = append(burst, sendFPDU(msn+1, "flood"))
		}
		a.p.inject(burst...)
		a.repelled(causeNoBuffer)
		for i, c := range a.s.await(buffers) {
			require.Equal(t, Completion{ID: uint64(i), QP: a.s.qp.Number(), Len: 5, Op: OpRecv}, c)
		}
	})
}

// Message numbers far ahead, or long over, of any queue: refused by their number, whatever the
// distance.
func TestAttackMSN(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		opt := opts{QPOptions: QPOptions{RecvDepth: 4}, ConnParam: ConnParam{IRD: 4}}
		a := r.assault(opt)
		for i, tc := range []struct {
			qn, msn uint32
			code    uint8
		}{
			{rdmap.QNSend, 5, ddp.CodeNoBuffer}, {rdmap.QNSend, 1 << 31, ddp.CodeNoBuffer},
			{rdmap.QNSend, 0, ddp.CodeMSNRange}, {rdmap.QNSend, 1<<32 - 1, ddp.CodeMSNRange},
			{rdmap.QNRead, 5, ddp.CodeNoBuffer}, {rdmap.QNRead, 0, ddp.CodeMSNRange},
			{rdmap.QNTerminate, 2, ddp.CodeNoBuffer}, {rdmap.QNTerminate, 0, ddp.CodeMSNRange},
		} {
			if i > 0 {
				a.again(opt)
			}
			for range 4 {
				a.s.postRecv(a.s.recvAt(0, 0, 8))
			}
			op := map[uint32]rdmap.Opcode{rdmap.QNSend: rdmap.OpSend, rdmap.QNRead: rdmap.OpReadRequest,
				rdmap.QNTerminate: rdmap.OpTerminate}[tc.qn]
			h := op.Header(1)
			h.Last, h.Version, h.MSN = true, 1, tc.msn
			a.p.inject(fpdu{h, nil})
			a.repelled(rdmap.NewCause(rdmap.LayerDDP, ddp.TypeUntagged, tc.code))
		}
	})
}

// Messages that are begun and never ended keep the buffers of their own QueuePair, which an event
// tells, and nothing else; when there are gone the stream ends, and they come back.
func TestAttackPartialMessages(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const buffers = 6
		a := r.assault(opts{QPOptions: QPOptions{RecvDepth: buffers}})
		events := r.server.Events()
		require.NoError(t, a.s.qp.Arm(EventReceiveHigh, buffers/2))
		for i := range buffers {
			a.s.postRecv(a.s.recvAt(uint64(i), 0, 8))
		}
		for msn := range uint32(buffers + 1) {
			h := sendOf(msn + 1)
			h.Last = false
			a.p.inject(fpdu{h, []byte("part")})
		}
		a.repelled(causeNoBuffer)
		require.Equal(t, EventReceiveHigh, event(t, events).Kind)
		for i, c := range a.s.await(buffers) {
			require.Equal(t, Completion{ID: uint64(i), QP: a.s.qp.Number(), Op: OpRecv, Status: Flushed}, c)
		}
	})
}

// One of several that share receive buffers takes all it can, first by a number far ahead and
// messages without an end, then by more messages than its share. The first is bounded by its
// RecvDepth. Of the second the limit event tells in time, and the counters which to end. The
// other stream never misses a buffer.
//
// req: 5042-6.4.3.1-1, 5042-6.4.3.1-3, 5041-8.3.2-5
func TestAttackSharedBuffers(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const depth, each, limit = 16, 4, 6
		a := r.assault(opts{})
		pd := r.server.AllocPD()
		p := newPool(t, pd, depth, depth)
		opt := opts{QPOptions: QPOptions{PD: pd, SRQ: p.SharedReceiveQueue, RecvDepth: each}}
		fair, client := r.connect(opt, opts{})
		fairGoesOn := func() {
			for range 3 * depth {
				r.tell(client, "fair")
				require.NoError(t, p.post(fair.await(1)[0].ID))
			}
		}
		a.again(opt)
		h := sendOf(each)
		h.Last = false
		a.p.inject(fpdu{h, []byte("part")})
		r.until("the buffers taken", func() bool { return p.Left() == depth-each })
		fairGoesOn()
		require.Equal(t, each, r.stats(a.s.qp).SharedHeld)
		events := r.server.Events()
		a.p.reset()
		a.s.awaitClosed()
		for _, c := range a.s.await(each) {
			require.NoError(t, p.post(c.ID))
		}
		// it may come after all of that
		r.until("the event of the reset", func() bool { return len(events) > 0 })
		require.Equal(t, EventFailed, event(t, events).Kind)

		a.again(opt)
		require.NoError(t, p.Arm(limit))
		for msn := uint32(1); msn <= depth-limit+1; msn++ {
			require.Empty(t, events, "the event is early")
			a.p.inject(sendFPDU(msn, "greed"))
			r.until("it was taken", func() bool { return p.Left() == depth-int(msn) })
		}
		r.until("the event", func() bool { return len(events) > 0 })
		e := event(t, events)
		requireEvent(t, Event{Kind: EventSRQLimit, SRQ: p.SharedReceiveQueue, Count: limit - 1}, e)
		taken := map[*QueuePair]uint64{fair.qp: r.stats(fair.qp).SharedTaken - 3*depth,
			a.s.qp: r.stats(a.s.qp).SharedTaken}
		require.Zero(t, taken[fair.qp])
		require.EqualValues(t, depth-limit+1, taken[a.s.qp])
		a.s.qp.Abort()
		a.s.awaitClosed()
		for _, c := range a.s.await(depth - limit + 1) {
			require.NoError(t, p.post(c.ID))
		}
		fairGoesOn()
		a.bystander.goesOn()
	})
}

// Connection after connection that begins with Terminates, whatever is in them: each is the end
// of its own stream, is not answered, and leaves nothing behind; events that nobody reads are
// lost and counted.
func TestAttackTerminates(t *testing.T) {
	over(t, both, rigConfig{server: Config{EventsMax: 8}}, func(t *testing.T, r *rig) {
		const storm = 40
		rng := rand.New(rand.NewPCG(1, 2))
		events := r.server.Events()
		a := r.assault(opts{})
		pd := r.server.AllocPD()
		cq, err := r.server.CreateCQ(64)
		require.NoError(t, err)
		opt := QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq}
		for range storm {
			q, err := r.server.CreateQP(opt)
			require.NoError(t, err)
			p, _ := r.peerConnects(&end{qp: q}, false)
			h := rdmap.OpTerminate.Header(1)
			h.Last, h.Version = true, 1
			var burst []fpdu
			for h.MSN = 1; h.MSN < 4; h.MSN++ {
				body := make([]byte, rng.IntN(qp.TerminateLenMax+1))
				for i := range body {
					body[i] = byte(rng.Uint32())
				}
				burst = append(burst, fpdu{h, body})
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
	})
}

// Writes and Reads of nothing, which no STag bounds: legal, so the stream goes on. They take no
// memory however many there are, complete nothing, and no more Reads than IRD are answered for at
// a time.
func TestAttackNothing(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const rounds, writes, reads = 50, 100, 8
		a := r.assault(opts{ConnParam: ConnParam{IRD: reads}})
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
		if r.kind == turned {
			require.GreaterOrEqual(t, r.hosts[0].pool.Available(),
				r.hosts[0].pool.Size()-r.hosts[0].pool.Size()/4)
		}
	})
}

// A peer that asks for as much as IRD allows and then takes nothing, with its window shut or by
// acknowledging nothing: what waits for it is Requests, and no more Bufs than a share. Another
// peer writes, reads and is answered all the while. Who never acknowledges ends by the user
// timeout, the other when the ULP says so, and all comes back.
func TestAttackUnreadResponses(t *testing.T) {
	for _, shut := range []bool{true, false} {
		t.Run(map[bool]string{true: "window shut", false: "never acknowledges"}[shut],
			func(t *testing.T) {
				const bufs, ird, size = 512, 16, 1 << 20
				h := newSegmentRig(t, segmentRigConfig{bufs: bufs})
				u := h.besideUnread(ird)
				pd := h.adapter.AllocPD()
				m, err := pd.Register(make([]byte, size), RemoteRead)
				require.NoError(t, err)
				s := h.newEnd(opts{QPOptions: QPOptions{PD: pd}, ConnParam: ConnParam{IRD: ird}})
				c := h.startUp(3000, 1460, s)
				if shut {
					h.send(c, c.seq(len(c.stream)), c.next, tcp.ACK, 0, c.options(), nil)
				}
				lo := len(c.stream)
				for msn := range uint32(ird) {
					head, rr := readOf(msn+1, m.STag(), 0, size)
					c.say(readFPDU(head, rr))
				}
				stay := func() { // the one that never acknowledges says nothing more
					if shut {
						h.send(c, c.seq(len(c.stream)), c.next, tcp.ACK, 0, c.options(), nil)
					}
					h.turn(100 * time.Millisecond)
				}
				window := uint16(65535)
				if shut {
					window = 0
				}
				h.send(c, c.seq(lo), c.next, tcp.ACK, window, c.options(), c.stream[lo:])
				least := h.pool.Available()
				for range 300 {
					stay()
					least = min(least, h.pool.Available())
					u.round()
				}
				require.Greater(t, least, bufs/4)
				require.EqualValues(t, ird, uint64(s.qp.engine.ReadsWaiting())+s.qp.engine.Stats().ReadsServed)
				require.LessOrEqual(t, s.qp.engine.Stats().ReadsServed, uint64(1))
				for range 1000 {
					stay()
				}
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
	u := &reader{h: h}
	pd := h.adapter.AllocPD()
	var err error
	u.region, err = pd.Register(make([]byte, 64), remoteBoth)
	require.NoError(h.t, err)
	u.end = h.newEnd(
		opts{QPOptions: QPOptions{PD: pd}, ConnParam: ConnParam{IRD: ird, NoMarkers: true}})
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
