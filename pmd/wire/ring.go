package wire

import (
	"unsafe"

	"github.com/rnicd/rnicd/mem"
)

// slot describes one frame on its way. at is fixed when the ring is made: a slot and its octets belong
// together for good, so that the SPSC ring's own order is all the order there is.
type slot struct {
	at, len               uint32 // the frame in ring.data
	flags                 mem.DescFlags
	csumStart, csumOffset uint16
	_                     uint16
}

const slotBytes = int(unsafe.Sizeof(slot{}))

// ring is one direction between two ports. Invariant: data[at : at+stride] is the producer's from Reserve to
// Publish and the consumer's from Peek to Release.
type ring struct {
	slots *mem.SPSC[slot]
	data  []byte
}

// slotStride keeps frames off each other's cache lines. An odd number of lines spreads neighbouring frames over
// all sets of a cache; a power of two would heap their headers up in a few.
func slotStride(frameMax int) int {
	lines := (frameMax + lineBytes - 1) / lineBytes
	return (lines | 1) * lineBytes
}

// ringBytes is what newRing needs: a multiple of a cache line, so that rings carved one after another share none.
func ringBytes(slots, frameMax int) int {
	descs := (slots*slotBytes + lineBytes - 1) / lineBytes * lineBytes
	return descs + slots*slotStride(frameMax)
}

func newRing(b []byte, slots, frameMax int) *ring {
	stride := slotStride(frameMax)
	data := b[len(b)-slots*stride:]
	descs := mem.View[slot](b, slots)
	for i := range descs {
		descs[i] = slot{at: uint32(i * stride)}
	}
	return &ring{slots: mem.NewSPSC(descs), data: data}
}

// put copies the frame of d into the i-th reserved slot. False: the ring is full.
func (r *ring) put(i int, frame []byte, d *mem.Desc) bool {
	s := r.slots.Reserve(i)
	if s == nil {
		return false
	}
	s.len = uint32(len(frame))
	s.flags, s.csumStart, s.csumOffset = 0, 0, 0
	if d.Flags&mem.TxChecksum != 0 {
		s.flags, s.csumStart, s.csumOffset = mem.RxChecksumGood, d.CsumStart, d.CsumOffset
	}
	copy(r.data[s.at:s.at+s.len], frame)
	return true
}

// heapMemory is n octets from the heap, aligned to a cache line.
func heapMemory(n int) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(make([][lineBytes]byte, (n+lineBytes-1)/lineBytes)))), n)
}
