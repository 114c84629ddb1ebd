package wq

import "unsafe"

// WQE is a work request as rings hold it: 64 octets, fixed, free of pointers. Ranges and inline
// octets that do not fit are in the entries that follow:
//
//	WQE | ranges after Local: 4 an entry ...
//	WQE | inline octets: 64 an entry ...
type WQE struct {
	ID           uint64 // comes back in the completion
	Local        SGE    // first range; inline: its Length; atomics: where the word before goes
	RemoteOffset uint64
	RemoteSTag   STag // the peer's; Local Invalidate: ours
	Op           Opcode
	Flags        Flags
	More         uint8 // ranges after Local
	_            uint8
	Operands     [3]uint64 // by Op, see below
}

// What Operands are:
//
//	OpFetchAdd        Add, Boundary
//	OpCompareSwap     Compare, Swap. More is 1 where the masks leave bits out: they are in place of a range (Masks)
//	OpImmediate       the 8 octets, the first the highest
//	OpSendImmediate   the 4 octets, the first the highest
//	OpWriteImmediate  imm_data, as C has it
//	OpBindWindow      handles of window and region, octets; RemoteSTag and RemoteOffset: the STag that
//	                  it gets, and where it begins; Local.STag: its rights, as C has them
//	FlagRefused           the Status that it completes with
//
// Masks are those of Compare and Swap, in the room of a range.
func Masks(compare, swap uint64) SGE {
	return SGE{Offset: compare, Length: uint32(swap), STag: STag(swap >> 32)}
}

// Masks are what the function Masks has put into s.
func (s *SGE) Masks() (compare, swap uint64) {
	return s.Offset, uint64(s.STag)<<32 | uint64(s.Length)
}

// A Send of a queue pair for datagrams has its destination in the same place: the GID's octets in
// Operands[0] and [1], and the immediate data, as C has it, in [2]; the Q_Key in RemoteSTag; and in
// RemoteOffset
//
//	bits 0 to 23   the number
//	bits 24 to 31  the index of the own GID
//	bits 32 to 39  the traffic class
//	bit 40         there is immediate data
const (
	DatagramSourceShift = 24
	DatagramClassShift  = 32
	DatagramImmediate   = 1 << 40
	DatagramFromV4      = 1 << 32 // in CQE.Original: it came by IPv4
)

// Flags of a WQE.
type Flags uint8

const (
	FlagSignaled Flags = 1 << iota
	FlagSolicited
	FlagFence
	FlagInline
	FlagRefused // by the engine's own hand: not to be carried out
)

func (w *WQE) Signaled() bool  { return w.Flags&FlagSignaled != 0 }
func (w *WQE) Solicited() bool { return w.Flags&FlagSolicited != 0 }
func (w *WQE) Fence() bool     { return w.Flags&FlagFence != 0 }
func (w *WQE) Inline() bool    { return w.Flags&FlagInline != 0 }
func (w *WQE) Refused() bool   { return w.Flags&FlagRefused != 0 }

const (
	EntryLen       = 64 // octets of an entry
	RangesPerEntry = 4  // ranges in one that follows a WQE
)

// Following is how many entries follow w.
func (w *WQE) Following() int {
	if w.Inline() {
		return int((uint64(w.Local.Length) + EntryLen - 1) / EntryLen)
	}
	return (int(w.More) + RangesPerEntry - 1) / RangesPerEntry
}

// Ranges and Octets are what w holds where it follows another.
func (w *WQE) Ranges() *[RangesPerEntry]SGE { return (*[RangesPerEntry]SGE)(unsafe.Pointer(w)) }
func (w *WQE) Octets() *[EntryLen]byte      { return (*[EntryLen]byte)(unsafe.Pointer(w)) }
