package ddp

import (
	"testing"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/stretchr/testify/require"
)

func TestQueueInit(t *testing.T) {
	for _, n := range []int{-1, 0, 3, 6, 1<<31 + 1} {
		require.Panics(t, func() { new(Queue).Init(n) }, "%d", n)
	}
	var q Queue
	q.Init(1)
	require.Zero(t, q.Posted())
	_, ok := q.Flush()
	require.False(t, ok)
}

// The window of legal MSNs is [first, first+posted) modulo 2^32.
// req: DDP-9.1-5, DDP-9.2-9, DDP-9.2-10
func TestQueueWindow(t *testing.T) {
	for _, first := range []uint32{1, 2, 0x7fffffff, 0x80000000, 0xfffffffe, 0xffffffff, 0} {
		var q Queue
		q.Init(4)
		q.first = first
		_, code := q.find(first)
		require.Equal(t, CodeNoBuffer, code, "empty queue")
		for i := range uint64(3) {
			q.Post(RecvBuffer{ID: i})
		}
		for i := range uint32(3) {
			slot, code := q.find(first + i)
			require.Zero(t, code)
			require.Equal(t, uint64(i), slot.buffer.ID)
		}
		for _, above := range []uint32{3, 4, 5, 1<<31 - 1} {
			_, code = q.find(first + above)
			require.Equal(t, CodeNoBuffer, code, "first %d + %d", first, above)
		}
		for _, below := range []uint32{1, 2, 1 << 31} {
			_, code = q.find(first - below)
			require.Equal(t, CodeMSNRange, code, "first %d - %d", first, below)
		}
	}
}

// What the segments of one message may say, whatever the order they arrive in.
// req: DDP-6.1-7, DDP-9.1-3, DDP-9.1-4, DDP-9.2-11, DDP-9.2-12
func TestRecvSlotCheck(t *testing.T) {
	type seg struct {
		end     uint64
		mo, len uint32
		last    bool
		code    uint8
		again   bool
	}
	for _, c := range []struct {
		name string
		segs []seg
	}{
		{"in order", []seg{{end: 10, len: 40}, {end: 20, mo: 40, len: 40},
			{end: 30, mo: 80, len: 20, last: true}}},
		{"reverse", []seg{{end: 30, mo: 80, len: 20, last: true}, {end: 20, mo: 40, len: 40},
			{end: 10, len: 40}}},
		{"segment again", []seg{{end: 10, len: 40}, {end: 10, len: 40}, {end: 20, mo: 40, last: true}}},
		{"last again", []seg{{end: 20, mo: 40, last: true}, {end: 20, mo: 40, last: true, again: true}}},
		{"no payload right at the end", []seg{{end: 10, len: 100}, {end: 20, mo: 100, last: true}}},
		{"whole buffer", []seg{{end: 10, len: 100, last: true}}},
		{"MO at the end", []seg{{end: 10, mo: 100, len: 1, code: CodeInvalidMO}}},
		{"MO past the end", []seg{{end: 10, mo: 101, len: 1, code: CodeInvalidMO}}},
		{"MO past the end, no payload", []seg{{end: 10, mo: 101, last: true, code: CodeInvalidMO}}},
		{"highest MO", []seg{{end: 10, mo: 0xffffffff, len: 1, code: CodeInvalidMO}}},
		{"one octet over", []seg{{end: 10, mo: 99, len: 2, code: CodeTooLong}}},
		{"MO plus length wraps", []seg{{end: 10, mo: 99, len: 0xffffffff, code: CodeTooLong}}},
		{"too long from the start", []seg{{end: 10, len: 101, last: true, code: CodeTooLong}}},
		{"two lasts",
			[]seg{{end: 20, mo: 40, last: true}, {end: 30, mo: 50, last: true, code: CodeMSNRange}}},
		{"two lasts, second earlier",
			[]seg{{end: 20, mo: 40, last: true}, {end: 10, last: true, code: CodeMSNRange}}},
		{"after the last",
			[]seg{{end: 20, mo: 40, last: true}, {end: 30, mo: 10, len: 1, code: CodeMSNRange}}},
		{"last before others",
			[]seg{{end: 30, mo: 10, len: 1}, {end: 20, mo: 40, last: true, code: CodeMSNRange}}},
		{"last with a lower MO",
			[]seg{{end: 10, mo: 50, len: 1}, {end: 20, mo: 40, last: true, code: CodeInvalidMO}}},
		{"MO above the last's",
			[]seg{{end: 20, mo: 40, last: true}, {end: 10, mo: 50, len: 1, code: CodeInvalidMO}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var q Queue
			slot := &recvSlot{buffer: RecvBuffer{Len: 100}}
			for i, s := range c.segs {
				h := Header{MO: s.mo, Last: s.last}
				code, again := slot.check(&h, s.end, s.len)
				require.Equal(t, s.code, code, "segment %d", i)
				require.Equal(t, s.again, again, "segment %d", i)
				if code == 0 && !again {
					q.note(slot, &h, s.end)
				}
			}
		})
	}
}

