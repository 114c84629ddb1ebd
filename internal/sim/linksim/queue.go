package linksim

import (
	"cmp"
	"slices"
)

// ring is first in, first out, of packets in the order of their arrival. It grows until it is large
// enough.
type ring struct {
	slots   []packet
	in, out int
}

func (r *ring) next() int64 {
	if r.in == r.out {
		return never
	}
	return r.first().at
}

func (r *ring) first() *packet { return &r.slots[r.out&(len(r.slots)-1)] }

func (r *ring) pop() { r.out++ }

// push is the place of the next, which the caller fills.
func (r *ring) push() *packet {
	if r.in-r.out == len(r.slots) {
		slots := make([]packet, max(1024, 2*len(r.slots)))
		n := 0
		for i := r.out; i < r.in; i++ {
			slots[n] = r.slots[i&(len(r.slots)-1)]
			n++
		}
		r.slots, r.in, r.out = slots, n, 0
	}
	r.in++
	return &r.slots[(r.in-1)&(len(r.slots)-1)]
}

// lateSet are packets that were overtaken: a list sorted by arrival, last to arrive first. A few of
// a hundred segments are late by a part of a round trip, so a search from the end is short beside
// what else a segment costs.
type lateSet struct{ packets []packet }

func (s *lateSet) next() int64 {
	if len(s.packets) == 0 {
		return never
	}
	return s.first().at
}

func (s *lateSet) first() *packet { return &s.packets[len(s.packets)-1] }

func (s *lateSet) pop() { s.packets = s.packets[:len(s.packets)-1] }

// push is the place of the one that arrives at at, which the caller fills.
func (s *lateSet) push(at int64) *packet {
	i, _ := slices.BinarySearchFunc(s.packets, at, func(p packet, at int64) int {
		return cmp.Compare(at, p.at)
	})
	s.packets = slices.Insert(s.packets, i, packet{at: at})
	return &s.packets[i]
}
