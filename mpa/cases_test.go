package mpa

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

// spot is a place in a stream: so many octets after the first of an FPDU.
type spot struct{ frame, octet int }

func (p spot) in(s *stream) int {
	if p.frame == len(s.frames) {
		return len(s.octets)
	}
	return int(s.frames[p.frame].start) + p.octet
}

// arrival is one segment of a case, and what it makes the Receiver pass: where markers locate
// FPDUs, and where there are none, if that is not the same.
type arrival struct {
	from, to spot
	passes   []int
	plain    []int
	differs  bool // plain says what is passed without markers
}

// receiverCase is a case of section 5.4.1 of draft-ietf-rddp-mpa-01, 7.4.1 of
// draft-culley-iwarp-mpa-02.
type receiverCase struct {
	name string
	segs []arrival
}

// All cases are of a stream of four FPDUs of 608 octets and their markers: a marker is in each,
// at different places.
var receiverCases = []receiverCase{
	{"1: one aligned complete FPDU, in order", []arrival{
		{from: spot{0, 0}, to: spot{1, 0}, passes: []int{0}},
	}},
	{"1: one aligned complete FPDU, beyond a gap", []arrival{
		{from: spot{1, 0}, to: spot{2, 0}, passes: []int{1}, differs: true},
		{from: spot{0, 0}, to: spot{1, 0}, passes: []int{0}, plain: []int{0, 1}, differs: true},
	}},
	{"2: several aligned complete FPDUs, in order", []arrival{
		{from: spot{0, 0}, to: spot{3, 0}, passes: []int{0, 1, 2}},
	}},
	{"2: several aligned complete FPDUs, beyond a gap", []arrival{
		{from: spot{1, 0}, to: spot{4, 0}, passes: []int{1, 2, 3}, differs: true},
		{from: spot{0, 0}, to: spot{1, 0}, passes: []int{0}, plain: []int{0, 1, 2, 3}, differs: true},
	}},
	{"3: an incomplete FPDU, its rest comes later", []arrival{
		{from: spot{0, 0}, to: spot{0, 300}},
		{from: spot{0, 300}, to: spot{1, 0}, passes: []int{0}},
	}},
	{"3: an incomplete FPDU, its rest is there", []arrival{
		{from: spot{0, 300}, to: spot{1, 0}},
		{from: spot{0, 0}, to: spot{0, 300}, passes: []int{0}},
	}},
	{"3: an incomplete FPDU beyond a gap, its rest comes later", []arrival{
		{from: spot{1, 0}, to: spot{1, 300}},
		{from: spot{1, 300}, to: spot{2, 0}, passes: []int{1}, differs: true},
		{from: spot{0, 0}, to: spot{1, 0}, passes: []int{0}, plain: []int{0, 1}, differs: true},
	}},
	{"3: an incomplete FPDU beyond a gap, its rest is there", []arrival{
		{from: spot{1, 300}, to: spot{2, 0}},
		{from: spot{1, 0}, to: spot{1, 300}, passes: []int{1}, differs: true},
		{from: spot{0, 0}, to: spot{1, 0}, passes: []int{0}, plain: []int{0, 1}, differs: true},
	}},
	{"4: the rest of an FPDU, its front is there", []arrival{
		{from: spot{0, 0}, to: spot{1, 300}, passes: []int{0}},
		{from: spot{1, 300}, to: spot{2, 0}, passes: []int{1}},
	}},
	{"4: the rest of an FPDU, its front comes later", []arrival{
		{from: spot{0, 600}, to: spot{1, 0}},
		{from: spot{1, 0}, to: spot{2, 0}, passes: []int{1}, differs: true},
		{from: spot{0, 0}, to: spot{0, 600}, passes: []int{0}, plain: []int{0, 1}, differs: true},
	}},
	{"5: rest, whole, front", []arrival{
		{from: spot{0, 300}, to: spot{2, 100}, passes: []int{1}, differs: true},
		{from: spot{2, 100}, to: spot{3, 0}, passes: []int{2}, differs: true},
		{from: spot{0, 0}, to: spot{0, 300}, passes: []int{0}, plain: []int{0, 1, 2}, differs: true},
	}},
	{"5: rest and front, none whole", []arrival{
		{from: spot{0, 300}, to: spot{1, 300}},
		{from: spot{0, 0}, to: spot{0, 300}, passes: []int{0}},
		{from: spot{1, 300}, to: spot{2, 0}, passes: []int{1}},
	}},
	{"5: rest and whole", []arrival{
		{from: spot{0, 0}, to: spot{0, 4}},
		{from: spot{0, 4}, to: spot{3, 0}, passes: []int{0, 1, 2}},
	}},
	{"5: whole and front, beyond a gap", []arrival{
		{from: spot{1, 0}, to: spot{2, 300}, passes: []int{1}, differs: true},
		{from: spot{2, 300}, to: spot{4, 0}, passes: []int{2, 3}, differs: true},
		{from: spot{0, 0}, to: spot{1, 0}, passes: []int{0}, plain: []int{0, 1, 2, 3}, differs: true},
	}},
	{"5: a front in each of two segments, their rests in one", []arrival{
		{from: spot{0, 0}, to: spot{0, 300}},
		{from: spot{1, 0}, to: spot{1, 20}},
		{from: spot{0, 300}, to: spot{1, 0}, passes: []int{0}},
		{from: spot{1, 20}, to: spot{3, 0}, passes: []int{1, 2}},
	}},
}

