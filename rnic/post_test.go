package rnic

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/rnicd/rnicd/rnic/internal/transport"
)

// wakes counts how often the doorbell is rung.
type wakes struct {
	transport.Conn
	n int
}

func (w *wakes) Wake() {
	w.n++
	w.Conn.Wake()
}

// Several requests of all kinds go out in their order, for one ring of the doorbell.
func TestPost(t *testing.T) {
	r, s, c := connected(t, serving(4), asking(4))
	rung := &wakes{Conn: c.qp.end.Connection.Load().Transport}
	// nobody else looks at car meanwhile
	c.qp.end.Connection.Load().Transport = rung

	m := r.readable(s, 100, RemoteRead)
	own := r.tied(c, make([]byte, 8), RemoteRead)
	theirs := r.tied(s, make([]byte, 8), RemoteRead)
	s.postRecvs(2, 10)
	read := c.readFrom(m, 3, 0, 100)
	read.Op = OpRead
	write := c.write(s, 1, 0, 100)
	write.Op = OpWrite
	n, err := c.qp.PostSend(write,
		WorkRequest{ID: 2, Op: OpSend, Inline: []byte("octets"), Signaled: true}, read,
		WorkRequest{ID: 4, Op: OpLocalInvalidate, LocalSTag: own.STag(), Signaled: true},
		WorkRequest{ID: 5, Op: OpSendInvalidate, RemoteSTag: theirs.STag(), Signaled: true})
	require.NoError(t, err)
	require.Equal(t, 5, n)
	require.Equal(t, []uint64{1, 2, 3, 4, 5}, ids(t, c.await(5)))
	require.Equal(t, []uint64{0, 1}, ids(t, s.await(2)))
	require.Equal(t, "octets", string(s.inbox.Bytes()[:6]))
	require.Equal(t, c.source.Bytes()[:100], s.region.Bytes()[:100])
	require.False(t, own.Valid())
	require.False(t, theirs.Valid())
	require.Equal(t, 1, rung.n)

	n = must(c.qp.PostSend())
	require.Zero(t, n)
}

// What cannot be posted ends the call, which says how many were; those are carried out.
func TestPostInPart(t *testing.T) {
	r, s, c := connected(t, opts{}, qpOpts(QPOptions{SGEMax: 2}))
	one := WorkRequest{Op: OpSend, Local: c.source.Slice(0, 1), Signaled: true}
	for _, tc := range []struct {
		bad  func(wr *WorkRequest)
		want error
	}{
		{func(wr *WorkRequest) { wr.List = make([]SGE, 2) }, ErrListTooLong},
		{func(wr *WorkRequest) { wr.Op = 0 }, ErrShape},
		{func(wr *WorkRequest) { wr.Op = OpRecv }, ErrShape},
		{func(wr *WorkRequest) { wr.Op = 0xff }, ErrShape},
		{func(wr *WorkRequest) { wr.Op = OpFetchAdd }, ErrShape}, // Local of 1 octet
		{func(wr *WorkRequest) { wr.Op, wr.Local = OpFetchAdd, SGE{} }, ErrReadDepth},
		{func(wr *WorkRequest) { wr.Op = OpRead }, ErrReadDepth},
		{func(wr *WorkRequest) { wr.Op = OpSendImmediate }, ErrExtension}, // not acknowledged mode
	} {
		batch := []WorkRequest{one, one, one, one}
		tc.bad(&batch[2])
		for range 2 {
			s.postRecv(s.recvAt(0, 0, 10))
		}
		n, err := c.qp.PostSend(batch...)
		require.ErrorIs(t, err, tc.want)
		require.Equal(t, 2, n)
		s.await(2)
		require.Len(t, c.await(2), 2)
		c.expectNoCompletion()
	}
	r.close(s, c)
	n, err := c.qp.PostSend(one)
	require.ErrorIs(t, err, ErrClosed)
	require.Zero(t, n)
}

// Receive buffers that are posted together are used in their order, with those that are posted
// alone, and are limited as they are.
func TestPostRecvOfSeveral(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	const depth = 40 // more than one run
	s, c := r.connect(qpOpts(QPOptions{RecvDepth: depth}), opts{})
	var wrs []WorkRequest
	for i := range depth + 3 {
		wrs = append(wrs, s.recvAt(uint64(i), i, 1))
	}
	wrs[9] = WorkRequest{ID: 9, Local: s.inbox.Slice(9, 1), List: []SGE{s.inbox.Slice(900, 4)}}
	n, err := s.qp.PostRecv(wrs[:5]...)
	require.NoError(t, err)
	require.Equal(t, 5, n)
	n, err = s.qp.PostRecv(wrs[5:]...)
	require.ErrorIs(t, err, ErrRecvQueueFull)
	require.Equal(t, depth-5, n)
	n = must(s.qp.PostRecv())
	require.Zero(t, n)

	for i := range depth {
		c.post(c.sendQuietly(i, 1))
	}
	s.expectEach(depth, Completion{Op: OpRecv, Len: 1})
	require.Equal(t, c.source.Bytes()[:depth], s.inbox.Bytes()[:depth])

	n, err = s.qp.PostRecv(wrs[:20]...) // their places are free again
	require.NoError(t, err)
	require.Equal(t, 20, n)
	s.qp.Abort()
	s.awaitClosed()
	s.expectEach(20, Completion{Op: OpRecv, Status: Flushed})
	n = must(s.qp.PostRecv(wrs[:3]...))
	require.Equal(t, 3, n)
	require.Equal(t, Flushed, s.await(3)[2].Status)
	require.Zero(t, s.qp.opt.RecvCQ.promised(), "of a run that did not fit, too")
}

