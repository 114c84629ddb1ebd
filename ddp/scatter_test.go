package ddp

import (
	"bytes"
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
)

const listMax = 5

// newListSink is a sink whose queue 0 takes lists.
func newListSink(t testing.TB) *sink {
	k := newSink(t, 64)
	k.queues[0].InitLists(8, listMax)
	k.stream.Init(StreamConfig{Table: k.table, Domain: k.domain, Stream: ownStream, Version: testDV,
		Queues: k.queues, PendingMax: 64})
	return k
}

// postList posts ranges of these lengths, each at octet 3 of a region of its own.
func (k *sink) postList(id uint64, lengths []int) (regions []*mem.MemoryRegion, list []wq.SGE) {
	k.t.Helper()
	for _, n := range lengths {
		if n == 0 { // names nothing
			regions, list = append(regions, nil), append(list, wq.SGE{STag: 0xbad, Offset: 1 << 63})
			continue
		}
		mr := k.registerIn(k.domain, n+3, mem.RegionOptions{Access: mem.LocalWrite})
		regions = append(regions, mr)
		list = append(list, wq.SGE{STag: mr.STag(), Offset: mr.Base() + 3, Length: uint32(n)})
	}
	require.True(k.t, k.queues[0].PostList(id, list))
	return regions, list
}

func gathered(regions []*mem.MemoryRegion) (all []byte) {
	for _, mr := range regions {
		if mr != nil {
			all = append(all, mr.Bytes()[3:]...)
		}
	}
	return all
}

// However a message is cut into segments, in whatever order they come and in whatever pieces, it
// fills the ranges one after the other, and no octet around them.
func TestScatter(t *testing.T) {
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 7))
		k := newListSink(t)
		lengths := make([]int, 1+rng.IntN(listMax))
		total := 0
		for i := range lengths {
			if rng.IntN(4) > 0 {
				lengths[i] = rng.IntN(40)
			}
			total += lengths[i]
		}
		regions, list := k.postList(9, lengths)
		n := rng.IntN(total + 1)
		message := make([]byte, n)
		for i := range message {
			message[i] = byte(rng.Uint32() | 1)
		}
		placeShuffled(t, k, rng, message)
		var d Delivered
		require.True(t, k.stream.Deliver(k.pos, &d), "seed %d", seed)
		require.Equal(t, uint32(n), d.Len)
		require.Equal(t, uint64(9), d.Buffer.ID)
		require.Equal(t, uint32(total), d.Buffer.Len)
		if len(list) > 1 {
			require.Equal(t, list, d.List)
		} else {
			require.Nil(t, d.List)
		}
		got := gathered(regions)
		require.Equal(t, message, append([]byte{}, got[:n]...), "seed %d", seed)
		require.Equal(t, make([]byte, total-n), append([]byte{}, got[n:]...),
			"after the message, seed %d", seed)
		for _, mr := range regions {
			require.True(t, mr == nil || bytes.Equal(mr.Bytes()[:3], make([]byte, 3)),
				"in front of a range, seed %d", seed)
		}
		k.post(0, 10, 1)
		require.Nil(t, k.place(untagged(0, 2, 0, true), []byte{1}))
		require.True(t, k.stream.Deliver(k.pos, &d))
		require.Nil(t, d.List, "no list of the message before")
	}
}

// placeShuffled places a message of MSN 1 in segments of random lengths, in random order and
// pieces.
func placeShuffled(t *testing.T, k *sink, rng *rand.Rand, message []byte) {
	type segment struct {
		start, end uint64
		octets     []byte
	}
	var segments []segment
	for at, last := 0, false; !last; {
		m := min(rng.IntN(30)+1, len(message)-at)
		last = at+m == len(message)
		u := ulpdu(untagged(0, 1, uint32(at), last), message[at:at+m])
		start, end := k.span(len(u))
		segments = append(segments, segment{start, end, u})
		at += m
	}
	rng.Shuffle(len(segments), func(i, j int) { segments[i], segments[j] = segments[j], segments[i] })
	for _, s := range segments {
		var pieces [][]byte
		for rest := s.octets; len(rest) > 0; {
			m := 1 + rng.IntN(len(rest))
			pieces, rest = append(pieces, rest[:m]), rest[m:]
		}
		require.Nil(t, place(&k.stream, s.start, s.end, len(s.octets), pieces))
	}
}

