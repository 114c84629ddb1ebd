package memif

import (
	"encoding/binary"
	"fmt"
	"sync/atomic"
	"unsafe"
)

// A ring in shared memory: a header of two cache lines, then its descriptors.
//
//	 0  cookie  uint32
//	 4  flags   uint16   written by the consumer of frames
//	 6  head    uint16   written by the client
//	64  tail    uint16   written by the server
//	128 descriptors of 16 octets
//
// In the direction from client to server the client fills descriptors [tail, head) with frames,
// and tail is how far the server has read. In the other direction the client puts empty buffers
// into [tail, head), and tail is how far the server has filled them. Indices run freely over 16
// bits.
const (
	ringCookie  = 0x3E31F20
	ringHeader  = 128
	descLen     = 16
	flagMaskInt = 1 // of a ring: its consumer polls
	descNext    = 1 // of a descriptor: the frame goes on in the next one
	ringLog2Max = 14
	ringAlign   = 8 // descriptors are read as words
	ringWordAt  = 4 // flags and head
	ringTailAt  = 64
)

// desc is a descriptor: flags, region and length in its first word, offset and metadata in its
// second.
type desc struct{ first, second uint64 }

func newDesc(flags, region uint16, length, offset uint32) desc {
	return desc{uint64(flags) | uint64(region)<<16 | uint64(length)<<32, uint64(offset)}
}

func (d desc) more() bool     { return d.first&descNext != 0 }
func (d desc) region() uint16 { return uint16(d.first >> 16) }
func (d desc) length() uint32 { return uint32(d.first >> 32) }
func (d desc) offset() uint32 { return uint32(d.second) }

// ring is one as we see it. The other end may write anything to it at any time: each method reads
// what it reads once, and nothing of it is trusted. Our own index is never read back.
type ring struct {
	word *uint32 // flags, and above them head
	end  *uint32 // tail, and above it nothing
	desc []desc
	mask uint16
}

func ringBytes(log2 uint8) int { return ringHeader + descLen<<log2 }

// checkRing says whether memory at an offset of a region can be a ring.
func checkRing(region []byte, offset uint32, log2 uint8) error {
	switch {
	case log2 > ringLog2Max:
		return fmt.Errorf("ring of 2^%d descriptors, want 2^%d at most", log2, ringLog2Max)
	case offset%ringAlign != 0:
		return fmt.Errorf("ring at offset %d, want a multiple of %d", offset, ringAlign)
	case ringBytes(log2) > len(region) || uint64(offset) > uint64(len(region)-ringBytes(log2)):
		return fmt.Errorf("ring of %d octets at offset %d of a region of %d", ringBytes(log2), offset,
			len(region))
	}
	return nil
}

// ringAt is the ring at an offset of a region, both checked.
func ringAt(region []byte, offset uint32, log2 uint8) ring {
	b := region[offset:][:ringBytes(log2)]
	return ring{
		word: (*uint32)(unsafe.Pointer(&b[ringWordAt])),
		end:  (*uint32)(unsafe.Pointer(&b[ringTailAt])),
		desc: unsafe.Slice((*desc)(unsafe.Pointer(&b[ringHeader])), 1<<log2),
		mask: 1<<log2 - 1,
	}
}

// clearRing makes the memory of a ring an empty one.
func clearRing(region []byte, offset uint32, log2 uint8) {
	b := region[offset:][:ringBytes(log2)]
	clear(b)
	binary.NativeEndian.PutUint32(b, ringCookie)
}

func cookieAt(region []byte, offset uint32) uint32 { return native.Uint32(region[offset:]) }

func (r *ring) size() uint16 { return r.mask + 1 }

func (r *ring) head() uint16 { return uint16(atomic.LoadUint32(r.word) >> 16) }
func (r *ring) tail() uint16 { return uint16(atomic.LoadUint32(r.end)) }

// advance moves head on by n: an addition, since flags, in the same word, are the other end's to
// write. All stores before it are seen before it, and loads after it are done after it (wanted
// has need of that).
func (r *ring) advance(n uint16) { atomic.AddUint32(r.word, uint32(n)<<16) }

// setTail stores the tail, ordered as advance.
func (r *ring) setTail(v uint16) { atomic.StoreUint32(r.end, uint32(v)) }

// wanted says whether the consumer wants to be woken.
func (r *ring) wanted() bool { return atomic.LoadUint32(r.word)&flagMaskInt == 0 }

// mask tells the producer not to wake us.
func (r *ring) maskInterrupts() { atomic.OrUint32(r.word, flagMaskInt) }

// unmaskInterrupts tells it to; what it has published before is looked for afterwards.
func (r *ring) unmaskInterrupts() { atomic.AndUint32(r.word, ^uint32(flagMaskInt)) }

// load copies a descriptor, so that what is checked is what is used.
func (r *ring) load(at uint16) desc {
	d := &r.desc[at&r.mask]
	return desc{atomic.LoadUint64(&d.first), atomic.LoadUint64(&d.second)}
}

// store writes one, to be published with advance or setTail.
func (r *ring) store(at uint16, d desc) { r.desc[at&r.mask] = d }

// isLittleEndian: the words above are laid out so.
func isLittleEndian() bool { return binary.NativeEndian.Uint16([]byte{1, 0}) == 1 }
