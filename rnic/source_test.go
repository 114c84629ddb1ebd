package rnic

import (
	"bytes"
	"cmp"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
)

// queues are work for a QueuePair that its test fills.
type queues struct {
	mu           sync.Mutex
	sends, recvs []WorkRequest
	refused      int    // requests that the Feed had no room for, counted each time
	written      func() // by Written; nil: nothing
	entries      bool   // they are entries of rings
}

func (s *queues) add(queue *[]WorkRequest, wrs ...WorkRequest) {
	s.mu.Lock()
	defer s.mu.Unlock()
	*queue = append(*queue, wrs...)
}

func (s *queues) SendsWait() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.sends) > 0
}

func (s *queues) Sends(f Feed) { s.take(&s.sends, s.by(f, f.Send, f.SendEntry)) }
func (s *queues) Recvs(f Feed) { s.take(&s.recvs, s.by(f, f.Recv, f.RecvEntry)) }

// by is post, or what posts the one entry of a call.
func (s *queues) by(f Feed, post func(*WorkRequest) error, entry func() error,
) func(*WorkRequest) error {
	if !s.entries {
		return post
	}
	return func(wr *WorkRequest) error {
		if f.Room().Ready {
			return ErrSendQueueFull
		}
		fillIn(f.Room(), wr)
		return entry()
	}
}

// fillIn makes r the request wr, as a program writes it to its ring.
func fillIn(r *wq.Request, wr *WorkRequest) {
	r.WQE = wq.WQE{}
	putWQE(&r.WQE, cmp.Or(wr.Op, OpRecv), wr)
	copy(r.List, wr.List)
	copy(r.Data, wr.Inline)
}

func (s *queues) Written() {
	if s.written != nil {
		s.written()
	}
}

func (s *queues) take(queue *[]WorkRequest, post func(*WorkRequest) error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for len(*queue) > 0 {
		if post(&(*queue)[0]) != nil {
			s.refused++
			return
		}
		*queue = (*queue)[1:]
	}
}

// log keeps what a sink is given.
type log struct {
	mu  sync.Mutex
	all []Completion
}

func (l *log) put(c Completion) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, c)
}

func (l *log) have() []Completion {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Completion(nil), l.all...)
}

// A QueuePair takes requests and buffers from its WorkSource as it needs them, more than its
// queues hold too, and completes them in their order.
func TestWorkSource(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) { workSource(t, r, false) })
	t.Run("entries", func(t *testing.T) { workSource(t, newRig(t, turned, rigConfig{}), true) })
}

// workSource has 50 messages sent, as entries of rings also from lists and inline.
func workSource(t *testing.T, r *rig, entries bool) {
	const count, n = 50, 100
	from, to := queues{entries: entries}, queues{entries: entries}
	var sent, received log
	opt := QPOptions{Source: &from, SendDepth: 2, SGEMax: 1, InlineMax: NoInline}
	if entries {
		opt.SGEMax, opt.InlineMax = 3, n
	}
	s, c := r.newEnd(r.server, qpOpts(QPOptions{Source: &to})), r.newEnd(r.client, qpOpts(opt))
	s.qp.engine.RecvCQ, c.qp.engine.SendCQ = &r.server.CreateCQSink(received.put).q,
		&r.client.CreateCQSink(sent.put).q
	for i := range count {
		// before there is a connection, which takes them when octets arrive
		wr := s.recvAt(uint64(i), i*n, n)
		if entries && i%2 == 1 {
			wr.Local, wr.List = s.inbox.Slice(i*n, 9), []SGE{s.inbox.Slice(i*n+9, n-9)}
		}
		to.add(&to.recvs, wr)
	}
	r.connectEnds(s, c)
	for i := range count {
		wr, at := c.send(uint64(i), i*n, n), i*n
		switch {
		case entries && i%3 == 1:
			wr.Local = c.source.Slice(at, 7)
			wr.List = []SGE{c.source.Slice(at+7, 1), c.source.Slice(at+8, n-8)}
		case entries && i%3 == 2:
			wr.Local, wr.Inline = SGE{}, c.source.Bytes()[at:][:n]
		}
		from.add(&from.sends, wr)
	}
	c.qp.Doorbell()
	r.until("all messages", func() bool {
		return len(received.have()) == count && len(sent.have()) == count
	})
	for i := range count {
		require.Equal(t, Completion{ID: uint64(i), QP: c.qp.Number(), Len: n, Op: OpSend},
			sent.have()[i])
		require.Equal(t, Completion{ID: uint64(i), QP: s.qp.Number(), Len: n, Op: OpRecv},
			received.have()[i])
	}
	require.Equal(t, c.source.Bytes()[:count*n], s.inbox.Bytes()[:count*n])
	require.Positive(t, from.refused, "requests that had to wait for room")
}

