package rnic

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/ddp"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
	"github.com/rnicd/rnicd/stack"
)

var causeNoBuffer = rdmap.NewCause(rdmap.LayerDDP, ddp.TypeUntagged, ddp.CodeNoBuffer)

// pool is a SharedReceiveQueue with its memory: buffer id lies at id*poolSlot.
type pool struct {
	*SharedReceiveQueue
	inbox *MemoryRegion
}

const poolSlot = 1024

// newPool has n buffers posted, 0 to n-1, of depth.
func newPool(t testing.TB, pd *ProtectionDomain, depth, n int) *pool {
	t.Helper()
	s := must(pd.adapter.CreateSRQ(SRQOptions{PD: pd, Depth: depth}))
	p := &pool{SharedReceiveQueue: s}
	p.inbox = must(pd.Register(make([]byte, depth*poolSlot), LocalWrite))
	for i := range n {
		require.NoError(t, p.post(uint64(i)))
	}
	return p
}

func (p *pool) post(id uint64) error {
	return errOf(p.PostRecv(WorkRequest{ID: id, Local: p.inbox.Slice(int(id)*poolSlot, poolSlot)}))
}

func (p *pool) octets(c Completion) []byte { return p.inbox.Bytes()[c.ID*poolSlot:][:c.Len] }

// sharing connects n QueuePairs of the server's to the client's; the server's take from one pool.
func (r *rig) sharing(n, depth, posted int, opt opts) (*pool, []*end, []*end) {
	r.t.Helper()
	opt.PD = r.server.AllocPD()
	p := newPool(r.t, opt.PD, depth, posted)
	opt.SRQ = p.SharedReceiveQueue
	var ss, cs []*end
	for range n {
		s, c := r.connect(opt, opts{})
		ss, cs = append(ss, s), append(cs, c)
	}
	return p, ss, cs
}

// sharing is an end whose peer's segments the test makes, and its pool of 8.
func (h *segmentRig) sharing(posted int, opt opts) (*pool, *end, *forged) {
	h.t.Helper()
	opt.PD = h.adapter.AllocPD()
	p := newPool(h.t, opt.PD, 8, posted)
	opt.SRQ = p.SharedReceiveQueue
	s := h.newEnd(opt)
	return p, s, h.startUp(3000, 1460, s)
}

// tell sends text, and waits until its octets are TCP's.
func (r *rig) tell(e *end, text string) {
	r.t.Helper()
	copy(e.source.Bytes(), text)
	e.post(e.send(1, 0, len(text)))
	e.expectCompletions(Completion{ID: 1, Len: uint32(len(text)), Op: OpSend})
}

func TestCreateSRQ(t *testing.T) {
	a := must(Open(Config{}))
	b := must(Open(Config{}))
	pd := a.AllocPD()
	for _, opt := range []SRQOptions{{}, {PD: b.AllocPD()}, {PD: pd, Depth: -1},
		{PD: pd, Depth: SRQDepthMax + 1}} {
		_, err := a.CreateSRQ(opt)
		require.Error(t, err)
	}
	s := must(a.CreateSRQ(SRQOptions{PD: pd}))
	require.Equal(t, queueDepthDefault, s.Depth())
	for _, limit := range []int{-1, queueDepthDefault + 1} {
		require.Error(t, s.Arm(limit))
	}
	cq := must(a.CreateCQ(8))
	_, err := a.CreateQP(QPOptions{PD: a.AllocPD(), SendCQ: cq, RecvCQ: cq, SRQ: s})
	require.ErrorContains(t, err, "another protection domain")
	q := must(a.CreateQP(QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq, SRQ: s}))
	require.ErrorIs(t, errOf(q.PostRecv(WorkRequest{})), ErrShared)
	require.NoError(t, q.Close(t.Context()))

	s = must(a.CreateSRQ(SRQOptions{PD: pd, Depth: 3}))
	require.ErrorIs(t, errOf(s.PostRecv(WorkRequest{List: make([]SGE, SharedSGEMax)})), ErrListTooLong)
	require.ErrorIs(t, errOf(s.PostRecv(WorkRequest{Inline: []byte{1}})), ErrShape)
	require.ErrorIs(
		t, errOf(s.PostRecv(WorkRequest{Local: SGE{Length: math.MaxUint32}, List: []SGE{{Length: 1}}})),
		ErrTooLong)
	for range 3 {
		require.NoError(t, errOf(s.PostRecv(WorkRequest{})))
	}
	require.ErrorIs(t, errOf(s.PostRecv(WorkRequest{})), ErrRecvQueueFull)
	require.Equal(t, 3, s.Left())
}

