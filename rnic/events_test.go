package rnic

import (
	"errors"
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/stretchr/testify/require"
)

// event is the next one; it must be there.
func event(t testing.TB, from <-chan Event) Event {
	t.Helper()
	select {
	case e := <-from:
		return e
	default:
		t.Fatal("no event")
		return Event{}
	}
}

// requireEvent compares without testify's help: what an Event refers to leads everywhere, and to
// print the difference of two such takes gigabytes.
func requireEvent(t testing.TB, want, got Event) {
	t.Helper()
	if got != want {
		t.Fatalf("event %v, QP %p, CQ %p, SRQ %p, %d, %v; want %v, %p, %p, %p, %d", got.Kind, got.QP,
			got.CQ, got.SRQ, got.Count, got.Err,
			want.Kind, want.QP, want.CQ, want.SRQ, want.Count)
	}
}

func noEvent(t testing.TB, from <-chan Event) {
	t.Helper()
	select {
	case e := <-from:
		t.Fatalf("event %v: %+v", e.Kind, e)
	default:
	}
}

// Each way a QueuePair leaves service that its ULP did not ask for is an event, at the end that
// meets it, once.
//
// req: 5042-2.2.7-1
func TestEventsOfTheEnd(t *testing.T) {
	for _, tc := range []struct {
		name           string
		do             func(r *rig, s, c *end)
		server, client EventKind // 0: none
	}{
		{"error in what came", func(r *rig, s, c *end) {
			require.NoError(r.t, c.wrong(s, func(wr *WorkRequest) { wr.RemoteSTag++ }))
		}, EventTerminated, EventTerminated},
		{"reset by the peer", func(r *rig, s, c *end) { c.qp.Abort() }, EventFailed, 0},
		{"closed by the peer", func(r *rig, s, c *end) { c.qp.Disconnect() }, EventPeerClosed, 0},
		{"bad local range", func(r *rig, s, c *end) {
			c.source.Deregister()
			c.post(WorkRequest{Op: OpSend, Local: SGE{STag: 1, Length: 1}})
		}, EventFailed, EventFailed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
				atServer, atClient := r.server.Events(), r.client.Events()
				s, c := r.connect(opts{}, opts{})
				noEvent(t, atServer)
				tc.do(r, s, c)
				s.awaitClosed()
				c.awaitClosed()
				for _, side := range []struct {
					from <-chan Event
					qp   *QueuePair
					want EventKind
				}{{atServer, s.qp, tc.server}, {atClient, c.qp, tc.client}} {
					if side.want != 0 {
						var e Event
						r.until("the event", func() bool {
							select {
							case e = <-side.from:
								return true
							default:
								return false
							}
						})
						require.Equal(t, side.want, e.Kind, "%v", e)
						require.Same(t, side.qp, e.QP)
						require.Equal(t, side.want != EventPeerClosed, e.Err != nil)
						require.True(t, errors.Is(side.qp.Err(), e.Err), "%v, %v", side.qp.Err(), e.Err)
						require.EqualValues(t, 1, side.qp.adapter.EventCount(side.want))
					}
					noEvent(t, side.from)
				}
			})
		})
	}
}

// What has no room is counted and lost, what comes before anybody asks is only counted, and
// posting allocates nothing.
//
// req: 5042-2.2.7-1
func TestEventsBounded(t *testing.T) {
	_, err := Open(Config{EventsMax: -1})
	require.Error(t, err)
	a, err := Open(Config{EventsMax: 3})
	require.NoError(t, err)
	post := func(n uint64) { a.events.post(Event{Kind: EventSRQLimit, Count: n}) }
	post(0)
	events := a.Events()
	require.Equal(t, events, a.Events())
	for i := range uint64(5) {
		post(1 + i)
	}
	require.EqualValues(t, 2, a.EventsLost())
	for i := range uint64(3) {
		require.Equal(t, 1+i, event(t, events).Count)
	}
	noEvent(t, events)
	require.EqualValues(t, 6, a.EventCount(EventSRQLimit))
	require.Zero(t, a.EventCount(EventFailed))
	require.Zero(t, a.EventCount(200))
	require.Zero(t, testing.AllocsPerRun(100, func() { post(9) }))
	for k := range wq.EventKinds {
		require.NotEmpty(t, k.String())
	}
	require.Equal(t, "event 77", EventKind(77).String())
}

