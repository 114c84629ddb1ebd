package stream

import (
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
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
				if n <= octetRingMin && fits {
					require.Equal(t, n, k, "it fits")
				}
				next += byte(k)
				want = append(want, p[:k]...)
				require.True(t, k == n || !q.fits(n-k))
			} else {
				p := make([]byte, n)
				k := q.read(p)
				require.Equal(t, min(n, len(want)), k)
				require.Equal(t, want[:k], p[:k])
				want = want[k:]
			}
			require.Equal(t, len(want) > 0, q.pending())
			require.LessOrEqual(t, len(want), 2*limit)
		}
	})
}

// Both sides at once; under -race this shows that they share nothing else.
func TestOctetQueueAtOnce(t *testing.T) {
	var q octetQueue
	q.init(128 << 10)
	want := random(1, 8<<20)
	var wg sync.WaitGroup
	wg.Go(func() {
		for p := want; len(p) > 0; runtime.Gosched() {
			p = p[q.write(p[:min(len(p), 3000+len(p)%50_000)]):]
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
	require.Equal(t, want, got)
	require.False(t, q.pending())
	require.True(t, q.roomy())
}

func TestIdleQueueHasNoMemory(t *testing.T) {
	var q octetQueue
	q.init(1 << 20)
	require.Zero(t, len(q.in.buf))
	q.write([]byte("x"))
	require.Equal(t, octetRingMin, len(q.in.buf))
}
