package mem

import (
	"crypto/rand"
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"runtime"
	"sync"
	"sync/atomic"
	"unsafe"
)

// EntriesMax bounds the regions and windows of one Table, so that every slot has at least 8 of the
// 2^24 indices to draw from.
const EntriesMax = 1 << 20

// RegionBytesMax bounds one region: 4 TiB.
const RegionBytesMax = 1 << 42

// Table maps STags to memory. Register and Revoke are for any goroutine; Check is lock-free.
//
// An STag's index is drawn at random from all 24 bits until its low bits name a free slot; at most
// half of the slots are ever used. So one masked load finds the entry, without probing and without
// a hash, and a peer that knows some STags learns of the next one only that it is none of those
// (RFC 5042 section 6.1.1: hard to predict; RFC 5040 section 8.1.1: sparse over the full range).
//
// Entries are immutable. A slot's pointer is the entry's validity: Register, Revalidate and Bind
// store one, Revoke and Unbind store nil and then wait until every Reader that might have loaded
// the old one has left (reader.go). A window's entry names its region's: when that one leaves its
// slot, the window is invalid with it.
type Table struct {
	slots   []atomic.Pointer[entry]
	mask    uint32
	domains atomic.Uint32

	mu         sync.Mutex
	random     func() uint32   // under mu, unless DrawFrom's
	used       []bool          // slot has a region or window, valid or not
	regions    []*MemoryRegion // that slots have, valid or not, until Deregister returns
	last       []uint32        // slot's last index: not drawn twice running
	entries    int
	entriesMax int
	readers    []*Reader
	fence      func() // a barrier of all Readers; nil: they do their own
}

// entry is what Check needs to know of a region or window, in one cache line.
type entry struct {
	mem  []byte
	base uint64
	// a window's region; nil for a region. Held here, its address cannot become another entry's
	of     *entry
	stag   STag
	pd     ProtectionDomain
	stream StreamID
	access Access
}

// NewTable makes a Table for up to entriesMax regions and windows, 42 to 84 octets of memory for
// each; it panics unless that is 1 to EntriesMax.
func NewTable(entriesMax int) *Table {
	if entriesMax < 1 || entriesMax > EntriesMax {
		panic(fmt.Sprintf("mem: Table of %d entries, must be 1 to %d", entriesMax, EntriesMax))
	}
	n := 1 << bits.Len(uint(2*entriesMax-1))
	return &Table{
		slots:      make([]atomic.Pointer[entry], n),
		mask:       uint32(n - 1),
		random:     new(draws).next,
		used:       make([]bool, n),
		regions:    make([]*MemoryRegion, n),
		last:       make([]uint32, n),
		entriesMax: entriesMax,
		fence:      barrierOfAll(),
	}
}

// DrawFrom makes the Table draw the STags to come by random, which any goroutine may call: for
// simulations. An STag that a peer can guess protects nothing.
func (t *Table) DrawFrom(random func() uint32) { t.random = random }

// draws are random numbers that nobody can predict, read many at a time: one call of the kernel's
// generator costs as much for all of them as for one.
type draws struct {
	octets [drawsMax * 4]byte
	left   int // octets, at the end
}

const drawsMax = 64

// next is one that was not given out before. The octets are cleared: what was drawn is not kept.
func (d *draws) next() uint32 {
	if d.left == 0 {
		rand.Read(d.octets[:]) // never fails; the runtime ends the process instead
		d.left = len(d.octets)
	}
	b := d.octets[len(d.octets)-d.left:][:4]
	d.left -= 4
	n := binary.NativeEndian.Uint32(b)
	clear(b)
	return n
}

// AllocDomain returns a ProtectionDomain that no other call on this Table returned. Any goroutine.
// It panics after 2^32-1 of them.
func (t *Table) AllocDomain() ProtectionDomain {
	for {
		last := t.domains.Load()
		if last == math.MaxUint32 {
			panic("mem: all 2^32-1 protection domains were given out")
		}
		if t.domains.CompareAndSwap(last, last+1) {
			return ProtectionDomain(last + 1)
		}
	}
}

// Len returns the number of regions and windows that there are, invalid ones included. Any
// goroutine.
func (t *Table) Len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.entries
}

// Check is the only way from a wire address to memory. The slice is valid until the Reader's Exit.
//
// Any goroutine; one that races with Revoke brackets Check and its use of the slice with a Reader's
// Enter and Exit. stream is the stream on whose behalf memory is reached: a region tied to another
// one is CheckNotAssociated, for local rights too. Only local access that belongs to no stream
// passes AnyStream; that never grants a remote right on a region tied to a stream. All rights in
// need must be granted, and at least one must be asked for.
//
// What is judged first: STag, association (RFC 5041 section 8.2), rights, wrap, bounds. A peer that
// has no business with a region learns nothing of its size. n is not negative. With n = 0 the same
// rules hold, TO may be the octet after the region, and the slice is empty; DDP does not ask for
// zero-length Tagged messages. TO + n = 2^64 wraps.
func (t *Table) Check(pd ProtectionDomain, stream StreamID, stag STag, to uint64, n int,
	need Access) ([]byte, CheckResult) {
	e := t.slots[stag.Index()&t.mask].Load()
	if e == nil || e.stag != stag || e.of != nil && !t.stands(e.of) {
		return nil, CheckInvalidSTag
	}
	if !e.associated(pd, stream, need) {
		return nil, CheckNotAssociated
	}
	if need == 0 || need&^e.access != 0 {
		return nil, CheckAccess
	}
	want, length := uint64(n), uint64(len(e.mem)) // a negative n becomes larger than any region
	if to > math.MaxUint64-want {
		return nil, CheckWrap
	}
	// A TO below base gives an offset of at least 2^64 - base, and base+length stays below 2^64.
	off := to - e.base
	if want > length || off > length-want {
		return nil, CheckBounds
	}
	return e.mem[off : off+want : off+want], CheckOK
}

