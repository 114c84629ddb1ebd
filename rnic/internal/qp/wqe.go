package qp

import (
	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/mem"
)

// What does not fit into a WQE is in entries that follow it. The consumer sees them together with
// it (mem.MPSC.PushAll); only the posting call reads the application's slices.

// EntriesMoreMax is how many entries follow the WQE of the longest list, or inline data.
const EntriesMoreMax = max((SGEMaxLimit-1+wq.RangesPerEntry-1)/wq.RangesPerEntry,
	InlineMaxLimit/wq.EntryLen)

// EntriesFor is how many entries a ring needs for depth requests, each as long as the limits allow.
func EntriesFor(depth, sgeMax, inlineMax int) int {
	longest := wq.WQE{More: uint8(sgeMax - 1)}
	octets := wq.WQE{Flags: wq.FlagInline, Local: wq.SGE{Length: uint32(inlineMax)}}
	return RingSize(depth * (1 + max(longest.Following(), octets.Following())))
}

// pushWork queues w and the entries that follow it; false: the ring has no room for all of them.
func pushWork(ring *mem.MPSC[wq.WQE], w *wq.WQE, list []wq.SGE, inline []byte) bool {
	if len(list) == 0 && len(inline) == 0 {
		return ring.Push(*w)
	}
	var run [1 + EntriesMoreMax]wq.WQE
	run[0] = *w
	n := 1
	for ; len(list) > 0; n++ {
		list = list[copy(run[n].Ranges()[:], list):]
	}
	for ; len(inline) > 0; n++ {
		inline = inline[copy(run[n].Octets()[:], inline):]
	}
	return ring.PushAll(run[:n])
}

// popFollowing takes the entries that follow w, which was just popped, and copies them to list or
// inline. Consumer.
func popFollowing(ring *mem.MPSC[wq.WQE], w *wq.WQE, list []wq.SGE, inline []byte) {
	for range w.Following() {
		e, ok := ring.Pop()
		if !ok {
			panic("rnic: a work request came without its entries")
		}
		list = list[copy(list, e.Ranges()[:]):]
		inline = inline[copy(inline, e.Octets()[:]):]
	}
}

// dropFollowing takes the entries that follow w, without copying them. Consumer.
func dropFollowing(ring *mem.MPSC[wq.WQE], w *wq.WQE) { popFollowing(ring, w, nil, nil) }