// QueuePairs take buffers as messages arrive, in the order of posting; each completes on the
// QueuePair whose message it holds, and the counters of each tell what its peer took.
//
// req: 5042-6.4.3.1-3, 5041-8.3.2-5
func TestSharedReceiveQueue(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		p, ss, cs := r.sharing(3, 8, 8, opts{})
		for i, k := range []int{2, 0, 0, 1, 2} {
			text := fmt.Sprintf("message %d", i)
			r.tell(cs[k], text)
			got := ss[k].await(1)[0]
			require.Equal(t, Completion{ID: uint64(i), QP: ss[k].qp.Number(), Len: uint32(len(text)),
				Op: OpRecv}, got)
			require.Equal(t, text, string(p.octets(got)))
			require.Equal(t, 7-i, p.Left())
		}
		require.NoError(t, p.post(0))
		require.Equal(t, 4, p.Left())
		for k, taken := range []uint64{2, 1, 2} {
			st := r.stats(ss[k].qp)
			require.Equal(t, taken, st.SharedTaken)
			require.Zero(t, st.SharedHeld)
		}
		r.close(ss[0], cs[0])
		require.Equal(t, 4, p.Left(), "a QueuePair that ends takes nothing along")
	})
}

// Sends that share a segment count one after the other: what is filled already is no longer held.
func TestSharedReceiveQueueBoundInOneSegment(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512})
	shared, s, c := h.sharing(8, opts{QPOptions{RecvDepth: 2}, ConnParam{NoMarkers: true}})
	var sends []fpdu
	for msn := range uint32(7) {
		sends = append(sends, sendFPDU(1+msn, "whole"))
	}
	c.inject(sends...)
	h.turns(3, time.Microsecond)
	require.Equal(t, RTS, s.qp.State(), "%v", s.qp.Err())
	require.Equal(t, 1, shared.Left())
	var cs [8]Completion
	require.Equal(t, 7, s.cq.Poll(cs[:]))
	s.qp.Abort()
	h.turns(3, time.Microsecond)
}

// A shared buffer may be a list: the message fills its ranges one after the other, on a QueuePair
// whose own lists have one range.
func TestSharedReceiveQueueScatters(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	p, ss, cs := r.sharing(1, 8, 0, qpOpts(QPOptions{SGEMax: 1}))
	list := []SGE{p.inbox.Slice(300, 3), p.inbox.Slice(0, 0), p.inbox.Slice(100, 4),
		p.inbox.Slice(200, 9)}
	require.NoError(t, errOf(p.PostRecv(WorkRequest{ID: 5, Local: list[0], List: list[1:]})))
	clear(list)
	r.tell(cs[0], "thisisscattered")
	got := ss[0].await(1)[0]
	require.Equal(t, Completion{ID: 5, QP: ss[0].qp.Number(), Len: 15, Op: OpRecv}, got)
	b := p.inbox.Bytes()
	require.Equal(t, []string{"thi", "siss", "cattered\x00"},
		[]string{string(b[300:303]), string(b[100:104]), string(b[200:209])})
}

