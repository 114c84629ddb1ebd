package rnic

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic/internal/qp"
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

// What has no room is counted and lost, what comes before anybody asks is only counted, and
// posting allocates nothing.
//
// req: 5042-2.2.7-1
func TestEventsBounded(t *testing.T) {
	_, err := Open(Config{EventsMax: -1})
	require.Error(t, err)
	a := must(Open(Config{EventsMax: 3}))
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

// A range over Events ends with Adapter.Close, which keeps what was not read; later events are only
// counted, and a channel that is asked for then is closed.
func TestEventsEnd(t *testing.T) {
	for _, before := range []bool{true, false} {
		a := must(Open(Config{}))
		want := 0
		if before {
			a.Events()
			want = 1
		}
		a.events.post(Event{Kind: EventSRQLimit})
		for range 2 {
			require.NoError(t, a.Close(t.Context()))
		}
		a.events.post(Event{Kind: EventSRQLimit})
		got := 0
		for range a.Events() {
			got++
		}
		require.Equal(t, want, got)
		require.EqualValues(t, 2, a.EventCount(EventSRQLimit))
		require.Zero(t, a.EventsLost())
	}
}

// The low-water mark: one event for each arming, when fewer buffers than it are left or at once,
// and none for a flush.
//
// req: 5042-6.4.3.1-1
func TestReceiveLowWater(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	events := r.server.Events()
	s, c := r.connect(opts{}, opts{})
	for i := range 5 {
		s.postRecv(s.recvAt(uint64(i), 0, 8))
	}
	take := func() {
		t.Helper()
		noEvent(t, events)
		c.post(WorkRequest{Op: OpSend})
		s.await(1)
	}
	require.NoError(t, s.qp.Arm(EventReceiveLow, 4))
	take()
	take()
	requireEvent(t, Event{Kind: EventReceiveLow, QP: s.qp, Count: 3}, soon(&r.driver, events))
	take()
	require.NoError(t, s.qp.Arm(EventReceiveLow, 3))
	requireEvent(t, Event{Kind: EventReceiveLow, QP: s.qp, Count: 2}, event(t, events)) // at once
	require.NoError(t, s.qp.Arm(EventReceiveLow, 2))
	s.qp.Abort()
	s.awaitClosed()
	noEvent(t, events)
}

func TestArmRefuses(t *testing.T) {
	r := newRig(t, sockets, rigConfig{})
	pd := r.server.AllocPD()
	srq := must(r.server.CreateSRQ(SRQOptions{PD: pd}))
	q := r.bareEnd(r.server, qpOpts(QPOptions{PD: pd, SRQ: srq})).qp
	require.ErrorIs(t, q.Arm(EventReceiveLow, 1), ErrShared)
	require.Error(t, q.Arm(EventReceiveHigh, -1))
	require.Error(t, q.Arm(EventReceiveHigh, math.MaxInt))
	require.NoError(t, q.Arm(EventSlowPath, math.MaxInt))
	require.ErrorContains(t, q.Arm(EventFailed, 1), "no threshold")
}

// A peer that begins message after message and leaves their ends out: the buffers that hold a
// part of one are counted, whether they are the QueuePair's own or shared, and more than was
// armed for is one event. Those that were Delivered do not count.
//
// req: 5042-6.4.3.1-2
func TestReceiveHighWater(t *testing.T) {
	for _, shared := range []bool{false, true} {
		h := newSegmentRig(t, segmentRigConfig{bufs: 512})
		events := h.adapter.Events()
		opt := qpOpts(QPOptions{PD: h.adapter.AllocPD()})
		p := newPool(t, opt.PD, 32, 32)
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
		say := func(msn uint32, whole, arrives bool) {
			seg := sendOf(msn)
			seg.Last = whole
			if lo, hi := c.say(fpdu{seg, make([]byte, 600)}); arrives {
				c.sendOctets(lo, hi, 0)
				h.turn(time.Microsecond)
			}
		}
		for msn := range uint32(8) {
			say(msn+1, true, true)
		}
		noEvent(t, events)
		say(9, true, false)
		for msn := range uint32(8) { // beyond the gap: even a whole one is not Delivered
			if say(msn+10, msn%2 == 0, true); msn < 3 {
				noEvent(t, events)
			}
		}
		requireEvent(t, Event{Kind: EventReceiveHigh, QP: s.qp, Count: 4}, event(t, events))
		noEvent(t, events)
		require.EqualValues(t, 16, s.qp.engine.Stats().Receive.FPDUs, "half of them beyond the gap")
	}
}

// Messages that were placed beyond a gap are Delivered when it is filled, and the low-water event
// comes with that: nothing that is still to come has to bring it.
func TestReceiveLowWaterBeyondAGap(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512})
	events := h.adapter.Events()
	s := h.newEnd(opts{})
	p := newPool(t, s.pd, 8, 8)
	for i := range 8 {
		s.postRecv(WorkRequest{ID: uint64(i), Local: p.inbox.Slice(i*poolSlot, poolSlot)})
	}
	require.NoError(t, s.qp.Arm(EventReceiveLow, 5))
	c := h.startUp(3000, 1460, s)
	first, end := c.say(sendFPDU(1, make([]byte, 600))) // a marker in each
	for msn := range uint32(5) {
		lo, hi := c.say(sendFPDU(msn+2, make([]byte, 600)))
		c.sendOctets(lo, hi, 0)
	}
	h.turn(time.Microsecond)
	noEvent(t, events)
	c.sendOctets(first, end, 0)
	h.turn(time.Microsecond)
	requireEvent(t, Event{Kind: EventReceiveLow, QP: s.qp, Count: 2}, event(t, events))
}

// Messages that were placed ahead of a gap are remembered until they are Delivered, and no more
// of them than there is room for: segments beyond are left to be sent again, which is counted,
// and counts as the slow path.
//
// req: DDP-7.3-6
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
	st := must(q.Stats(t.Context()))
	require.NotZero(t, st.RefusedPending)
	require.Equal(t, st.RefusedPending+st.Receive.Reassembled+st.Receive.Coalesced, st.SlowPath)
	require.Zero(t, st.WritesRecvd)
	c.sendOctets(begin, ends[each-1], 0)
	h.turn(time.Microsecond)
	for i := each; i+each <= messages; i += each { // again
		c.sendOctets(ends[i-1], ends[i+each-1], 0)
		h.turn(time.Microsecond)
	}
	require.EqualValues(t, messages/each*each, q.engine.Stats().WritesRecvd)
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
	for q, want := range map[*QueuePair]uint64{good: 0, s.qp: 2 * limit} {
		st := must(q.Stats(t.Context()))
		require.Equal(t, want, st.SlowPath)
	}

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
