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