// The low-water mark: one event for each arming, when fewer buffers than it are left or at once,
// and none for a flush.
//
// req: 5042-6.4.3.1-1
func TestReceiveLowWater(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		events := r.server.Events()
		s, c := r.connect(opts{}, opts{})
		for i := range 5 {
			s.postRecv(s.recvAt(uint64(i), 0, 8))
		}
		take := func() {
			t.Helper()
			c.post(WorkRequest{Op: OpSend})
			s.await(1)
		}
		require.NoError(t, s.qp.Arm(EventReceiveLow, 4))
		noEvent(t, events)
		take()
		noEvent(t, events)
		take()
		want := Event{Kind: EventReceiveLow, QP: s.qp, Count: 3}
		r.until("the event", func() bool { return len(events) > 0 })
		require.Equal(t, want, event(t, events))
		take()
		require.NoError(t, s.qp.Arm(EventReceiveLow, 3))
		want.Count = 2
		require.Equal(t, want, event(t, events), "at once")
		require.NoError(t, s.qp.Arm(EventReceiveLow, 2))
		s.qp.Abort()
		s.awaitClosed()
		noEvent(t, events)
	})
}

func TestArmRefuses(t *testing.T) {
	a, err := Open(Config{})
	require.NoError(t, err)
	pd := a.AllocPD()
	srq, err := a.CreateSRQ(SRQOptions{PD: pd})
	require.NoError(t, err)
	cq, err := a.CreateCQ(1)
	require.NoError(t, err)
	q, err := a.CreateQP(QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: srq})
	require.NoError(t, err)
	require.ErrorIs(t, q.Arm(EventReceiveLow, 1), ErrShared)
	require.Error(t, q.Arm(EventReceiveHigh, -1))
	require.Error(t, q.Arm(EventReceiveHigh, math.MaxInt))
	require.NoError(t, q.Arm(EventSlowPath, math.MaxInt))
	require.ErrorContains(t, q.Arm(EventFailed, 1), "no threshold")
	require.NoError(t, q.Close(t.Context()))
}

// A peer that begins message after message and leaves their ends out: the buffers that hold a
// part of one are counted, whether they are the QueuePair's own or shared, and more than was
// armed for is one event. Those that were Delivered do not count.
//
// req: 5042-6.4.3.1-2
func TestReceiveHighWater(t *testing.T) {
	for _, shared := range []bool{false, true} {
		t.Run(fmt.Sprintf("shared %v", shared), func(t *testing.T) {
			h := newSegmentRig(t, segmentRigConfig{bufs: 512})
			events := h.adapter.Events()
			pd := h.adapter.AllocPD()
			opt := opts{QPOptions: QPOptions{PD: pd}}
			p := newPool(t, pd, 32, 32)
			if shared {
				opt.SRQ = p.SharedReceiveQueue
			}
			s := h.newEnd(opt)
			for i := range 32 {
				if !shared {
					s.postRecv(WorkRequest{ID: uint64(i), Local: p.inbox.Slice(i*poolSlot, poolSlot)})
				}
			}
			require.NoError(t, s.qp.Arm(EventReceiveHigh, 3))
			c := h.startUp(3000, 1460, s)
			say := func(msn uint32, whole bool) (lo, hi int) {
				seg := sendOf(msn)
				seg.Last = whole
				return c.say(fpdu{seg, make([]byte, 600)})
			}
			for msn := range uint32(8) { // whole ones
				lo, hi := say(msn+1, true)
				c.sendOctets(lo, hi, 0)
				h.turn(time.Microsecond)
			}
			noEvent(t, events)
			say(9, true) // lost
			for msn := range uint32(8) {
				lo, hi := say(msn+10, msn%2 == 0) // beyond the gap: even a whole one is not Delivered
				c.sendOctets(lo, hi, 0)
				h.turn(time.Microsecond)
				if msn < 3 {
					noEvent(t, events)
				}
			}
			requireEvent(t, Event{Kind: EventReceiveHigh, QP: s.qp, Count: 4}, event(t, events))
			noEvent(t, events)
			require.Equal(t, 8, s.qp.engine.RecvBegun())
		})
	}
}