// An entry that was not posted, as it cannot be, has no room for its completion, or was left in the
// Feed's room, is neither carried out nor flushed.
func TestEntryNotPosted(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	src := &oneEntry{}
	c := r.newEnd(r.client, qpOpts(QPOptions{Source: src, SGEMax: 2, InlineMax: 8}))
	few := must(r.client.CreateCQ(2))
	c.qp.engine.SendCQ = &few.q
	s, _ := r.connectEnds(r.newEnd(r.server, opts{}), c)
	ask := func(e wq.WQE) error {
		src.entry, src.waits = e, true
		c.qp.Doorbell()
		r.until("the question", func() bool { return !src.waits })
		return src.err
	}
	for _, x := range []struct {
		entry wq.WQE
		err   error
	}{
		{wq.WQE{}, ErrShape},
		{wq.WQE{Op: OpRecv}, ErrShape},
		{wq.WQE{Op: wq.OpWriteImmediate}, ErrShape},
		{wq.WQE{Op: OpWrite, Flags: wq.FlagRefused}, ErrShape},
		{wq.WQE{Op: OpRead, More: 1}, ErrShape},
		{wq.WQE{Op: OpSendImmediate}, ErrExtension},
		{wq.WQE{Op: OpWrite, More: 2}, ErrListTooLong},
		{wq.WQE{Op: OpWrite, Flags: wq.FlagInline, Local: SGE{Length: 9}}, ErrInlineTooLong},
	} {
		require.ErrorIs(t, ask(x.entry), x.err)
	}
	done := make([]Completion, 4)
	write := wq.WQE{Op: OpWrite, Flags: wq.FlagSignaled}
	for _, want := range []error{nil, nil, ErrCQFull} {
		require.ErrorIs(t, ask(write), want)
	}
	require.Equal(t, 2, few.Poll(done))
	require.NoError(t, ask(write))
	require.Equal(t, 1, few.Poll(done))
	src.leaves = true
	require.NoError(t, ask(write))
	r.close(s, c)
	require.Zero(t, few.Poll(done))
}

// oneEntry is a WorkSource with an entry that it posts, or leaves in the Feed's room.
type oneEntry struct {
	entry         wq.WQE
	waits, leaves bool
	err           error
}

func (o *oneEntry) SendsWait() bool { return o.waits }
func (o *oneEntry) Recvs(Feed)      {}
func (o *oneEntry) Written()        {}

func (o *oneEntry) Sends(f Feed) {
	if !o.waits {
		return
	}
	f.Room().WQE, o.waits, o.err = o.entry, false, nil
	if !o.leaves {
		o.err = f.SendEntry()
	}
}

