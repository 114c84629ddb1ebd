package stream

import (
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

func newPool(t testing.TB, n int) *mem.Pool {
	return must(mem.NewPool(hugepages.Heap(n*stride+4096), mem.PoolConfig{Bufs: n, Stride: stride}))(t)
}

// The Poller's side pushes, extends, spills and grows the ring while a reader takes: the octets
// come once and in order, and no Buf is lost.
func TestRecvRingAtOnce(t *testing.T) {
	t.Run("segments", func(t *testing.T) { recvRingAtOnce(t, 1448, 2<<20) })
	// the reader keeps up: it seals while we extend
	t.Run("small", func(t *testing.T) { recvRingAtOnce(t, 4, 1<<20) })
}

func recvRingAtOnce(t *testing.T, pieceMax, octets int) {
	const bufsMax = 64
	pool := newPool(t, bufsMax)
	var u upper
	u.rx.init(16, 64<<10)
	want := random(3, octets)
	got := make([]byte, 0, len(want))
	var wg sync.WaitGroup
	wg.Go(func() { // the reader
		rng := rand.New(rand.NewPCG(1, 1))
		buf := make([]byte, 5000)
		for len(got) < len(want) {
			for !u.gate.CompareAndSwap(gateIdle, gateBusy) {
				runtime.Gosched()
			}
			n := u.rx.read(pool, buf[:1+rng.IntN(len(buf))])
			u.gate.Store(gateIdle)
			got = append(got, buf[:n]...)
			if n == 0 {
				runtime.Gosched()
			}
		}
	})
	rng := rand.New(rand.NewPCG(2, 2))
	var extended, spilled, pushed int
	for at := 0; at < len(want); {
		u.rx.free(pool)
		n := min(1+rng.IntN(1+rng.IntN(pieceMax)), len(want)-at)
		p := want[at : at+n]
		switch {
		case u.rx.used() == len(u.rx.slots):
			if len(u.rx.slots) < 64 && u.gate.CompareAndSwap(gateIdle, gateBusy) {
				u.rx.grow(2 * len(u.rx.slots))
				u.gate.Store(gateIdle)
			}
			runtime.Gosched()
			continue
		case u.rx.extend(pool, p):
			extended++
		case rng.IntN(8) == 0 || pool.Available() == 0:
			if !u.rx.spill(p) {
				runtime.Gosched()
				continue
			}
			spilled++
		default:
			b := pool.Alloc()
			copy(pool.Slot(b)[100:], p)
			u.rx.push(b, 100, uint32(n))
			pushed++
		}
		at += n
	}
	wg.Wait()
	require.Equal(t, want, got)
	u.rx.free(pool)
	require.Equal(t, bufsMax, pool.Available())
	require.Equal(t, uint64(len(want)), u.rx.taken.Load())
	for _, n := range []int{extended, spilled, pushed} {
		require.Positive(t, n)
	}
}

func TestRecvRingHandsOutWhatIsUnread(t *testing.T) {
	pool := newPool(t, 8)
	var r recvRing
	r.init(8, 64<<10)
	for i := range 3 {
		b := pool.Alloc()
		copy(pool.Slot(b), []byte{byte(3 * i), byte(3*i + 1), byte(3*i + 2)})
		r.push(b, 0, 3)
	}
	require.True(t, r.spill([]byte{9, 10, 11}))
	require.True(t, r.spill([]byte{12}))
	require.Equal(t, 4, r.used(), "one slot for all that is spilled")
	require.Equal(t, 4, r.read(pool, make([]byte, 4)))
	require.Equal(t, 1, r.free(pool))
	var got []byte
	r.unread(pool, make([]byte, 2), func(b mem.Buf, data []byte) {
		got = append(got, data...)
		if b != mem.NoBuf {
			pool.Free(b)
		}
	})
	require.Equal(t, []byte{4, 5, 6, 7, 8, 9, 10, 11, 12}, got)
	require.Zero(t, r.used())
	require.Equal(t, 8, pool.Available())
}

// A Buf goes back when its last octet is read, although a small segment might still have been
// copied after it.
func TestReadBufGoesBackAtOnce(t *testing.T) {
	pool := newPool(t, 2)
	var r recvRing
	r.init(2, 64<<10)
	r.push(pool.Alloc(), 0, 10)
	require.True(t, r.extend(pool, []byte("x")))
	require.Equal(t, 11, r.read(pool, make([]byte, 11)))
	require.False(t, r.slots[0].publish(11, 1), "sealed between the look and the word")
	require.False(t, r.extend(pool, []byte("y")), "sealed")
	require.Equal(t, 1, r.free(pool))
	require.False(t, r.extend(pool, []byte("y")), "gone")
	r.push(pool.Alloc(), 0, stride)
	require.False(t, r.extend(pool, []byte("y")), "full")
	require.Equal(t, 1, r.read(pool, make([]byte, 1)))
	r.unread(pool, nil, func(b mem.Buf, _ []byte) { pool.Free(b) })
}

// admit and enlarge, at each of their bounds.
func TestAdmission(t *testing.T) {
	ps := &pollerState{pool: newPool(t, 400), room: 1800,
		budget: withUnread(stack.Budget{Grow: 100, Window: 100}, 200)}
	opts := must(Options{}.filled())(t)
	var u upper
	u.init(ps, &opts)
	slots := len(u.rx.slots)
	for _, x := range []struct {
		kept, early         int
		inOrder, behindAGap admission
	}{
		{0, 0, kept, kept},
		{149, 0, kept, kept},
		{150, 0, kept, short},
		{199, 0, kept, short},
		{200, 0, copied, short},
		{0, slots/2 - 1, kept, kept},
		{0, slots / 2, kept, denied},
		{0, slots, denied, denied},
	} {
		ps.kept, u.early.n = x.kept, x.early
		require.Equal(t, x.inOrder, u.admit(true), "%+v", x)
		require.Equal(t, x.behindAGap, u.admit(false), "%+v", x)
	}
	size := u.window.size
	ps.kept = 101
	u.enlarge(4 * size)
	require.Equal(t, size, u.window.size, "a quarter of the pool waits for readers")
	ps.kept = 100
	u.enlarge(4 * size)
	require.Equal(t, 4*size, u.window.size)
	require.Greater(t, len(u.rx.slots), slots)
}
