package ddp

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// pendingModel is a pendingList beside a sorted slice of its ends.
type pendingModel struct {
	list pendingList
	ends []uint64
	max  int
}

// step removes the first message or inserts one, and compares the two.
func (m *pendingModel) step(t *testing.T, rng *rand.Rand) {
	if n := len(m.ends); n > 0 && (n == m.max || rng.IntN(3) == 0 || !m.list.grows()) {
		ref := m.list.first()
		require.Equal(t, m.ends[0], ref.end)
		require.Equal(t, uint32(m.ends[0]), m.list.slots[ref.slot].len)
		m.list.pop()
		m.ends = m.ends[1:]
		return
	}
	end := uint64(rng.IntN(3 * m.max))
	at, dup := slices.BinarySearch(m.ends, end)
	msg := m.list.insert(end)
	require.Equal(t, dup, msg == nil)
	if !dup {
		msg.len = uint32(end)
		m.ends = slices.Insert(m.ends, at, end)
	}
	if ends := m.list.ends(t); !slices.Equal(m.ends, ends) || len(ends) != int(m.list.count) {
		require.Equal(t, m.ends, ends, "count %d", m.list.count)
		require.Len(t, ends, int(m.list.count))
	}
}

// ends are those of all messages, in order. It looks at the chunks' invariants.
func (l *pendingList) ends(t *testing.T) (ends []uint64) {
	c := &l.chunks
	for i := c.head; i != noChunk; i = c.chunks[i].next {
		k := &c.chunks[i]
		for _, ref := range c.of(i)[k.from:k.to] {
			ends = append(ends, ref.end)
		}
		if k.from >= k.to && l.count != 0 || (k.next == noChunk) != (i == c.tail) ||
			k.from != 0 && i != c.head || k.to < c.room/2 && i != c.head && i != c.tail ||
			k.from != k.to && k.last != ends[len(ends)-1] {
			require.FailNow(t, "chunk", "%d of %+v: %+v", i, *c, *k)
		}
	}
	return ends
}

// A list behaves as a sorted slice.
func TestPendingListOracle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 2))
	for range 200 {
		m := pendingModel{max: 1 + rng.IntN(5*chunkLen)}
		m.list.init(nil, 0, m.max)
		for range 1000 {
			m.step(t, rng)
			require.Equal(t, m.max-len(m.ends), len(m.list.free))
		}
	}
}

// Lists that share memory behave as sorted slices while they can grow, and an empty list gives
// its run back.
func TestPendingMemoryOracle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	for range 200 {
		size := 2 + rng.IntN(3*chunkLen)
		memory := NewPendingMemory(size, 1+rng.IntN(3))
		models := make([]pendingModel, 4)
		for i := range models {
			models[i].max = size
			models[i].list.init(memory, uint64(i%2), size+1)
		}
		for range 500 {
			models[rng.IntN(len(models))].step(t, rng)
		}
		for i := range models {
			models[i].list.close()
		}
		require.Len(t, memory.free, len(memory.runs))
		for _, r := range memory.free {
			require.Len(t, r.free, size+1)
		}
	}
}

// However many messages wait, and wherever in the stream the next belong, it costs the same: up
// to a look at each chunk and the references of one for a segment, and the references of one for
// each further message in it.
func TestMessagesInTheMiddle(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 4))
	const inSegment = 73 // of 20 octets
	for _, most := range []int{1024, 4096} {
		for name, place := range map[string]func(segment, segments int) int{
			"the middle, in turn": func(i, n int) int { return n/2 + (i+1)/2*(1-i%2*2) },
			"downwards":           func(i, n int) int { return n - 1 - i },
			"anywhere":            func(i, n int) int { return rng.IntN(n) },
		} {
			var l pendingList
			l.init(nil, 0, most)
			segments, inserted := most/inSegment, 0
			for i := range segments {
				before := l.chunks.steps
				at := uint64(place(i, segments)) << 32
				for k := range uint64(inSegment) {
					if l.insert(at+k*20+1) != nil {
						inserted++
					}
				}
				steps := l.chunks.steps - before
				require.LessOrEqual(t, steps, uint64(most/(chunkLen/2)+2+inSegment*(chunkLen+2)), name)
			}
			require.Len(t, l.ends(t), inserted)
		}
	}
}

