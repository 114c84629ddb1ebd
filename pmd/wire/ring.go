package wire

import (
	"sync/atomic"
	"unsafe"

	"github.com/rnicd/rnicd/mem"
)

// cell is a frame on its way: this, and right after it the frame's octets. seq says whose it is, so
// that a receiver that waits for a frame looks at the very cache line that the frame's front comes
// in: what it costs to pass between two cores is how many lines do so one after the other, and a
// separate index would be one more.
type cell struct {
	seq                   atomic.Uint64 // the frame's number, from 1, once it is there
	len                   uint32
	flags                 mem.DescFlags
	csumStart, csumOffset uint16
}

const cellLen = uint32(unsafe.Sizeof(cell{}))

// lentCell is what a cell is where frames are not copied: instead of the octets, where they are.
type lentCell struct {
	cell
	buf mem.Buf
	off uint32
}

const lentCellLen = uint32(unsafe.Sizeof(lentCell{}))

// describe says of the cell's frame what its sender's Desc says.
func (c *cell) describe(n int, d *mem.Desc) {
	c.len = uint32(n)
	c.flags, c.csumStart, c.csumOffset = 0, 0, 0
	if d.Flags&mem.TxChecksum != 0 {
		c.flags, c.csumStart, c.csumOffset = mem.RxChecksumGood, d.CsumStart, d.CsumOffset
	}
}

// ring is one direction between two ports: cells of a fixed size, one producer, one consumer.
// Invariant: a cell is the producer's until seq is its frame's number, and then the consumer's
// until head has passed it.
type ring struct {
	data   []byte
	stride uint32 // of a cell with the longest frame
	cells  uint64
	back   *mem.SPSC[mem.Buf] // lent Bufs that the consumer needs no more; nil where frames are copied

	_    [lineBytes]byte
	sent uint64 // producer: frames published
	to   uint32 // producer: the cell after them, in data
	seen uint64 // producer: what it last saw of head

	_    [lineBytes]byte
	got  uint64 // consumer: frames released
	from uint32 // consumer: the cell after them, in data

	_    [lineBytes]byte
	head atomic.Uint64 // got, for the producer, which looks when the ring may be full
	_    [lineBytes]byte
}

// cellStride keeps cells off each other's cache lines. An odd number of lines spreads neighbouring
// frames over all sets of a cache; a power of two would heap their headers up in a few.
func cellStride(frameMax int) int {
	lines := (int(cellLen) + frameMax + lineBytes - 1) / lineBytes
	return (lines | 1) * lineBytes
}

// ringBytes is what newRing needs: a multiple of a cache line, so that rings carved one after
// another share none.
func ringBytes(slots, stride int) int {
	return (slots*stride + lineBytes - 1) &^ (lineBytes - 1)
}

// ringBytesMax: places in a ring are 32 bits, and after adds two of them.
const ringBytesMax = 1 << 31

func newRing(b []byte, slots, stride int) *ring {
	r := &ring{data: b[:slots*stride], stride: uint32(stride), cells: uint64(slots)}
	for i := range slots {
		r.cell(r.after(0, i)).seq.Store(0)
	}
	return r
}

// cell is the one at an offset of data, frame its octets.
func (r *ring) cell(at uint32) *cell { return (*cell)(unsafe.Pointer(&r.data[at])) }

// lent is the cell at an offset of data of a ring of lentCells.
func (r *ring) lent(at uint32) *lentCell { return (*lentCell)(unsafe.Pointer(&r.data[at])) }
func (r *ring) frame(at, n uint32) []byte {
	return r.data[at+cellLen:][:n:n]
}

// after is where the cell stands that is n after the one at at; n is at most the number of cells.
func (r *ring) after(at uint32, n int) uint32 {
	at += uint32(n) * r.stride
	if size := uint32(len(r.data)); at >= size {
		at -= size
	}
	return at
}

// full says whether there is no cell for the i-th frame after those that are published.
func (r *ring) full(i int) bool {
	if r.sent+uint64(i)-r.seen < r.cells {
		return false
	}
	r.seen = r.head.Load()
	return r.sent+uint64(i)-r.seen >= r.cells
}

// put copies the frame of d into the i-th cell after those that are published. False: the ring is
// full.
func (r *ring) put(i int, frame []byte, d *mem.Desc) bool {
	if r.full(i) {
		return false
	}
	at := r.after(r.to, i)
	c := r.cell(at)
	c.describe(len(frame), d)
	copy(r.frame(at, c.len), frame)
	return true
}

// publish makes the n frames that were put the consumer's, the first last: a burst is seen as one.
//
// The second line of the next cell is the consumer's cache's, which read it a lap ago. It is asked
// back now, so that the next publish need not wait for it. The first is what the consumer looks at,
// and would take again.
func (r *ring) publish(n int) {
	for i := n - 1; i > 0; i-- {
		mem.StoreRelease(&r.cell(r.after(r.to, i)).seq, r.sent+uint64(i)+1)
	}
	r.cell(r.to).seq.Store(r.sent + 1)
	r.sent += uint64(n)
	r.to = r.after(r.to, n)
	if r.stride < 2*lineBytes {
		return // no cell has a second line
	}
	prefetchW(unsafe.Pointer(&r.data[r.to+lineBytes]))
}

// ready is how many frames there are for the consumer, limit at most. Of a full ring it ends where
// it began: that cell has no later frame before it was released.
func (r *ring) ready(limit int) int {
	n := 0
	for n < limit && r.cell(r.after(r.from, n)).seq.Load() == r.got+uint64(n)+1 {
		n++
	}
	return n
}

// peek is the i-th frame that is ready.
func (r *ring) peek(i int) (c *cell, frame []byte) {
	at := r.after(r.from, i)
	c = r.cell(at)
	return c, r.frame(at, c.len)
}

// release gives the cells of n frames back.
func (r *ring) release(n int) {
	r.got += uint64(n)
	r.from = r.after(r.from, n)
	mem.StoreRelease(&r.head, r.got)
}

// heapMemory is n octets from the heap, aligned to a cache line.
func heapMemory(n int) []byte {
	return unsafe.Slice(
		(*byte)(unsafe.Pointer(unsafe.SliceData(make([][lineBytes]byte, (n+lineBytes-1)/lineBytes)))), n)
}