// An empty queue is the end of the stream whose message needs a buffer, and of no other. Where
// there is no place for its completion either, the buffer is what is missing: no overflow.
func TestSharedReceiveQueueEmpty(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	one := must(r.server.CreateCQ(1))
	p, ss, cs := r.sharing(2, 4, 1, qpOpts(QPOptions{SendCQ: one, RecvCQ: one}))
	r.tell(cs[0], "first") // nobody polls
	r.tell(cs[0], "second")
	ss[0].awaitClosed()
	require.Equal(t, causeNoBuffer, terminated(ss[0].qp.Err()), "%v", ss[0].qp.Err())
	require.Zero(t, r.server.EventCount(EventCQOverflow))
	ss[0].await(1)
	require.NoError(t, p.post(3))
	r.tell(cs[1], "other")
	require.Equal(t, uint64(3), ss[1].await(1)[0].ID)
}

// A segment takes all the buffers up to its message or, when there are not so many, or RecvDepth
// is less, none: a peer that names a message far ahead drains nothing.
func TestSharedReceiveQueueBound(t *testing.T) {
	for _, tc := range []struct {
		name      string
		posted    int
		msns      []uint32 // of messages that come in part
		taken     int
		terminate bool
	}{
		{"the next", 8, []uint32{1}, 1, false},
		{"as far as RecvDepth", 8, []uint32{4}, 4, false},
		{"beyond RecvDepth", 8, []uint32{5}, 0, true},
		{"beyond RecvDepth with what is held", 8, []uint32{3, 5}, 3, true},
		{"far beyond", 8, []uint32{1 << 30}, 0, true},
		{"half the numbers ahead", 8, []uint32{1 << 31}, 0, true},
		{"all there are", 3, []uint32{3}, 3, false},
		{"one more than there are", 3, []uint32{4}, 0, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := newSegmentRig(t, segmentRigConfig{bufs: 512})
			shared, s, c := h.sharing(tc.posted, opts{QPOptions{RecvDepth: 4}, ConnParam{NoMarkers: true}})
			for _, msn := range tc.msns {
				part := sendFPDU(msn, "part")
				part.Last = false
				c.inject(part)
			}
			h.turns(3, time.Microsecond)
			require.Equal(t, tc.posted-tc.taken, shared.Left())
			require.Equal(t, tc.taken, must(s.qp.Stats(t.Context())).SharedHeld)
			require.Equal(t, tc.terminate, s.qp.State() == Terminating, "%v", s.qp.Err())
			s.qp.Abort()
			h.turns(3, time.Microsecond)
			if tc.terminate {
				require.Equal(t, causeNoBuffer, terminated(s.qp.Err()))
			}
			var cs [8]Completion
			require.Equal(t, tc.taken, s.cq.Poll(cs[:]), "what was taken comes back")
			for i, c := range cs[:tc.taken] {
				require.Equal(t, Completion{ID: uint64(i), QP: s.qp.Number(), Op: OpRecv, Status: Flushed,
					Terminate: terminateOf(s.qp.Err())}, c)
			}
			require.Zero(t, s.cq.promised())
		})
	}
}

// Segments that overtake each other: buffers go to the messages in their order, whichever came
// first.
func TestSharedReceiveQueueOutOfOrder(t *testing.T) {
	h := newSegmentRig(t, segmentRigConfig{bufs: 512})
	shared, s, c := h.sharing(8, opts{})
	var at []int
	// a marker in each, by which it is found beyond a gap
	text := func(i int) string { return fmt.Sprintf("%0600d", i) }
	for i := range 3 {
		at = append(at, len(c.stream))
		c.say(sendFPDU(uint32(i+1), text(i)))
	}
	at = append(at, len(c.stream))
	var cs [8]Completion
	for _, step := range []struct{ seg, left, done int }{{2, 5, 0}, {0, 5, 1}, {1, 5, 2}} {
		c.sendOctets(at[step.seg], at[step.seg+1], 0)
		h.turns(2, time.Microsecond)
		require.Equal(t, step.left, shared.Left(), "after segment %d", step.seg)
		n := s.cq.Poll(cs[:])
		require.Equal(t, step.done, n)
		for _, got := range cs[:n] {
			require.Equal(t, text(int(got.ID)), string(shared.octets(got)))
		}
	}
	require.Equal(t, uint64(2), cs[1].ID)
}

