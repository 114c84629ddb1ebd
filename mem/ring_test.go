package mem

import (
	"fmt"
	"runtime"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/rnicd/rnicd/hugepages"
)

func TestRingSizesRefused(t *testing.T) {
	for _, n := range []int{0, 3, 6, 100} {
		require.Panics(t, func() { NewSPSC(make([]int, n)) })
		require.Panics(t, func() { NewMPSC(make([]MPSCSlot[int], n)) })
	}
	require.Panics(t, func() { NewMPSC(make([]MPSCSlot[int], 1)) })
}

func TestSPSCMisusePanics(t *testing.T) {
	r := NewSPSC(make([]int, 4))
	require.PanicsWithValue(t, "mem: SPSC.Publish(5) with 0 of 4 elements", func() { r.Publish(5) })
	require.Panics(t, func() { r.Publish(-1) })
	require.Panics(t, func() { r.Release(1) })
	require.Panics(t, func() { r.Release(-1) })
	r.Publish(4)
	require.Panics(t, func() { r.Publish(1) })
	r.Release(4)
	require.Nil(t, r.Reserve(-1))
	require.Nil(t, r.Peek(-1))
}

// queueModel is a plain queue beside a ring.
type queueModel struct {
	ring interface {
		Len() int
		Cap() int
		Push(int) bool
		Pop() (int, bool)
		PopN([]int) int
	}
	size  int
	queue []int
	next  int // to be pushed
}

func (m *queueModel) batch(t *rapid.T) int { return rapid.IntRange(0, m.size+2).Draw(t, "n") }

func (m *queueModel) pushed(n int) {
	for range n {
		m.queue = append(m.queue, m.next)
		m.next++
	}
}

// actions are what every ring can do.
func (m *queueModel) actions() map[string]func(*rapid.T) {
	return map[string]func(*rapid.T){
		"": func(t *rapid.T) {
			require.Equal(t, len(m.queue), m.ring.Len())
			require.Equal(t, m.size, m.ring.Cap())
		},
		"Push": func(t *rapid.T) {
			ok := m.ring.Push(m.next)
			require.Equal(t, len(m.queue) < m.size, ok)
			if ok {
				m.pushed(1)
			}
		},
		"Pop": func(t *rapid.T) {
			v, ok := m.ring.Pop()
			require.Equal(t, len(m.queue) > 0, ok)
			if ok {
				require.Equal(t, m.queue[0], v)
				m.queue = m.queue[1:]
			}
		},
		"PopN": func(t *rapid.T) {
			dst := make([]int, m.batch(t))
			n := m.ring.PopN(dst)
			require.Equal(t, min(len(dst), len(m.queue)), n)
			require.True(t, slices.Equal(m.queue[:n], dst[:n]))
			m.queue = m.queue[n:]
		},
	}
}

// Every operation against a plain queue.
func TestSPSCAgainstQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := 1 << rapid.IntRange(0, 4).Draw(t, "log2 size")
		r := NewSPSC(make([]int, size))
		m := &queueModel{ring: r, size: size, next: 1}
		actions := m.actions()
		actions["PushN"] = func(t *rapid.T) {
			v := make([]int, m.batch(t))
			for i := range v {
				v[i] = m.next + i
			}
			n := r.PushN(v)
			require.Equal(t, min(len(v), size-len(m.queue)), n)
			m.pushed(n)
		}
		actions["Reserve and Publish"] = func(t *rapid.T) {
			want := m.batch(t)
			n := 0
			for ; n < want; n++ {
				slot := r.Reserve(n)
				require.Equal(t, len(m.queue)+n < size, slot != nil)
				if slot == nil {
					break
				}
				*slot = m.next + n
			}
			n = rapid.IntRange(0, n).Draw(t, "published")
			r.Publish(n)
			m.pushed(n)
		}
		actions["Peek and Release"] = func(t *rapid.T) {
			want := m.batch(t)
			n := 0
			for ; n < want; n++ {
				slot := r.Peek(n)
				require.Equal(t, n < len(m.queue), slot != nil)
				if slot == nil {
					break
				}
				require.Equal(t, m.queue[n], *slot)
			}
			n = rapid.IntRange(0, n).Draw(t, "released")
			r.Release(n)
			m.queue = m.queue[n:]
		}
		t.Repeat(actions)
	})
}

func TestMPSCAgainstQueue(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := 1 << rapid.IntRange(1, 4).Draw(t, "log2 size")
		r := NewMPSC(make([]MPSCSlot[int], size))
		m := &queueModel{ring: r, size: size, next: 1}
		actions := m.actions()
		actions["PushAll"] = func(t *rapid.T) {
			v := make([]int, min(m.batch(t), size))
			for i := range v {
				v[i] = m.next + i
			}
			ok := r.PushAll(v)
			require.Equal(t, len(v) <= size-len(m.queue), ok)
			if ok {
				m.pushed(len(v))
			}
		}
		t.Repeat(actions)
	})
}

// A ring of pointers must not keep what was taken alive.
func TestRingsForgetPointers(t *testing.T) {
	spsc := NewSPSC(make([]*int, 4))
	mpsc := NewMPSC(make([]MPSCSlot[*int], 4))
	for range 3 {
		require.True(t, spsc.Push(new(int)))
		require.True(t, mpsc.Push(new(int)))
	}
	spsc.Pop()
	spsc.PopN(make([]*int, 1))
	spsc.Release(1)
	mpsc.Pop()
	mpsc.PopN(make([]*int, 2))
	for i := range 4 {
		require.Nil(t, spsc.buf[i])
		require.Nil(t, mpsc.slots[i].val)
	}
}

