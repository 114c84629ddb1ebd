package ddp

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// traffic is random messages, cut at random MULPDUs, with what the sink must have to show for
// them in the end.
type traffic struct {
	*sink
	rng       *rand.Rand
	mr        *mem.MemoryRegion
	want      []byte // of mr
	segments  []cutSegment
	delivered []Delivered
	bodies    []sentBody
}

type cutSegment struct {
	start, end uint64
	ulpdu      []byte
	placed     bool
}

type sentBody struct {
	mr   *mem.MemoryRegion
	body []byte
}

func newTraffic(t *testing.T, rng *rand.Rand, pendingMax int) *traffic {
	f := &traffic{sink: newSinkOf(t, pendingMax, NewPendingMemory(pendingMax, 1)), rng: rng,
		want: make([]byte, 4096)}
	f.mr = f.register(len(f.want))
	var source Segmenter
	source.Init(testDV)
	to := 0
	for range 12 {
		body := make([]byte, rng.IntN(300)*rng.IntN(2))
		for i := range body {
			body[i] = byte(rng.Uint32())
		}
		d := Delivered{Len: uint32(len(body))}
		h := Header{Tagged: true, ULP: 0x40, STag: f.mr.STag(), TO: uint64(to)}
		if rng.IntN(2) == 0 && len(f.bodies) < 8 {
			h = Header{ULP: 0x44, ULP32: rng.Uint32()}
			f.bodies = append(f.bodies, sentBody{f.post(0, rng.Uint64(), len(body)+rng.IntN(3)), body})
			d.Buffer = f.queues[0].slot(uint32(len(f.bodies))).buffer
		} else {
			copy(f.want[to:], body)
			to += len(body)
		}
		source.Start(Message{Header: h, Len: uint32(len(body))})
		for source.Active() {
			h, off, n := source.Next(32 + rng.IntN(100))
			b := ulpdu(*h, body[off:off+uint32(n)])
			start, end := f.span(len(b))
			f.segments = append(f.segments, cutSegment{start, end, b, false})
			if d.Header, d.End = *h, end; h.Tagged {
				d.Len = uint32(n)
			}
		}
		f.delivered = append(f.delivered, d)
	}
	return f
}

// order is how the segments arrive: at random, or mostly in order as on a real path.
func (f *traffic) order() []int {
	if f.rng.IntN(2) == 0 {
		return f.rng.Perm(len(f.segments))
	}
	order := make([]int, len(f.segments))
	for i := range order {
		order[i] = i
	}
	for range 4 {
		i, j := f.rng.IntN(len(order)), f.rng.IntN(len(order))
		order[i], order[j] = order[j], order[i]
	}
	return order
}

func (f *traffic) arrive(i int) *Error {
	s := &f.segments[i]
	cut := f.rng.IntN(len(s.ulpdu) + 1)
	s.placed = true
	return place(&f.stream, s.start, s.end, len(s.ulpdu), [][]byte{s.ulpdu[:cut], s.ulpdu[cut:]})
}

// edge is the first stream position that has not arrived.
func (f *traffic) edge() uint64 {
	for _, s := range f.segments {
		if !s.placed {
			return s.start
		}
	}
	return f.pos
}

func rounds(t *testing.T, n int, f func(rng *rand.Rand)) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	for round := range n {
		f(rand.New(rand.NewPCG(seed, uint64(round))))
	}
}

// Memory and Delivery are as if the segments had come in order. With few places for waiting
// messages the caller refuses what does not begin at the left edge, has it sent again, and still
// comes to the end.
// req: DDP-7.2-5, DDP-7.3-4, DDP-7.3-6, DDP-7.3-7, DDP-7.4-2, DDP-6.1-8, DDP-3.2-7, DDP-5-5
// req: C02-3.2-1, D01-1.2-6
// req: DDP-7.3-1, DDP-6.2-3, DDP-6.2-7, DDP-6.3-3, DDP-7.4-3, DDP-7.4-5, C02-5.1.2-9, D01-3.1.2-9
func TestPlacementInAnyOrder(t *testing.T) {
	refused := 0
	rounds(t, 200, func(rng *rand.Rand) {
		f := newTraffic(t, rng, 1+rng.IntN(8))
		var got []Delivered
		for waiting := f.order(); len(waiting) > 0; {
			i := waiting[0]
			waiting = waiting[1:]
			if f.stream.Full() && f.segments[i].start != f.edge() {
				waiting = append(waiting, i)
				refused++
				continue
			}
			require.Nil(t, f.arrive(i))
			edge := f.edge()
			now := f.sink.delivered(edge)
			got = append(got, now...)
			for _, d := range now {
				require.LessOrEqual(t, d.End, edge)
			}
		}
		require.Nil(t, f.stream.Err())
		require.Equal(t, f.delivered, got)
		require.Equal(t, f.want, f.mr.Bytes())
		for _, b := range f.bodies {
			require.Equal(t, b.body, b.mr.Bytes()[3:3+len(b.body)])
		}
	})
	require.NotZero(t, refused)
}

// One segment is bad. What arrived in whole before it was found is delivered, in order, and
// nothing else; nothing that arrives later is written.
// req: DDP-9.1-11, DDP-9.1-13, DDP-7.4-2
func TestErrorInAnyOrder(t *testing.T) {
	rounds(t, 200, func(rng *rand.Rand) {
		f := newTraffic(t, rng, 16)
		bad := rng.IntN(len(f.segments))
		f.segments[bad].ulpdu[0] ^= 2 // version
		var got []Delivered
		whole, written := uint64(0), []byte(nil)
		for _, i := range f.order() {
			if i == bad {
				whole = f.edge()
				require.NotNil(t, f.arrive(i))
				written = f.snapshot()
			} else {
				require.Nil(t, f.arrive(i))
			}
			if rng.IntN(3) == 0 {
				got = append(got, f.sink.delivered(f.edge())...)
			}
		}
		got = append(got, f.sink.delivered(f.pos)...)
		var want []Delivered
		for _, d := range f.delivered {
			if d.End <= whole {
				want = append(want, d)
			}
		}
		require.Equal(t, want, got)
		require.Equal(t, written, f.snapshot())
	})
}