// A RecvCQ without a place for the completion: the QueuePair that would take the buffer leaves
// service, its peer hears of a local error, an event names the queue. Who shares the queue, or
// the buffers, goes on.
//
// req: 5040-8.1.1-5, 5042-6.4.6-1
func TestSharedReceiveQueueOverflowsCQ(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	small := must(r.server.CreateCQ(2))
	events := r.server.Events()
	pd := r.server.AllocPD()
	p := newPool(t, pd, 8, 8)
	send := must(r.server.CreateCQ(64))
	opt := qpOpts(QPOptions{PD: pd, SRQ: p.SharedReceiveQueue})
	s, c := r.connect(
		qpOpts(QPOptions{PD: pd, SRQ: p.SharedReceiveQueue, SendCQ: send, RecvCQ: small}), opts{})
	otherS, otherC := r.connect(opt, opts{})
	ownS, ownC := r.connect(qpOpts(QPOptions{PD: pd, SendCQ: send, RecvCQ: small}), opts{})
	ownS.postRecv(WorkRequest{ID: 90, Local: ownS.inbox.Slice(0, 64)}) // has its place

	r.tell(c, "one")
	r.tell(c, "two")
	c.awaitClosed()
	s.expectClosedBy(ErrCQOverflow)
	c.expectToldOf(rdmap.CauseLocal)
	requireEvent(t, Event{Kind: EventCQOverflow, QP: s.qp, CQ: small}, event(t, events))
	require.Equal(t, EventTerminated, event(t, events).Kind)
	require.EqualValues(t, 1, r.server.EventCount(EventCQOverflow))
	require.Equal(t, 7, p.Left(), "the buffer that found no place is still everybody's")

	r.tell(otherC, "three")
	require.Equal(t, uint64(1), otherS.await(1)[0].ID)
	r.tell(ownC, "four")
	var cs [4]Completion
	got := 0
	r.until("both completions", func() bool { got += small.Poll(cs[got:]); return got == 2 })
	require.Equal(t, uint64(0), cs[0].ID)
	require.Equal(t, Completion{ID: 90, QP: ownS.qp.Number(), Len: 4, Op: OpRecv}, cs[1])
	require.Zero(t, small.promised())
}

// Arm tells once that fewer than so many buffers are left, at once if that is so.
func TestSharedReceiveQueueLimit(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	events := r.server.Events()
	p, ss, cs := r.sharing(1, 8, 4, opts{})
	take := func() {
		r.tell(cs[0], "x")
		ss[0].await(1)
	}
	none := func() {
		t.Helper()
		noEvent(t, events)
	}
	require.NoError(t, p.Arm(3))
	take()
	none() // 3 left, not fewer
	take()
	requireEvent(t, Event{Kind: EventSRQLimit, SRQ: p.SharedReceiveQueue, Count: 2}, event(t, events))
	take()
	none() // once
	require.NoError(t, p.Arm(2))
	require.EqualValues(t, 1, event(t, events).Count)
	require.NoError(t, p.Arm(1))
	require.NoError(t, p.Arm(0)) // taken back
	take()
	none()
	require.Zero(t, p.Left())
}

// Start-up's own Send takes none of the shared buffers.
func TestSharedReceiveQueueAndRTR(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	pd := r.server.AllocPD()
	shared := newPool(t, pd, 4, 2)
	s := r.newEnd(r.server,
		opts{QPOptions: QPOptions{PD: pd, SRQ: shared.SharedReceiveQueue, RecvDepth: 2},
			ConnParam: ConnParam{NoMarkers: true}})
	p := r.acceptRTR(s, mpa.RTRSend)
	burst := []fpdu{sendFPDU(1, "")}
	for i := range uint32(2) {
		burst = append(burst, sendFPDU(i+2, "message"))
	}
	p.inject(burst...)
	s.expectEach(2, Completion{Op: OpRecv, Len: 7})
	require.Zero(t, shared.Left())
	// A first Send that is none is the ULP's.
	require.NoError(t, shared.post(3))
	s = r.newEnd(r.server, opts{QPOptions: QPOptions{PD: pd, SRQ: shared.SharedReceiveQueue},
		ConnParam: ConnParam{NoMarkers: true}})
	p = r.acceptRTR(s, mpa.AllRTR)
	p.inject(sendFPDU(1, "hello"))
	s.expectCompletions(Completion{ID: 3, Op: OpRecv, Len: 5})
}