// Messages that were placed beyond a gap are Delivered when it is filled, and the low-water event
// comes with that: nothing that is still to come has to bring it.
func TestReceiveLowWaterBeyondAGap(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512})
	events := h.adapter.Events()
	pd := h.adapter.AllocPD()
	s := h.newEnd(opts{QPOptions: QPOptions{PD: pd}})
	p := newPool(t, pd, 8, 8)
	for i := range 8 {
		s.postRecv(WorkRequest{ID: uint64(i), Local: p.inbox.Slice(i*poolSlot, poolSlot)})
	}
	require.NoError(t, s.qp.Arm(EventReceiveLow, 5))
	c := h.startUp(3000, 1460, s)
	var ends [7]int
	ends[0] = len(c.stream)
	for i := range ends[1:] {
		c.say(sendFPDU(uint32(i+1), make([]byte, 600))) // a marker in each
		ends[i+1] = len(c.stream)
	}
	for i := 1; i < len(ends)-1; i++ { // all but the first
		c.sendOctets(ends[i], ends[i+1], 0)
	}
	h.turn(time.Microsecond)
	noEvent(t, events)
	c.sendOctets(ends[0], ends[1], 0)
	h.turn(time.Microsecond)
	requireEvent(t, Event{Kind: EventReceiveLow, QP: s.qp, Count: 2}, event(t, events))
}

// Messages that were placed ahead of a gap are remembered until they are Delivered, and no more
// of them than there is room for: segments beyond are left to be sent again, which is counted,
// and counts as the slow path.
func TestMessagesAheadOfAGapAreBounded(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512})
	q, region, c := h.orderly()
	const messages, each = 2 * qp.PendingMin, 40 // so many in a segment
	begin := len(c.stream)
	var ends []int
	for range messages {
		c.say(writeFPDU(region.STag(), 0, []byte{1}))
		ends = append(ends, len(c.stream))
	}
	for i := each; i+each <= messages; i += each { // all but the first segment
		c.sendOctets(ends[i-1], ends[i+each-1], 0)
		h.turn(time.Microsecond)
	}
	st, err := q.Stats(t.Context())
	require.NoError(t, err)
	require.NotZero(t, st.RefusedPending)
	require.Equal(t, st.RefusedPending+st.Receive.Reassembled+st.Receive.Coalesced, st.SlowPath)
	require.Zero(t, st.WritesRecvd)
	c.sendOctets(begin, ends[each-1], 0)
	h.turn(time.Microsecond)
	st, err = q.Stats(t.Context())
	require.NoError(t, err)
	require.NotZero(t, st.WritesRecvd)
}

// A peer whose frames never come whole in a segment costs more and breaks no rule: the counter
// shows it, an event tells when it is more than was armed for, and Abort ends it. Its neighbour,
// whose frames are whole, shows nothing.
//
// req: 5042-6.4.4-1
func TestSlowPathExcess(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512})
	events := h.adapter.Events()
	good, region, gc := h.orderly()
	s := h.newEnd(opts{})
	c := h.startUp(3000, 1460, s)
	const limit = 50
	for _, q := range []*QueuePair{good, s.qp} {
		require.NoError(t, q.Arm(EventSlowPath, limit))
	}
	zero := writeTo(qp.RTRSTag, 0)
	for i := range 2 * limit {
		lo, hi := c.say(fpdu{zero, nil})
		c.sendOctets(lo, lo+9, 0)
		c.sendOctets(lo+9, hi, 0)
		gc.inject(writeFPDU(region.STag(), 0, []byte{byte(i)}))
		h.turn(time.Microsecond)
	}
	e := event(t, events)
	requireEvent(t, Event{Kind: EventSlowPath, QP: s.qp, Count: limit + 1}, e)
	noEvent(t, events)
	st, err := good.Stats(t.Context())
	require.NoError(t, err)
	require.Zero(t, st.SlowPath)
	st, err = s.qp.Stats(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, 2*limit, st.SlowPath)

	require.NoError(t, s.qp.Arm(EventSlowPath, int(e.Count)+limit-1)) // and some more: passed already
	c.inject(fpdu{zero, nil})
	h.turn(time.Microsecond)
	require.EqualValues(t, 0, len(events), "100 is not more than 100")
	require.NoError(t, s.qp.Arm(EventSlowPath, limit))
	c.inject(fpdu{zero, nil})
	h.turn(time.Microsecond)
	e = event(t, events)
	e.QP.Abort()
	h.turns(2, time.Microsecond)
	require.True(t, isDone(s.qp))
	require.True(t, c.peerReset)
	require.Equal(t, RTS, good.State())
	noEvent(t, events) // it was our own wish
}
