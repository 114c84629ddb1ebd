package qp

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
)

// WQE is a work request as the rings have it: 64 octets, fixed, free of pointers, so that a ring
// may lie on hugepages and be shared. Ranges and inline octets that do not fit into it are in
// entries that follow it. The consumer sees them together with it (mem.MPSC.PushAll):
//
//	WQE | ranges: 4 an entry ...      rnic.WorkRequest.List
//	WQE | octets: 64 an entry ...     rnic.WorkRequest.Inline
//
// Only the posting call reads the application's slices.
type WQE struct {
	ID           uint64
	Local        SGE // first range; inline data, atomics and immediate data: Length only
	RemoteOffset uint64
	RemoteSTag   mem.STag
	Op           Opcode
	Flags        wqeFlags
	More         uint8 // ranges after Local
	_            uint8
	Operands     [3]uint64 // of atomics, immediate data, and what is refused
}

type wqeFlags uint8

const (
	FlagSignaled wqeFlags = 1 << iota
	FlagSolicited
	FlagFence
	FlagInline
	FlagRefused // not to be carried out: Operands[0] is the Status that it completes with
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
	// entriesMoreMax is how many entries follow the WQE of the longest list, or inline data.
	entriesMoreMax = max((SGEMaxLimit-1+rangesPerEntry-1)/rangesPerEntry, InlineMaxLimit/wqeLen)
)

// Entries that follow a WQE. The ring takes them for WQEs.
type (
	rangesEntry [rangesPerEntry]SGE
	octetsEntry [wqeLen]byte
)

func (w *WQE) ranges() *rangesEntry { return (*rangesEntry)(unsafe.Pointer(w)) }
func (w *WQE) octets() *octetsEntry { return (*octetsEntry)(unsafe.Pointer(w)) }

// following is how many entries follow w.
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

// pushWork queues w and the entries that follow it; false: the ring has no room for all of them.
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

// popFollowing takes the entries that follow w, which was just popped, and copies them to list or
// inline. Consumer.
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

// dropFollowing takes the entries that follow w, without copying them. Consumer.
func dropFollowing(ring *mem.MPSC[WQE], w *WQE) { popFollowing(ring, w, nil, nil) }