// More requests than the ring has entries: what fits is posted.
func TestPostMoreThanTheRing(t *testing.T) {
	_, s, c := connected(t, opts{}, qpOpts(QPOptions{SendDepth: 4}))
	require.Less(t, c.qp.engine.SQ.Cap(), runMax)
	var wrs []WorkRequest
	for i := range 40 {
		w := c.write(s, uint64(i), i, 1)
		w.Op = OpWrite
		wrs = append(wrs, w)
	}
	for len(wrs) > 0 {
		n, err := c.qp.PostSend(wrs...)
		if n < len(wrs) {
			require.ErrorIs(t, err, ErrSendQueueFull)
		}
		for i, cm := range c.await(n) {
			require.Equal(t, wrs[i].ID, cm.ID)
		}
		wrs = wrs[n:]
	}
	require.Zero(t, c.qp.opt.SendCQ.promised(), "of a run that did not fit, too")
}

// What a request cannot hold is an error of the posting call that says how much it can, and
// nothing is posted.
func TestRequestShapes(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	opt := opts{QPOptions: QPOptions{SGEMax: 3, InlineMax: 10}, ConnParam: ConnParam{ORD: 1, IRD: 1}}
	s, c := r.connect(opt, opt)
	one := c.source.Slice(0, 1)
	huge := SGE{STag: one.STag, Length: 1 << 31}
	for _, tc := range []struct {
		wr   WorkRequest
		post func(WorkRequest) error
		want error
		text string
	}{
		{WorkRequest{List: []SGE{one, one, one}}, poster(c.qp, OpSend), ErrListTooLong,
			"more ranges than QPOptions.SGEMax allows: 4, the limit is 3"},
		{WorkRequest{List: make([]SGE, 300)}, poster(c.qp, OpRecv), ErrListTooLong,
			"301, the limit is 3"},
		{WorkRequest{Inline: make([]byte, 11)}, poster(c.qp, OpWrite), ErrInlineTooLong,
			"QPOptions.InlineMax allows: 11 octets, the limit is 10"},
		{WorkRequest{Inline: make([]byte, 1), Local: one}, poster(c.qp, OpSend), ErrShape,
			"Send with Inline data and with Local or List"},
		{WorkRequest{Inline: make([]byte, 1), List: []SGE{one}}, poster(c.qp, OpSendInvalidate),
			ErrShape, "with Local or List"},
		{WorkRequest{Inline: make([]byte, 1)}, poster(c.qp, OpRecv), ErrShape,
			"Receive with Inline data"},
		{WorkRequest{Inline: make([]byte, 1)}, poster(c.qp, OpRead), ErrShape,
			"RDMA Read with Inline data"},
		{WorkRequest{Local: one, List: []SGE{one}}, poster(c.qp, OpRead), ErrShape, "names one sink"},
		{WorkRequest{List: []SGE{one}}, func(wr WorkRequest) error {
			return errOf(c.qp.PostSend(fetchAdd(wr, 1)))
		}, ErrShape, "Fetch and Add with a List"},
		{WorkRequest{Inline: make([]byte, 1)}, func(wr WorkRequest) error {
			return errOf(c.qp.PostSend(immediate(wr, [8]byte{})))
		}, ErrShape, "Immediate Data with Inline"},
		{WorkRequest{Local: huge, List: []SGE{huge}}, poster(c.qp, OpWrite), ErrTooLong,
			"2^32 octets or more: 4294967296"},
		{WorkRequest{Local: huge, List: []SGE{one, huge}}, poster(c.qp, OpRecv), ErrTooLong,
			"4294967297"},
	} {
		err := tc.post(tc.wr)
		require.ErrorIs(t, err, tc.want)
		require.ErrorContains(t, err, tc.text)
	}
	require.NoError(t,
		checkLong(OpSend, &WorkRequest{Local: huge, List: []SGE{{Length: math.MaxUint32 - huge.Length}}},
			2, 0), "the longest")
	require.Zero(t, c.cq.promised())
	s.postRecv(s.recvAt(1, 0, 0))
	require.NoError(
		t, errOf(c.qp.PostSend(WorkRequest{Op: OpSend, ID: 1, Inline: []byte{}, Signaled: true})),
		"no octets are no inline data")
	c.expectCompletions(Completion{ID: 1, Op: OpSend})
}

