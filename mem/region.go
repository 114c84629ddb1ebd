package mem

import (
	"fmt"
	"math"
	"sync/atomic"
)

// RegionOptions refine Register.
type RegionOptions struct {
	Access Access   // LocalRead is added
	Base   uint64   // TO of the first octet: 0 = zero-based
	Stream StreamID // AnyStream or the one stream that may use it remotely
	Zero   bool     // clear the octets first: no stale data for a RemoteRead (RFC 5042 section 6.3.2)
}

// RegionError says why Register refused a region.
type RegionError struct {
	Field string
	Value uint64
	Want  string
}

func (e *RegionError) Error() string {
	return fmt.Sprintf("mem: region's %s is %d, must be %s", e.Field, e.Value, e.Want)
}

// TableFullError says that a Table has as many regions as it was made for.
type TableFullError struct{ EntriesMax int }

func (e *TableFullError) Error() string {
	return fmt.Sprintf("mem: all %d memory regions are in use; deregister some or make the table larger", e.EntriesMax)
}

// MemoryRegion is a registered range of memory.
//
//	Register ──> valid ──Revoke, peer's Invalidate──> revoked ──Deregister──> gone
//	               ^                                    │
//	               └───────────Revalidate (new key)─────┘
//
// Its methods are for any goroutine, but one inside its own Reader's Enter must not call those that wait.
type MemoryRegion struct {
	table  *Table
	mem    []byte
	base   uint64
	pd     ProtectionDomain
	stream StreamID
	access Access
	stag   atomic.Uint32

	entry *entry // last published; valid while it stands in its slot. Under table.mu, as gone
	gone  bool
}

// Register makes b addressable. b must stay mapped and unmoved until the region is revoked.
//
// Any goroutine; it locks and allocates. The octets remain the caller's, who shares them with the peer as far as
// opt.Access says; that the caller has b is its right to it. Register only what is meant: bounds are exact to the
// octet. An empty b, one above RegionBytesMax, a Base + length of 2^64 or more, an unknown right or domain 0 is a
// *RegionError; no room is a *TableFullError.
func (t *Table) Register(pd ProtectionDomain, b []byte, opt RegionOptions) (*MemoryRegion, error) {
	length := uint64(len(b))
	switch {
	case pd == 0:
		return nil, &RegionError{"ProtectionDomain", 0, "one that AllocDomain returned"}
	case length == 0 || length > RegionBytesMax:
		return nil, &RegionError{"length", length, fmt.Sprintf("1 to %d octets", int64(RegionBytesMax))}
	case opt.Base > math.MaxUint64-length:
		return nil, &RegionError{"Base", opt.Base, fmt.Sprintf("at most 2^64-1 less the length (%d)", length)}
	case opt.Access&^accessAll != 0:
		return nil, &RegionError{"Access", uint64(opt.Access), "a set of the defined rights"}
	}
	t.mu.Lock()
	stag, ok := t.take()
	t.mu.Unlock()
	if !ok {
		return nil, &TableFullError{t.entriesMax}
	}
	if opt.Zero { // before it is published, and not under the lock: it may be terabytes
		clear(b)
	}
	m := &MemoryRegion{table: t, mem: b[:len(b):len(b)], base: opt.Base, pd: pd, stream: opt.Stream, access: opt.Access | LocalRead}
	t.mu.Lock()
	defer t.mu.Unlock()
	m.publish(stag)
	return m, nil
}

// publish makes the region valid under stag. Under table.mu.
func (m *MemoryRegion) publish(stag STag) {
	m.entry = &entry{mem: m.mem, base: m.base, stag: stag, pd: m.pd, stream: m.stream, access: m.access}
	m.stag.Store(uint32(stag))
	m.slot().Store(m.entry)
}

// slot is the same for all of the region's STags, which differ in the key only.
func (m *MemoryRegion) slot() *atomic.Pointer[entry] {
	return &m.table.slots[m.STag().Index()&m.table.mask]
}

// STag returns the region's STag, of a region that is not valid the last one.
func (m *MemoryRegion) STag() STag { return STag(m.stag.Load()) }

// Base returns the TO of the first octet.
func (m *MemoryRegion) Base() uint64 { return m.base }

// Len returns the number of octets.
func (m *MemoryRegion) Len() int { return len(m.mem) }

// Bytes returns the octets, which a peer may be changing unless the region is revoked.
func (m *MemoryRegion) Bytes() []byte { return m.mem }

func (m *MemoryRegion) Domain() ProtectionDomain { return m.pd }
func (m *MemoryRegion) Stream() StreamID         { return m.stream }
func (m *MemoryRegion) Access() Access           { return m.access }

// Valid reports whether the STag reaches the region: neither revoked nor invalidated by the peer.
func (m *MemoryRegion) Valid() bool {
	m.table.mu.Lock()
	defer m.table.mu.Unlock()
	return m.valid()
}

func (m *MemoryRegion) valid() bool {
	return !m.gone && m.slot().Load() == m.entry
}

// Revoke takes the STag's validity away: no octet is placed or read through it after Revoke returned. It waits for
// the bursts that are under way, microseconds as a rule, and is what a server calls before it looks at remotely
// written data (RFC 5042 appendix A). The entry is kept, for Revalidate. On a region that is not valid it only waits.
func (m *MemoryRegion) Revoke() {
	m.table.mu.Lock()
	m.invalidate()
	m.table.mu.Unlock()
	m.table.quiesce()
}

// invalidate takes the entry out of its slot, if it is there still. Under table.mu.
func (m *MemoryRegion) invalidate() {
	if m.entry != nil { // the slot of a region that is gone may be another's
		m.slot().CompareAndSwap(m.entry, nil)
	}
}

// Revalidate makes a revoked region valid again under a new key and returns its STag; the old STag stays invalid
// until the 8-bit key has come round. A valid region is revoked first, which waits; a revoked one does not wait. It
// panics after Deregister.
func (m *MemoryRegion) Revalidate() STag {
	t := m.table
	t.mu.Lock()
	for m.valid() {
		t.mu.Unlock()
		m.Revoke()
		t.mu.Lock()
	}
	defer t.mu.Unlock()
	if m.gone {
		panic(fmt.Sprintf("mem: Revalidate of a deregistered region, STag %08x", uint32(m.STag())))
	}
	stag := m.STag()
	m.publish(stag&^0xFF | STag(stag.Key()+1))
	return m.STag()
}

// Deregister revokes the region, waits as Revoke does, and gives the entry back. A second one only waits.
func (m *MemoryRegion) Deregister() {
	t := m.table
	t.mu.Lock()
	first := !m.gone
	m.invalidate()
	m.gone, m.entry = true, nil
	t.mu.Unlock()
	t.quiesce()
	if first {
		t.mu.Lock()
		t.used[m.STag().Index()&t.mask] = false
		t.entries--
		t.mu.Unlock()
	}
}