const ringRounds = 20_000

// Two goroutines; run with -race this proves that the indices order the elements.
func TestSPSCTwoGoroutines(t *testing.T) {
	for name, backing := range map[string][]uint64{
		"heap": make([]uint64, 64), "arena": View[uint64](hugepages.Heap(4096).Bytes(), 64),
	} {
		t.Run(name, func(t *testing.T) {
			r := NewSPSC(backing)
			go func() {
				batch := make([]uint64, 0, 7)
				for next := uint64(0); next < ringRounds; {
					switch n := uint64(0); next % 3 {
					case 0:
						if r.Push(next) {
							next++
						}
					case 1:
						batch = batch[:0]
						for i := next; i < min(next+7, ringRounds); i++ {
							batch = append(batch, i)
						}
						next += uint64(r.PushN(batch))
					case 2:
						for n < 5 && next+n < ringRounds {
							slot := r.Reserve(int(n))
							if slot == nil {
								break
							}
							*slot = next + n
							n++
						}
						r.Publish(int(n))
						next += n
					}
					if r.Len() == r.Cap() {
						runtime.Gosched()
					}
				}
			}()
			dst := make([]uint64, 5)
			for want := uint64(0); want < ringRounds; {
				was := want
				switch want % 3 {
				case 0:
					if v, ok := r.Pop(); ok {
						mustEqual(t, want, v)
						want++
					}
				case 1:
					for _, v := range dst[:r.PopN(dst)] {
						mustEqual(t, want, v)
						want++
					}
				case 2:
					n := 0
					for slot := r.Peek(0); slot != nil && n < 6; slot = r.Peek(n) {
						mustEqual(t, want, *slot)
						want++
						n++
					}
					r.Release(n)
				}
				if was == want {
					runtime.Gosched()
				}
			}
			require.Zero(t, r.Len())
		})
	}
}

func mustEqual(t *testing.T, want, got uint64) {
	if want != got {
		t.Fatalf("want %d, got %d", want, got)
	}
}

func TestRingsDoNotAllocate(t *testing.T) {
	spsc := NewSPSC(make([]flat, 64))
	mpsc := NewMPSC(make([]MPSCSlot[flat], 64))
	batch := make([]flat, 32)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		spsc.Push(flat{})
		spsc.Pop()
		spsc.PushN(batch)
		spsc.PopN(batch)
		spsc.Reserve(0).A = 1
		spsc.Publish(1)
		spsc.Peek(0).A = 2
		spsc.Release(1)
		mpsc.Push(flat{})
		mpsc.Push(flat{})
		mpsc.PushAll(batch[:5])
		mpsc.Pop()
		mpsc.PopN(batch)
	}))
}

func BenchmarkSPSC(b *testing.B) {
	for _, batch := range []int{1, 32} {
		b.Run(fmt.Sprintf("one goroutine/batch=%d", batch), func(b *testing.B) {
			r := NewSPSC(make([]uint64, 1024))
			v := make([]uint64, batch)
			b.ReportAllocs()
			for b.Loop() {
				r.PushN(v)
				r.PopN(v)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(batch), "ns/element")
		})
		b.Run(fmt.Sprintf("two goroutines/batch=%d", batch), func(b *testing.B) {
			r := NewSPSC(make([]uint64, 1024))
			total := b.N * batch
			go func() {
				v := make([]uint64, batch)
				for sent := 0; sent < total; {
					n := r.PushN(v[:min(batch, total-sent)])
					if sent += n; n == 0 {
						runtime.Gosched()
					}
				}
			}()
			v := make([]uint64, batch)
			for got := 0; got < total; {
				n := r.PopN(v)
				if got += n; n == 0 {
					runtime.Gosched()
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(total), "ns/element")
		})
	}
}

func BenchmarkMPSC(b *testing.B) {
	b.Run("push and pop", func(b *testing.B) {
		r := NewMPSC(make([]MPSCSlot[uint64], 1024))
		b.ReportAllocs()
		for b.Loop() {
			r.Push(1)
			r.Pop()
		}
	})
	b.Run("two producers", func(b *testing.B) {
		r := NewMPSC(make([]MPSCSlot[uint64], 1024))
		total := b.N &^ 1
		for range 2 {
			go func() {
				for sent := 0; sent < total/2; {
					if r.Push(1) {
						sent++
					} else {
						runtime.Gosched()
					}
				}
			}()
		}
		v := make([]uint64, 32)
		for got := 0; got < total; {
			n := r.PopN(v)
			if got += n; n == 0 {
				runtime.Gosched()
			}
		}
	})
}

// InitZero takes a backing as it is; Init clears one that was used.
func TestMPSCInit(t *testing.T) {
	backing := make([]MPSCSlot[int], 4)
	var r MPSC[int]
	r.InitZero(backing)
	require.True(t, r.Push(7))
	var again MPSC[int]
	again.Init(backing)
	_, ok := again.Pop()
	require.False(t, ok)
	require.Zero(t, backing[0].val)
	require.Panics(t, func() { r.InitZero(backing[:3]) })
	require.Panics(t, func() { r.Init(backing[:1]) })
}