// Wants counts what a message lacks, modulo 2^32, and nothing for one that has its buffer or is
// over.
func TestQueueWants(t *testing.T) {
	for _, first := range []uint32{1, 0x7fffffff, 0xfffffffe, 0} {
		var q Queue
		q.Init(4)
		q.first = first
		require.EqualValues(t, 1, q.Wants(first))
		require.EqualValues(t, 3, q.Wants(first+2))
		q.Post(RecvBuffer{})
		q.Post(RecvBuffer{})
		require.Zero(t, q.Wants(first))
		require.Zero(t, q.Wants(first+1))
		require.EqualValues(t, 1, q.Wants(first+2))
		require.EqualValues(t, 1<<31-2, q.Wants(first+1<<31-1), "the farthest that is ahead")
		require.Zero(t, q.Wants(first-1))
		require.Zero(t, q.Wants(first+1<<31), "what is that far ahead counts as past")
	}
}

// Begun counts buffers from their first segment to their Delivery, or Flush, whatever their
// number of segments.
func TestQueueBegun(t *testing.T) {
	var q Queue
	q.Init(4)
	for range 3 {
		q.Post(RecvBuffer{Len: 100})
	}
	q.note(q.slot(2), &Header{}, 20)
	q.note(q.slot(2), &Header{MO: 10, Last: true}, 30)
	require.Equal(t, 1, q.Begun())
	q.note(q.slot(1), &Header{Last: true}, 10)
	require.Equal(t, 2, q.Begun())
	q.take()
	require.Equal(t, 1, q.Begun())
	q.Flush()
	q.Flush() // its octets have not come
	require.Zero(t, q.Begun())
}

// The memory of a Queue serves the next one, up to a bound, and nothing of the last one is seen.
func TestQueueMemory(t *testing.T) {
	var q Queue
	q.InitLists(4, 2)
	list := []wq.SGE{{STag: 1, Length: 1}, {STag: 2, Length: 2}}
	for id := range uint64(4) {
		require.True(t, q.PostList(id, list))
	}
	q.note(q.slot(1), &Header{Last: true}, 10)
	for _, m := range []Queue{q.Memory(2, 2), q.Memory(4, 1)} {
		m.InitLists(4, 2)
		require.False(t, &m.slots[0] == &q.slots[0] && &m.lists[0] == &q.lists[0],
			"what is larger is not kept")
	}
	next := q.Memory(4, 2)
	allocs := 1.0
	for i := 0; i < 5 && allocs > 0; i++ { // the runtime allocates now and then, too
		allocs = testing.AllocsPerRun(1, func() {
			next.Init(2)
			next.InitLists(4, 2)
		})
	}
	require.Zero(t, allocs)
	require.Same(t, &q.slots[0], &next.slots[0])
	require.Same(t, &q.lists[0], &next.lists[0])
	require.Zero(t, next.Posted())
	require.Zero(t, next.Begun())
	require.True(t, next.Post(RecvBuffer{ID: 9, Len: 3}))
	require.Equal(t, recvSlot{buffer: RecvBuffer{ID: 9, Len: 3}}, *next.slot(1))
	require.Nil(t, next.list(1))
	one := Queue{}
	one.Init(1)
	require.Equal(t, Queue{}, one.Memory(4, 2), "what stands in the Queue itself stays there")
}