func TestRequestLimits(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	make := func(sge, inline int) (*QueuePair, error) {
		cq := must(r.client.CreateCQ(64))
		return r.client.CreateQP(QPOptions{PD: r.client.AllocPD(), SendCQ: cq, RecvCQ: cq, SGEMax: sge,
			InlineMax: inline, SendDepth: 4, RecvDepth: 4})
	}
	for _, tc := range []struct {
		sge, inline  int
		sends, recvs int // entries
		text         string
	}{
		{0, 0, 8, 8, ""},
		{1, NoInline, 4, 4, ""},
		{1, 64, 8, 4, ""},
		{1, 65, 16, 4, ""}, // three each
		{5, NoInline, 8, 8, ""},
		{6, NoInline, 16, 16, ""},
		{SGEMaxLimit, InlineMaxLimit, 128, 64, ""}, // 17 and 9 each
		{-1, 0, 0, 0, "QPOptions.SGEMax -1, 1 to 32 possible"},
		{SGEMaxLimit + 1, 0, 0, 0, "QPOptions.SGEMax 33, 1 to 32 possible"},
		{0, -2, 0, 0, "QPOptions.InlineMax -2, 1 to 1024 possible, or NoInline"},
		{0, InlineMaxLimit + 1, 0, 0, "QPOptions.InlineMax 1025"},
	} {
		q, err := make(tc.sge, tc.inline)
		if tc.text != "" {
			require.ErrorContains(t, err, tc.text)
			continue
		}
		require.NoError(t, err)
		require.Equal(t, [2]int{tc.sends, tc.recvs}, [2]int{q.engine.SQ.Cap(), q.engine.RQ.Cap()})
		q.Abort()
	}
}

// The queues hold as many of the longest requests as they are deep, and all that they hold is
// flushed once, with its entries.
func TestLongestRequestsFit(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	const depth = 5
	s := r.newEnd(r.server,
		qpOpts(QPOptions{SGEMax: SGEMaxLimit, InlineMax: InlineMaxLimit, SendDepth: depth,
			RecvDepth: depth}))
	list := make([]SGE, SGEMaxLimit-1)
	for i := range list {
		list[i] = s.inbox.Slice(i, 1)
	}
	for i := range depth {
		s.postRecv(WorkRequest{ID: uint64(i), Local: list[0], List: list})
	}
	require.ErrorIs(t, errOf(s.qp.PostRecv(WorkRequest{Local: list[0], List: list})), ErrRecvQueueFull)
	p, _ := r.peerConnects(s, false) // a Responder whose peer is silent: nothing leaves the ring
	for i := range depth {
		s.post(
			WorkRequest{Op: OpSend, ID: uint64(100 + i), Inline: randomBytes(uint64(i), InlineMaxLimit)})
	}
	for errOf(s.qp.PostSend(WorkRequest{Op: OpSend, ID: 200, Local: list[0], List: list})) == nil {
		require.Less(t, s.qp.engine.SQ.Len(), 2*depth*(1+qp.EntriesMoreMax), "a ring without an end")
	}
	p.reset()
	s.awaitClosed()
	s.poll()
	ids := map[uint64]int{}
	for _, c := range s.done {
		require.Equal(t, Flushed, c.Status)
		ids[c.ID]++
	}
	for i := range uint64(depth) {
		require.Equal(t, 1, ids[i])
		require.Equal(t, 1, ids[100+i])
	}
	require.Zero(t, s.cq.promised())
	require.Zero(t, s.qp.engine.SQ.Len()+s.qp.engine.RQ.Len())
}

// errOf is the error of a posting call whose count does not matter.
func errOf(_ int, err error) error { return err }

// as is wr with another opcode; fetchAdd, fetchAddFields, compareSwap and immediate add its
// operands.
func as(op Opcode, wr WorkRequest) WorkRequest {
	wr.Op = op
	return wr
}

func fetchAdd(wr WorkRequest, add uint64) WorkRequest { return fetchAddFields(wr, add, 0) }

func fetchAddFields(wr WorkRequest, add, boundary uint64) WorkRequest {
	wr.Op, wr.Add, wr.Boundary = OpFetchAdd, add, boundary
	return wr
}

func compareSwap(wr WorkRequest, c CompareSwap) WorkRequest {
	wr.Op, wr.CompareSwap = OpCompareSwap, c
	return wr
}

func immediate(wr WorkRequest, data [8]byte) WorkRequest {
	wr.Op, wr.Immediate = OpImmediate, data
	return wr
}

// poster posts requests as one of an opcode; OpRecv is a receive buffer.
func poster(q *QueuePair, op Opcode) func(WorkRequest) error {
	return func(wr WorkRequest) error {
		if op == OpRecv {
			return errOf(q.PostRecv(wr))
		}
		return errOf(q.PostSend(as(op, wr)))
	}
}
