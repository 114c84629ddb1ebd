package ddp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// One condition withheld each: the last segment, an earlier segment of the message, an earlier
// message.
// req: DDP-7.4-2, DDP-6.1-8, DDP-7.1-2
func TestDeliverWaits(t *testing.T) {
	k := newSink(t, 8)
	mr := k.register(64)
	k.post(0, 70, 16)
	k.post(0, 71, 16)
	k.post(2, 72, 16)

	k.send(0, 1, 0, "ab", false)
	k.wantIDs(k.pos) // the last segment is missing
	k.send(0, 1, 2, "cd", true)
	first := k.pos
	k.wantIDs(first - 1) // the edge stands inside it
	k.wantIDs(first, 70)
	k.wantIDs(first) // once

	start, end := k.span(TaggedLen + 1)
	k.send(0, 2, 0, "ef", true)
	k.send(2, 1, 0, "gh", true)
	k.wantIDs(start) // an earlier message is missing
	b := ulpdu(tagged(mr, 9, true), []byte("x"))
	require.Nil(t, place(&k.stream, start, end, len(b), [][]byte{b}))
	k.wantIDs(k.pos, 1009, 71, 72)
}

// A buffer per message, also for one without octets.
// req: 5040-5.3-5
func TestDeliverZeroLength(t *testing.T) {
	k := newSink(t, 8)
	mr := k.register(1)
	k.post(0, 70, 16)
	require.True(t, k.queues[0].Post(RecvBuffer{ID: 71})) // no memory at all
	k.send(0, 1, 0, "", true)
	k.send(0, 2, 0, "", true)
	k.write(mr, 1<<40, "", true)
	got := k.delivered(k.pos)
	require.Len(t, got, 3)
	require.Equal(t, uint64(70), got[0].Buffer.ID)
	require.Equal(t, RecvBuffer{ID: 71}, got[1].Buffer)
	for _, d := range got {
		require.Zero(t, d.Len)
	}
	require.Zero(t, k.queues[0].Posted())
}

// req: DDP-6.3-9
func TestDeliverAcrossMSNWrap(t *testing.T) {
	k := newSink(t, 8)
	k.queues[0].first = 0xfffffffe
	var want []uint64
	for i := range uint64(5) {
		k.post(0, i, 4)
		want = append(want, i)
	}
	for _, msn := range []uint32{0xfffffffe, 0xffffffff, 0, 1, 2} {
		k.send(0, msn, 0, "abcd", true)
	}
	k.wantIDs(k.pos, want...)
	require.Equal(t, uint32(3), k.queues[0].first)
}

func TestDeliverAfterFlush(t *testing.T) {
	k := newSink(t, 8)
	mr := k.register(1)
	k.post(0, 70, 16)
	k.post(0, 71, 16)
	k.send(0, 1, 0, "ab", true)
	k.write(mr, 0, "x", true)
	b, _ := k.queues[0].Flush()
	require.Equal(t, uint64(70), b.ID)
	k.send(0, 2, 0, "cd", true)
	k.wantIDs(k.pos, 1000, 71) // the flushed buffer comes back once, from Flush
	require.Nil(t, k.stream.Err())
	err := k.place(untagged(0, 1, 0, true), nil)
	require.Equal(t, CodeMSNRange, err.Code)
}

// With PendingMax messages waiting the caller refuses what is out of order, and the stream still
// goes on.
func TestRoom(t *testing.T) {
	k := newSink(t, 3)
	mr := k.register(64)
	seg := func(i uint64) []byte { return ulpdu(tagged(mr, i, true), []byte("x")) }
	place := func(i uint64) {
		require.Nil(t, place(&k.stream, i*100, i*100+100, TaggedLen+1, [][]byte{seg(i)}))
	}

	for i := range uint64(3) {
		require.Equal(t, 3-int(i), k.stream.Room())
		require.False(t, k.stream.Full())
		place(i + 1)
	}
	require.True(t, k.stream.Full())
	require.Zero(t, k.stream.Room())
	place(0) // at the left edge: the kept place
	require.Zero(t, k.stream.Room())
	require.Panics(t, func() { place(4) }, "Room was not heeded")
	k.wantIDs(400, 1000, 1001, 1002, 1003)
	require.Equal(t, 3, k.stream.Room())
	place(4)
	k.wantIDs(500, 1004)
}

// A segment that ends no message needs no room.
func TestRoomIsForLastSegments(t *testing.T) {
	k := newSink(t, 1)
	mr := k.register(64)
	k.write(mr, 0, "x", true)
	k.write(mr, 1, "x", true)
	for range 10 {
		k.write(mr, 2, "x", false)
	}
	k.wantIDs(k.pos, 1000, 1001)
}

func BenchmarkPendingInsertReversed(b *testing.B) {
	var list pendingList
	list.init(nil, 0, 1024)
	for b.Loop() {
		for end := uint64(1024); end > 0; end-- {
			list.insert(end)
		}
		for list.count > 0 {
			list.pop()
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1024, "ns/message")
}

func BenchmarkPendingInOrder(b *testing.B) {
	var list pendingList
	list.init(nil, 0, 1024)
	end := uint64(0)
	for b.Loop() {
		end++
		list.insert(end)
		list.pop()
	}
}