// stands reports whether e is in its slot, which makes it valid.
func (t *Table) stands(e *entry) bool { return t.slots[e.stag.Index()&t.mask].Load() == e }

// associated reports whether the region and the stream may meet (RFC 5041 sections 2.1 and 8.2).
func (e *entry) associated(pd ProtectionDomain, stream StreamID, need Access) bool {
	if e.pd != pd {
		return false
	}
	return e.stream == AnyStream || e.stream == stream || stream == AnyStream && need&remoteAccess == 0
}

// Invalidate is what a peer's Send with Invalidate asks for on Delivery: the STag is valid no more
// when it returns.
//
// It is called by the goroutine that places for stream, inside or outside Enter and Exit; it
// neither locks nor waits, and need not: only that stream could write through the STag, or through
// windows onto its region, so no other goroutine is placing. For the same reason a region or window
// of AnyStream is CheckAccess, "cannot be invalidated" (RFC 5040 section 8.1.1: a peer must not be
// able to invalidate an STag that several streams share), as is a region without remote rights.
// Otherwise CheckInvalidSTag, CheckNotAssociated or CheckOK. A region stays registered, for
// Revalidate or Deregister, and its windows are invalid with it; a window can be bound again.
func (t *Table) Invalidate(pd ProtectionDomain, stream StreamID, stag STag) CheckResult {
	slot := &t.slots[stag.Index()&t.mask]
	e := slot.Load()
	switch {
	case e == nil || e.stag != stag || e.of != nil && !t.stands(e.of):
		return CheckInvalidSTag
	case !e.associated(pd, stream, remoteAccess):
		return CheckNotAssociated
	case e.stream == AnyStream || e.access&remoteAccess == 0 && e.of == nil:
		return CheckAccess
	case !slot.CompareAndSwap(e, nil):
		return CheckInvalidSTag // its owner was faster
	}
	return CheckOK
}

// Writers returns the STags, of regions and windows, through which a peer may write an octet of b
// at this moment. Any goroutine; it looks at every slot of the Table and allocates.
//
// A server whose clients do not trust each other asks before it grants one of them memory that it
// may have granted another: two STags that lead to one buffer let the one change what the other
// wrote (RFC 5042 section 6.3.6).
func (t *Table) Writers(b []byte) (stags []STag) {
	for i := range t.slots {
		e := t.slots[i].Load()
		if e != nil && e.access&RemoteWrite != 0 && overlap(e.mem, b) && (e.of == nil || t.stands(e.of)) {
			stags = append(stags, e.stag)
		}
	}
	return stags
}

// Unreachable says whether a panic, as recover returned it, is a fault at an octet of a region,
// valid or not, whose Deregister has not returned: the memory is gone (debug.SetPanicOnFault). nil:
// there was no panic. It panics again with any other. Any goroutine; for a fault it locks, and
// looks at every slot.
func (t *Table) Unreachable(recovered any) bool {
	if recovered == nil {
		return false
	}
	fault, ok := recovered.(interface {
		runtime.Error
		Addr() uintptr
	})
	if !ok || !t.holds(fault.Addr()) {
		panic(recovered)
	}
	return true
}

func (t *Table) holds(addr uintptr) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, m := range t.regions {
		if m == nil {
			continue
		}
		first := uintptr(unsafe.Pointer(unsafe.SliceData(m.mem)))
		if addr >= first && addr-first < uintptr(len(m.mem)) {
			return true
		}
	}
	return false
}

// overlap reports whether a and b have an octet in common.
func overlap(a, b []byte) bool {
	x, y := uintptr(unsafe.Pointer(unsafe.SliceData(a))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return x < y && y-x < uintptr(len(a)) && len(b) > 0 || y <= x &&
		x-y < uintptr(len(b)) && len(a) > 0
}

// take gives a free slot to a new region or window and returns an STag that leads there. Under
// t.mu.
func (t *Table) take() (STag, bool) {
	if t.entries == t.entriesMax {
		return 0, false
	}
	for {
		stag := STag(t.random())
		index := stag.Index()
		slot := index & t.mask
		// Index 0 is left out so that STag 0, which zero-length operations carry, reaches nothing.
		if index == 0 || t.used[slot] || t.last[slot] == index {
			continue
		}
		t.used[slot], t.last[slot] = true, index
		t.entries++
		return stag, true
	}
}
