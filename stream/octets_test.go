package stream

import (
	"bytes"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rnicd/rnicd/tcp"
)

// One after the other, against a slice.
func TestOctetQueueIsAQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var q octetQueue
		limit := 1 << rapid.IntRange(14, 19).Draw(t, "limit")
		q.init(limit)
		want := []byte{}
		next := byte(0)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			n := rapid.IntRange(0, 100_000).Draw(t, "n")
			if rapid.Bool().Draw(t, "write") {
				p := make([]byte, n)
				for i := range p {
					p[i] = next + byte(i)
				}
				fits := q.fits(n)
				k := q.write(p)
				require.Equal(t, fits, k == n)
				next += byte(k)
				want = append(want, p[:k]...)
				require.True(t, k == n || len(want) == limit, "full")
			} else {
				p := make([]byte, n)
				k := q.read(p)
				require.Equal(t, min(n, len(want)), k)
				require.Equal(t, want[:k], p[:k])
				want = want[k:]
			}
			require.Equal(t, len(want) > 0, q.pending())
			require.LessOrEqual(t, len(want), limit)
		}
	})
}

// Both sides at once; under -race this shows that they share nothing else.
func TestOctetQueueAtOnce(t *testing.T) {
	want := random(1, 1<<20)
	octetQueueAtOnce(t, want, 128<<10)
	for range 300 { // the moment at which one ring follows the other
		octetQueueAtOnce(t, want[:80<<10], 1<<20)
	}
}

func octetQueueAtOnce(t *testing.T, want []byte, limit int) {
	var q octetQueue
	q.init(limit)
	var wg sync.WaitGroup
	wg.Go(func() {
		for p := want; len(p) > 0; {
			n := q.write(p[:min(len(p), 1+len(p)%1000)])
			if p = p[n:]; n == 0 {
				runtime.Gosched()
			}
		}
	})
	got := make([]byte, 0, len(want))
	buf := make([]byte, 1448)
	for len(got) < len(want) {
		n := q.read(buf)
		got = append(got, buf[:n]...)
		if n == 0 {
			runtime.Gosched()
		}
	}
	wg.Wait()
	if !bytes.Equal(want, got) {
		t.Fatal("octets differ")
	}
	require.False(t, q.pending())
	require.True(t, q.roomy())
}

func TestIdleQueueHasNoMemory(t *testing.T) {
	var q octetQueue
	q.init(1 << 20)
	require.Zero(t, len(q.in.Load().buf))
	q.write([]byte("x"))
	require.Equal(t, octetRingMin, len(q.in.Load().buf))
}

// The reader found a ring empty, the writer filled it and linked another: the reader must look
// again before it goes over.
func TestReaderStaysWithARingThatWasFilled(t *testing.T) {
	var q octetQueue
	q.init(1 << 20)
	require.Equal(t, octetRingMin+1, q.write(make([]byte, octetRingMin))+q.write([]byte("x")))
	require.True(t, q.follow())
	require.NotSame(t, &q.first, q.out)
	full := q.out
	require.True(t, q.follow())
	require.Same(t, full, q.out)
	require.Equal(t, octetRingMin+1, q.read(make([]byte, 1<<20)))
}

// Every end of a write is told once, with the octets before it; ends that found no place are not
// told, and none is told late.
func TestEndsOfWrites(t *testing.T) {
	var q octetQueue
	q.init(1 << 20)
	put := func(n int) { require.Equal(t, n, q.write(make([]byte, n))); q.end() }
	get := func(n int) bool { require.Equal(t, n, q.read(make([]byte, n))); return q.pushed() }
	put(3000)
	put(3000)
	require.False(t, get(1448))
	require.False(t, get(1448))
	require.True(t, get(1448), "the first ends in it")
	require.False(t, q.pushed(), "told")
	require.True(t, get(6000-3*1448), "the second ends with it")
	require.False(t, q.pending())

	put(100_000) // another ring
	require.False(t, get(50_000))
	require.True(t, get(50_000))

	for range endsMax + 5 {
		put(1000)
	}
	for range endsMax {
		require.True(t, get(1000))
	}
	for range 4 {
		require.False(t, get(1000), "no place")
	}
	get(1000)
	put(1000)
	require.True(t, get(1000), "places again")

	// The reader may have taken the octets before the writer says that they end one.
	q.write(make([]byte, 1000))
	require.False(t, get(1000))
	q.end()
	put(2000)
	require.False(t, get(1000), "of the write before nothing is left to be told")
	require.True(t, get(1000))
	q.write(make([]byte, 1000))
	require.Equal(t, 1000, q.read(make([]byte, 1000)))
	q.end()
	q.write(make([]byte, 1000))
	require.True(t, q.pushed(), "in time after all: the next write has begun")
}

// The last segment of every Write has PSH, though another Write is queued after it.
//
// req: 9293-MUST-61
func TestPushAtTheEndOfEachWrite(t *testing.T) {
	v, c, s := newVirtualPair(t, 0, nil)
	v.hosts[0].nic.sent = nil
	for range 2 { // both are there before anything is sent
		v.write(c, string(make([]byte, 3000)))
	}
	v.until("all is there", func() bool { return v.info(s).Unread == 6000 })
	var got []bool
	for _, f := range v.hosts[0].nic.sent {
		if f.size > 0 {
			got = append(got, f.seg.Flags&tcp.PSH != 0)
		}
	}
	require.Equal(t, []bool{false, false, true, false, true}, got)
}
