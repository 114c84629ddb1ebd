package wq

// STag is a Steering Tag: a 24-bit index, unpredictable, and an 8-bit key in the low octet. STag 0
// is never given out.
type STag uint32

func (s STag) Index() uint32 { return uint32(s) >> 8 }
func (s STag) Key() uint8    { return uint8(s) }

// SGE is a range of registered local memory, laid out as ibv_sge. MemoryRegion.Slice makes one.
type SGE struct {
	Offset uint64 // tagged offset (TO): Base of the region counts
	Length uint32
	STag   STag
}