// Taking buffers allocates nothing.
func TestSharedReceiveQueueAllocatesNothing(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	p, ss, cs := r.sharing(1, 32, 32, opts{})
	var done [8]Completion
	round := func() {
		for range 8 {
			if errOf(cs[0].qp.PostSend(cs[0].sendQuietly(0, 40))) != nil {
				t.Fatal("post")
			}
		}
		for got, steps := 0, 0; got < 8; steps++ {
			if steps == stepsMax {
				t.Fatal("completions missing")
			}
			r.step()
			n := ss[0].cq.Poll(done[:])
			for _, c := range done[:n] {
				if p.post(c.ID) != nil {
					t.Fatal("post")
				}
			}
			got += n
		}
	}
	requireNoAllocations(t, round)
}

// The sum of the depths holds all completions, and one less does not.
//
// req: 5042-6.4.3.2-2
func TestCQMinSize(t *testing.T) {
	require.Zero(t, CQMinSize())
	require.Equal(t, 128+16+5, CQMinSize(0, 16, 5))
	r := newRig(t, turned, rigConfig{})
	const sends, receives, shared = 4, 8, 16
	for spare := range 2 {
		pd := r.server.AllocPD()
		cq := must(r.server.CreateCQ(CQMinSize(sends, receives, sends, shared) - spare))
		p := newPool(t, pd, shared, shared)
		plain, c1 := r.connect(qpOpts(QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: sends,
			RecvDepth: receives}), opts{})
		sharer, c2 := r.connect(
			qpOpts(QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq, SendDepth: sends, RecvDepth: shared,
				SRQ: p.SharedReceiveQueue}), opts{})
		var failed error
		for i := range receives {
			failed = errors.Join(failed, errOf(plain.qp.PostRecv(plain.recvAt(uint64(i), 0, 1))))
		}
		for range sends {
			failed = errors.Join(failed, errOf(plain.qp.PostSend(plain.write(c1, 1, 0, 1))),
				errOf(sharer.qp.PostSend(sharer.write(c2, 1, 0, 1))))
		}
		for range receives {
			r.tell(c1, "x")
		}
		for range shared {
			r.tell(c2, "x")
		}
		r.until("all that can be", func() bool { return cq.q.Waiting() == cq.Depth() })
		r.pass(10 * time.Millisecond)
		require.NoError(t, failed)
		require.Equal(t, spare == 1, sharer.qp.State() != RTS, "one place too few, and only then")
		require.Equal(t, RTS, plain.qp.State())
	}
}

// crowd is many clients that send to QueuePairs of one Adapter, which share buffers. Each client
// has window messages under way, and sends the next when one was answered.
type crowd struct {
	t       testing.TB
	ctx     context.Context
	shared  *pool
	cq      *CompletionQueue // receives of the server
	servers map[uint32]*QueuePair
	next    map[uint32]uint64 // number of the message that is due, by QueuePair
	clients []*end
}

const (
	crowdWindow = 4
	crowdEach   = 2000
)