// A WorkSource hears of the peer's Writes when they are in memory, and not of Sends or empty
// Writes, as start-up's is.
func TestWorkSourceWritten(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	var work queues
	var received log
	var told, there atomic.Int32
	s := r.newEnd(r.server, qpOpts(QPOptions{Source: &work}))
	c := r.newEnd(r.client, opts{})
	s.qp.engine.RecvCQ = &r.server.CreateCQSink(received.put).q
	work.add(&work.recvs, s.recvAt(0, 0, 100))
	work.written = func() {
		told.Add(1)
		if bytes.Equal(s.region.Bytes()[:100], c.source.Bytes()[:100]) {
			there.Add(1)
		}
	}
	work.add(&work.recvs, s.recvAt(1, 0, 100))
	r.connectEnds(s, c)
	c.post(c.write(s, 0, 0, 0))
	for n := range 2 {
		c.post(c.send(1, 0, 100))
		r.until("the Send", func() bool { return len(received.have()) == n+1 })
	}
	require.Zero(t, told.Load())
	c.post(c.write(s, 2, 0, 100))
	r.until("the Write", func() bool { return told.Load() == 1 })
	require.EqualValues(t, 1, there.Load())
}

// What waits in a WorkSource when the connection ends is flushed, and so is what comes later, at
// the doorbell.
func TestWorkSourceFlushed(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	var work queues
	var done log
	s := r.newEnd(r.server, qpOpts(QPOptions{Source: &work}))
	s.qp.engine.RecvCQ = &r.server.CreateCQSink(done.put).q
	s.qp.engine.SendCQ = s.qp.engine.RecvCQ
	_, c := r.connectEnds(s, r.newEnd(r.client, opts{}))
	work.add(&work.recvs, s.recvAt(1, 0, 10), s.recvAt(2, 0, 10))
	r.close(c, s)
	r.until("buffers flushed", func() bool { return len(done.have()) == 2 })
	work.add(&work.recvs, s.recvAt(3, 0, 10))
	work.add(&work.sends, WorkRequest{Op: OpSend, ID: 4, Local: s.source.Slice(0, 1)})
	s.qp.Doorbell()
	var ids []uint64
	for _, c := range done.have() {
		require.Equal(t, Flushed, c.Status)
		ids = append(ids, c.ID)
	}
	require.Equal(t, []uint64{1, 2, 4, 3}, ids)
}

// Work from a WorkSource costs no allocation.
func TestWorkSourceAllocatesNothing(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	var done int
	src := &oneEntry{}
	c := r.newEnd(r.client, qpOpts(QPOptions{Source: src}))
	c.qp.engine.SendCQ = &r.client.CreateCQSink(func(Completion) { done++ }).q
	s, _ := r.connectEnds(r.newEnd(r.server, opts{}), c)
	wr := c.write(s, 1, 0, 64)
	putWQE(&src.entry, wr.Op, &wr)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		src.waits = true
		c.qp.Doorbell()
		for done = 0; done == 0; {
			r.step()
		}
	}))
}

// A SharedReceiveQueue takes buffers from its Source when messages need them, and counts them as
// left.
func TestSharedSource(t *testing.T) {
	const count, n = 30, 100
	r := newRig(t, turned, rigConfig{})
	var waiting queues
	pd := r.server.AllocPD()
	srq := must(r.server.CreateSRQ(SRQOptions{PD: pd, Depth: 8, Source: func(f SharedFeed) {
		waiting.take(&waiting.recvs, f.Recv)
	}}))
	events := r.server.Events()
	s, c := r.connect(qpOpts(QPOptions{PD: pd, SRQ: srq}), opts{})
	for i := range count {
		waiting.add(&waiting.recvs, s.recvAt(uint64(i), i*n, n))
	}
	require.NoError(t, srq.Arm(5))
	require.Equal(t, 8, srq.Left())
	for i := range count {
		c.post(c.sendQuietly(i*n, n))
		require.EqualValues(t, i, s.await(1)[0].ID)
		if i == count-9 {
			require.Empty(t, events, "8 are left")
		}
	}
	require.Equal(t, EventSRQLimit, (<-events).Kind)
	require.Equal(t, c.source.Bytes()[:count*n], s.inbox.Bytes()[:count*n])
}
