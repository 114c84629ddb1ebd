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

// messageLen is how many octets the message of r sends or reads. It does not wrap: posting refuses
// longer ones.
func messageLen(r *wq.Request) uint32 {
	if r.More > 0 && !r.Op.IsAtomic() { // whose list is its masks
		return uint32(r.Total())
	}
	return r.Local.Length
}

// takeWork makes r the oldest request of the ring, with as much of what follows it as r has room
// for; false: there is none. Consumer.
func takeWork(ring *mem.MPSC[wq.WQE], r *wq.Request) bool {
	if !ring.Take(&r.WQE) {
		return false
	}
	list, data := r.List, r.Data
	for range r.Following() {
		e, ok := ring.Pop()
		if !ok {
			panic("rnic: a work request came without its entries")
		}
		if r.Inline() {
			data = data[copy(data, e.Octets()[:]):]
		} else {
			list = list[copy(list, e.Ranges()[:]):]
		}
	}
	return true
}