// The buffer ends with its last range; one of them that is no writable memory of the domain is
// this host's error, and not an octet of the segment is in the others.
func TestScatterErrors(t *testing.T) {
	for _, c := range []struct {
		name          string
		spoil         func(k *sink, regions []*mem.MemoryRegion)
		mo            uint32
		n             int
		errType, code uint8
	}{
		{"one octet too long", nil, 0, 31, TypeUntagged, CodeTooLong},
		{"at the end", nil, 30, 1, TypeUntagged, CodeInvalidMO},
		{"a range revoked", func(k *sink, regions []*mem.MemoryRegion) {
			k.reader.Exit()
			regions[2].Revoke()
			k.reader.Enter()
		}, 5, 25, TypeLocalCatastrophic, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			k := newListSink(t)
			regions, _ := k.postList(1, []int{10, 0, 10, 10})
			if c.spoil != nil {
				c.spoil(k, regions)
			}
			err := k.place(untagged(0, 1, c.mo, true), bytes.Repeat([]byte{0x77}, c.n))
			require.NotNil(t, err)
			require.Equal(t, [2]uint8{c.errType, c.code}, [2]uint8{err.Type, err.Code})
			require.Equal(t, make([]byte, 30), gathered(regions))
		})
	}
}

// What a list may be. A slot that is used again for one range has no list.
func TestPostList(t *testing.T) {
	var q Queue
	require.Panics(t, func() { q.InitLists(2, 0) })
	q.InitLists(2, 3)
	require.Panics(t, func() { q.PostList(1, make([]wq.SGE, 4)) })
	require.Panics(t, func() { q.PostList(1, []wq.SGE{{Length: 1 << 31}, {Length: 1 << 31}}) })
	require.True(t, q.PostList(1, []wq.SGE{{Length: 1 << 31}, {Length: 1<<31 - 1}}))
	require.True(t, q.PostList(2, []wq.SGE{{Length: 1}, {Length: 2, STag: 5}, {Length: 3}}))
	require.False(t, q.PostList(3, []wq.SGE{{Length: 1}, {}}), "full")
	b, ok := q.Flush()
	require.True(t, ok)
	require.Equal(t, RecvBuffer{ID: 1, Len: 1<<32 - 1}, b)
	require.True(t, q.Post(RecvBuffer{ID: 3, Len: 4}))
	require.Equal(t, []wq.SGE{{Length: 1}, {Length: 2, STag: 5}, {Length: 3}}, q.list(2))
	require.Nil(t, q.list(3))

	var plain Queue
	plain.Init(2)
	require.Panics(t, func() { plain.PostList(1, make([]wq.SGE, 2)) })
	require.True(t, plain.PostList(1, []wq.SGE{{Length: 7}}))
	require.Nil(t, plain.list(1))
}

// A thousand messages in one measured run: storage that grows now and then, as a slice does that is
// appended to and never begins again, counts as well.
func TestScatterDoesNotAllocate(t *testing.T) {
	allocs := 1.0
	for i := 0; i < 5 && allocs > 0; i++ { // the runtime allocates now and then, too
		allocs = scatterAllocs(t)
	}
	require.Zero(t, allocs)
}

// scatterAllocs is what a thousand messages allocate on a new stream, after a first thousand.
func scatterAllocs(t *testing.T) float64 {
	k := newListSink(t)
	mr := k.register(100)
	list := []wq.SGE{{Offset: 0, Length: 10, STag: mr.STag()},
		{Offset: 50, Length: 10, STag: mr.STag()}, {Offset: 20, Length: 5, STag: mr.STag()},
		{Offset: 30, Length: 3, STag: mr.STag()}, {Offset: 40, Length: 2, STag: mr.STag()}}
	require.Len(t, list, listMax)
	seg := ulpdu(untagged(0, 1, 0, true), make([]byte, 30))
	pieces := [][]byte{seg}
	var d Delivered
	require.Equal(t, listMax, cap(k.stream.targets), "there before the first segment")
	allocs := testing.AllocsPerRun(1, func() {
		for range 1000 {
			k.queues[0].PostList(1, list)
			h := untagged(0, k.queues[0].first, 0, true)
			h.Put(seg)
			start, end := k.span(len(seg))
			if place(&k.stream, start, end, len(seg), pieces) != nil || !k.stream.Deliver(end, &d) {
				t.Fatal("not delivered")
			}
		}
	})
	require.Equal(t, listMax, cap(k.stream.targets))
	return allocs
}

// Pieces that are not the ULPDU they are said to be are a fault of the caller's, which must not go
// unseen.
func TestScatterPanicsOnOtherLengths(t *testing.T) {
	for name, octets := range map[string]int{"less": 29, "more": 31} {
		k := newListSink(t)
		k.postList(1, []int{10, 10, 10})
		seg := ulpdu(untagged(0, 1, 0, true), make([]byte, octets))
		start, end := k.span(len(seg))
		require.PanicsWithValue(t, "ddp: pieces hold "+name+" than the ULPDU", func() {
			_ = place(&k.stream, start, end, UntaggedLen+30, [][]byte{seg})
		})
	}
}
