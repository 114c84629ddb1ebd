package rnic

import (
	"math"
	"testing"

	"github.com/rnicd/rnicd/rnic/internal/qp"
	"github.com/stretchr/testify/require"
)

// What a request cannot hold is an error of the posting call that says how much it can, and
// nothing is posted.
func TestRequestShapes(t *testing.T) {
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
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
		require.NoError(
			t,
			checkLong(OpSend, &WorkRequest{Local: huge, List: []SGE{{Length: math.MaxUint32 - huge.Length}}},
				2, 0), "the longest")
		require.Zero(t, c.cq.q.Promised())
		s.postRecv(s.recvAt(1, 0, 0))
		require.NoError(
			t, errOf(c.qp.PostSend(WorkRequest{Op: OpSend, ID: 1, Inline: []byte{}, Signaled: true})),
			"no octets are no inline data")
		c.expectCompletions(Completion{ID: 1, Op: OpSend})
	})
}

func TestRequestLimits(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	make := func(sge, inline int) (*QueuePair, error) {
		cq, err := r.client.CreateCQ(64)
		require.NoError(t, err)
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
	over(t, both, rigConfig{}, func(t *testing.T, r *rig) {
		const depth = 5
		s := r.newEnd(r.server,
			opts{QPOptions: QPOptions{SGEMax: SGEMaxLimit, InlineMax: InlineMaxLimit, SendDepth: depth,
				RecvDepth: depth}})
		list := make([]SGE, SGEMaxLimit-1)
		for i := range list {
			list[i] = s.inbox.Slice(i, 1)
		}
		for i := range depth {
			s.postRecv(WorkRequest{ID: uint64(i), Local: list[0], List: list})
		}
		require.ErrorIs(t, errOf(s.qp.PostRecv(WorkRequest{Local: list[0], List: list})),
			ErrRecvQueueFull)
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
		require.Zero(t, s.cq.q.Promised())
		require.Zero(t, s.qp.engine.SQ.Len()+s.qp.engine.RQ.Len())
	})
}
