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
	slots  *mem.SPSC[slot]
	data   []byte
	stride uint32

	_  [lineBytes]byte
	to uint32 // producer: where the next frame goes
	_  [lineBytes]byte
	at uint32 // consumer: where the next frame stands
	_  [lineBytes]byte
}

// smallLines are the lines of a small frame, headers and all, that are fetched ahead of need. Larger ones the processor's own
// prefetching finds.
const smallLines = 2

// publish makes n frames the consumer's. The lines that the next one will be written to are the consumer's cache's, which
// read them a lap ago; they are asked back now, so that the next publish need not wait for them.
func (r *ring) publish(n int) {
	r.slots.Publish(n)
	r.to = r.after(r.to, n)
	if s := r.slots.Reserve(0); s != nil {
		prefetchW(unsafe.Pointer(s))
		for i := range uint32(smallLines) {
			prefetchW(unsafe.Pointer(&r.data[r.to+i*lineBytes]))
		}
	}
}

// warm reads of each of the next frame's first lines. Its length stands in its slot, so the frame would be fetched behind that;
// read like this, they come at once. There must be a frame.
func (r *ring) warm() (sum byte) {
	for i := range uint32(smallLines) {
		sum += r.data[r.at+i*lineBytes]
	}
	return sum
}

// release gives the slots of n frames back.
func (r *ring) release(n int) {
	r.slots.Release(n)
	r.at = r.after(r.at, n)
}

// after is where the frame stands that is n behind the one at at.
func (r *ring) after(at uint32, n int) uint32 {
	at += uint32(n) * r.stride
	if size := uint32(len(r.data)); at >= size {
		at -= size
	}
	return at
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
	return &ring{slots: mem.NewSPSC(descs), data: data, stride: uint32(stride)}
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