// Every case of what a segment may hold, in order and beyond a gap: what is complete and located
// is passed at once, no FPDU before it is complete or before it is located, each once; Delivery
// waits for what is in front; nothing stays held.
//
// req: D01-1.2-6, D01-2-2, D01-3.2-10, D01-3.2-11, D01-3.2-12
// req: D01-5.4.1-3, D01-5.4.1-4, D01-5.4.1-5, D01-5.4.1-6, D01-5.4.1-7, D01-5.4-1, D01-5.4-3
// req: D01-5.4-4, D01-5.4-6, C02-7.4.1-3, C02-7.4.1-4, C02-7.4.1-5, C02-7.4.1-6, C02-7.4.1-7
// req: C02-7.4-1, C02-7.4-3, C02-7.4-4, C02-7.4-6, C02-4-2, C02-5.2-10, C02-5.2-11, C02-5.2-12
func TestReceiverCases(t *testing.T) {
	for _, c := range receiverCases {
		for _, mode := range allModes {
			for _, base := range []uint64{0, 1<<32 - MarkerSpacing} {
				t.Run(fmt.Sprintf("%s/%+v/%d", c.name, mode, base), func(t *testing.T) {
					c.play(t, mode, base)
				})
			}
		}
	}
}

func (c *receiverCase) play(t *testing.T, mode Mode, base uint64) {
	s := streamOf(mode, 600, 601, 602, 602)
	r := newRig(t, rigConfig{Mode: mode, Base: base}, s)
	have := make([]bool, len(s.octets)+1)
	done := map[int]bool{}
	for _, a := range c.segs {
		lo, hi := a.from.in(s), a.to.in(s)
		r.send(lo, hi)
		require.NotEqual(t, Refused, r.verdict)
		passes := a.passes
		if a.differs && !mode.Markers {
			passes = a.plain
		}
		r.want(passes...)
		for _, i := range passes {
			require.False(t, done[i], "FPDU %d passed twice", i)
			done[i] = true
		}
		for i := lo; i < hi; i++ {
			have[i] = true
		}
		left := 0
		for have[left] {
			left++
		}
		delivered := 0
		for done[delivered] && int(s.frames[delivered].end) <= left {
			delivered++
		}
		edge := 0
		if delivered > 0 {
			edge = int(s.frames[delivered-1].end)
		}
		require.Equal(t, uint64(edge), min(r.deliverable(left), uint64(left)))
	}
	r.held(0)
	require.NoError(t, r.recv.Err())
}