// One SharedReceiveQueue under QueuePairs of two Pollers that run, and under several sockets'
// goroutines: every message comes once, in its stream's order and with its octets, and every
// buffer goes round.
func TestSharedReceiveQueueOfMany(t *testing.T) {
	const each = 3
	t.Run("two Pollers", func(t *testing.T) {
		one, two := newRig(t, running, rigConfig{}), newRig(t, running, rigConfig{})
		all := must(Open(Config{Pollers: []*stack.Poller{one.hosts[0].poller, two.hosts[0].poller}}))
		l := must(all.Listen(one.ctx, ":9000", ListenOptions{}))
		c := newCrowd(one, all, 2*each)
		for range each {
			c.join(one, l, "10.9.0.1:9000")
			c.join(two, l, "10.9.0.1:9000")
		}
		c.play()
		l.Close()
		require.NoError(t, all.Close(one.ctx))
	})
	t.Run("sockets", func(t *testing.T) {
		r := newRig(t, sockets, rigConfig{})
		c := newCrowd(r, r.server, 2*each)
		for range 2 * each {
			c.join(r, r.listener, r.addr())
		}
		c.play()
	})
}

func newCrowd(r *rig, a *Adapter, n int) *crowd {
	r.t.Helper()
	pd := a.AllocPD()
	depth := CQMinSize(n * crowdWindow)
	cq := must(a.CreateCQ(depth))
	return &crowd{t: r.t, ctx: r.ctx, cq: cq, shared: newPool(r.t, pd, depth, depth),
		servers: map[uint32]*QueuePair{}, next: map[uint32]uint64{}}
}

// join connects a client of r's.
func (c *crowd) join(r *rig, l *Listener, addr string) {
	r.t.Helper()
	client := r.newEnd(r.client, opts{})
	for range crowdWindow {
		client.postRecv(client.recvAt(0, 0, 8))
	}
	require.NoError(r.t, client.qp.StartConnect(r.ctx, addr, client.conn))
	var req *ConnRequest
	r.until("a connection request", func() bool { req = l.Poll(); return req != nil })
	send := must(c.cq.adapter.CreateCQ(queueDepthDefault))
	q := must(c.cq.adapter.CreateQP(
		QPOptions{PD: c.shared.pd, SendCQ: send, RecvCQ: c.cq, SRQ: c.shared.SharedReceiveQueue,
			RecvDepth: crowdWindow}))
	require.NoError(r.t, req.Accept(r.ctx, q, ConnParam{}))
	client.expectState(RTS)
	c.servers[q.Number()] = q
	c.clients = append(c.clients, client)
}

func (c *crowd) play() {
	c.t.Helper()
	var wg sync.WaitGroup
	failed := make(chan error, len(c.clients))
	for _, client := range c.clients {
		wg.Go(func() { failed <- c.speak(client) })
	}
	var cs [16]Completion
	for left := len(c.clients) * crowdEach; left > 0; {
		n := c.cq.Poll(cs[:])
		for _, got := range cs[:n] {
			require.Equal(c.t, Success, got.Status)
			require.Equal(c.t, c.next[got.QP], binary.BigEndian.Uint64(c.shared.octets(got)))
			c.next[got.QP]++
			require.NoError(c.t, c.shared.post(got.ID))
			require.NoError(c.t, errOf(c.servers[got.QP].PostSend(WorkRequest{Op: OpSend})))
		}
		if left -= n; n == 0 {
			require.NoError(c.t, c.cq.Wait(c.ctx))
		}
	}
	wg.Wait()
	for range c.clients {
		require.NoError(c.t, <-failed)
	}
	require.Equal(c.t, c.shared.Depth(), c.shared.Left())
	require.Zero(c.t, c.cq.promised())
}

// speak sends a client's messages, each with its number.
func (c *crowd) speak(e *end) error {
	var cs [16]Completion
	for sent, answered := 0, 0; answered < crowdEach; {
		for ; sent < crowdEach && sent < answered+crowdWindow; sent++ {
			at := sent % crowdWindow * 8
			binary.BigEndian.PutUint64(e.source.Bytes()[at:], uint64(sent))
			if _, err := e.qp.PostSend(e.sendQuietly(at, 8)); err != nil {
				return err
			}
		}
		if err := e.cq.Wait(c.ctx); err != nil {
			return err
		}
		n := e.cq.Poll(cs[:])
		for range n {
			if _, err := e.qp.PostRecv(e.recvAt(0, 0, 8)); err != nil {
				return err
			}
		}
		answered += n
	}
	return nil
}