// Whether a peer may have one more run costs the same however many there are, as it is asked for
// each segment beyond a gap.
func TestRunsOfAPeerAreCounted(t *testing.T) {
	memory := NewPendingMemory(8, 64)
	lists := make([]pendingList, 64)
	for i := range lists {
		lists[i].init(memory, uint64(i%3), 9)
	}
	for i := range lists {
		for end := uint64(1); end <= 3 && lists[i].grows(); end++ {
			lists[i].insert(end)
		}
	}
	counted := map[*pendingPeer]int{}
	for i := range lists {
		if l := &lists[i]; l.pendingRun != &l.few {
			counted[l.peer]++
		}
	}
	require.Len(t, counted, 3)
	for p, n := range counted {
		require.Equal(t, n, p.runs)
	}
	for i := range lists {
		lists[i].close()
	}
	require.Empty(t, memory.peers)
}

// As many Streams as there are runs may have messages ahead of a gap at once. Another Stream has
// no Room for such messages until one of them has closed its gap or ended; in order it continues.
func TestStreamsShareRoom(t *testing.T) {
	memory := NewPendingMemory(8, 1)
	first, second := newSinkOf(t, 8, memory), newSinkOf(t, 8, memory)
	mr, other := first.register(64), second.register(64)
	require.Equal(t, 8, second.stream.Room())
	first.pos = 100
	first.write(mr, 1, "b", true)
	require.Equal(t, 8, second.stream.Room(), "one alone takes none")
	first.write(mr, 2, "c", true)
	require.Equal(t, 6, first.stream.Room())
	require.Zero(t, second.stream.Room())
	require.True(t, second.stream.Full())
	for i := range uint64(3) {
		second.write(other, i, "x", true)
		second.wantIDs(second.pos, 1000+i)
	}
	first.wantIDs(first.pos, 1001, 1002)
	require.Equal(t, 8, second.stream.Room())

	second.pos += 100
	second.write(other, 4, "x", true)
	second.write(other, 5, "x", true)
	require.Zero(t, first.stream.Room())
	second.stream.Close()
	require.Equal(t, 8, first.stream.Room())
	second.wantIDs(second.pos)
}

// However many Streams a peer opens a gap on, others find runs: the first peer has up to three
// quarters of them. What it gives back it may take again.
func TestPeersShareRoom(t *testing.T) {
	memory := NewPendingMemory(8, 16)
	var streams [4][]*sink
	gap := func(peer int) (taken int) {
		for range 20 {
			k := newSinkFrom(t, uint64(peer), 8, memory)
			mr := k.register(64)
			k.pos = 100
			k.write(mr, 1, "b", true)
			if room := k.stream.Room(); room == 0 {
				continue
			}
			k.write(mr, 2, "c", true)
			streams[peer] = append(streams[peer], k)
			taken++
		}
		return taken
	}
	require.Equal(t, 12, gap(1))
	require.Equal(t, 3, gap(2))
	require.Equal(t, 1, gap(3))
	for _, k := range streams[1] {
		k.stream.Close()
	}
	require.Equal(t, 9, gap(1), "three quarters of what others have left")
}

// Each of the first Streams has a run, whatever the others do.
func TestPendingMemoryIsMadeWithStreams(t *testing.T) {
	memory := NewPendingMemory(8, 2)
	require.Empty(t, memory.runs)
	streams := []*sink{newSinkOf(t, 8, memory), newSinkOf(t, 8, memory), newSinkOf(t, 8, memory)}
	require.Len(t, memory.runs, 2)
	for i, k := range streams {
		mr := k.register(64)
		k.pos = 100
		k.write(mr, 1, "b", true)
		if i < 2 {
			k.write(mr, 2, "c", true)
		}
		require.Equal(t, i < 2, k.stream.Room() > 0)
	}
	streams[0].stream.Close()
	again := newSinkOf(t, 8, memory)
	require.Len(t, memory.runs, 2)
	require.Equal(t, 8, again.stream.Room())
	require.Panics(t, func() { newSinkOf(t, 9, memory) }, "more than a run has")
}
