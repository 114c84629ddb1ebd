package qp

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
)

// WQE is a work request as the rings have it: 64 octets, fixed, pointer-free, so that a ring may
// lie on hugepages and be shared. What does not fit stands in entries right after it, which the
// consumer sees together with it (mem.MPSC.PushAll):
//
//	wqe | ranges: 4 an entry ...      WorkRequest.List
//	wqe | octets: 64 an entry ...     WorkRequest.Inline
//
// The application's slices are read by the posting call alone.
type WQE struct {
	ID           uint64
	Local        SGE // first range; of inline data, atomics and immediate data its Length only
	RemoteOffset uint64
	RemoteSTag   mem.STag
	Op           Opcode
	Flags        wqeFlags
	More         uint8 // ranges after local
	_            uint8
	Operands     [3]uint64 // of atomics, and immediate data
}

type wqeFlags uint8

const (
	FlagSignaled wqeFlags = 1 << iota
	FlagSolicited
	FlagFence
	FlagInline
)

func (w *WQE) signaled() bool  { return w.Flags&FlagSignaled != 0 }
func (w *WQE) solicited() bool { return w.Flags&FlagSolicited != 0 }
func (w *WQE) fence() bool     { return w.Flags&FlagFence != 0 }
func (w *WQE) inline() bool    { return w.Flags&FlagInline != 0 }

// stag is what a Local Invalidate names.
func (w *WQE) stag() mem.STag { return w.Local.STag }

const (
	wqeLen         = 64
	rangesPerEntry = wqeLen / int(unsafe.Sizeof(SGE{}))
	// entriesMoreMax is what the longest list, or inline data, takes after its wqe.
	entriesMoreMax = max((SGEMaxLimit-1+rangesPerEntry-1)/rangesPerEntry, InlineMaxLimit/wqeLen)
)

// An entry after a wqe is one too, for the ring.
type (
	rangesEntry [rangesPerEntry]SGE
	octetsEntry [wqeLen]byte
)

func (w *WQE) ranges() *rangesEntry { return (*rangesEntry)(unsafe.Pointer(w)) }
func (w *WQE) octets() *octetsEntry { return (*octetsEntry)(unsafe.Pointer(w)) }

// behind is how many entries follow w.
func (w *WQE) following() int {
	if w.inline() {
		return (int(w.Local.Length) + wqeLen - 1) / wqeLen
	}
	return (int(w.More) + rangesPerEntry - 1) / rangesPerEntry
}

// EntriesFor is how many entries a ring needs for depth requests, each as long as the limits allow.
func EntriesFor(depth, sgeMax, inlineMax int) int {
	longest := WQE{More: uint8(sgeMax - 1)}
	octets := WQE{Flags: FlagInline, Local: SGE{Length: uint32(inlineMax)}}
	return RingSize(depth * (1 + max(longest.following(), octets.following())))
}

// pushWork queues w and what stands after it; false when the ring has no room for all.
func pushWork(ring *mem.MPSC[WQE], w *WQE, list []SGE, inline []byte) bool {
	if len(list) == 0 && len(inline) == 0 {
		return ring.Push(*w)
	}
	var run [1 + entriesMoreMax]WQE
	run[0] = *w
	n := 1
	for ; len(list) > 0; n++ {
		list = list[copy(run[n].ranges()[:], list):]
	}
	for ; len(inline) > 0; n++ {
		inline = inline[copy(run[n].octets()[:], inline):]
	}
	return ring.PushAll(run[:n])
}

// popFollowing takes the entries after w, which was just popped, to list or inline as long as w says.
// Consumer.
func popFollowing(ring *mem.MPSC[WQE], w *WQE, list []SGE, inline []byte) {
	for range w.following() {
		e, ok := ring.Pop()
		if !ok {
			panic("rnic: a work request came without its entries")
		}
		list = list[copy(list, e.ranges()[:]):]
		inline = inline[copy(inline, e.octets()[:]):]
	}
}

// dropFollowing forgets the entries after w.
func dropFollowing(ring *mem.MPSC[WQE], w *WQE) { popFollowing(ring, w, nil, nil) }
