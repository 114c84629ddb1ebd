package mem

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"unsafe"
)

// RegionOptions refine Register.
type RegionOptions struct {
	Access  Access   // of the region's own STag; LocalRead is added
	Windows Access   // remote rights that windows may have beyond Access
	Base    uint64   // TO of the first octet: 0 = zero-based
	ByAddr  bool     // address-based: TO of an octet is its address in this process. Base must be 0
	Stream  StreamID // AnyStream or the one stream that may use it remotely
	Zero    bool     // clear the octets first: no stale data for a RemoteRead (RFC 5042 section 6.3.2)
	// the octets are of the Go heap and were just made: the kernel need not be asked whether they
	// are there
	Fresh bool
}

// RegionError says why Register or Bind refused.
type RegionError struct {
	Field string
	Value uint64
	Want  string
}

func (e *RegionError) Error() string {
	whose := "region's "
	if strings.HasPrefix(e.Field, windowField) {
		whose = ""
	}
	return fmt.Sprintf("mem: %s%s is %s, must be %s", whose, e.Field, e.value(), e.Want)
}

// value is Value as the caller wrote it: rights by name, what was negative with its sign.
func (e *RegionError) value() string {
	switch strings.TrimPrefix(e.Field, windowField) {
	case "Access", "Windows":
		if a := Access(e.Value); a&^accessAll == 0 {
			return a.String()
		}
		return fmt.Sprintf("0x%02x", e.Value)
	case "Off", "length":
		return strconv.FormatInt(int64(e.Value), 10)
	}
	return strconv.FormatUint(e.Value, 10)
}

// windowField is how a Field of WindowOptions begins.
const windowField = "window's "

// AccessError says that this process itself may not do with the octets what a region over them
// would let a peer do: they are not mapped, or not writable, or lie beyond the end of a mapped
// file. Err is the kernel's word.
type AccessError struct {
	Octets int
	Write  bool
	Err    error
}

func (e *AccessError) Error() string {
	what := "read"
	if e.Write {
		what = "written"
	}
	return fmt.Sprintf("mem: region of %d octets cannot be %s by this process: %v", e.Octets,
		what, e.Err)
}

func (e *AccessError) Unwrap() error { return e.Err }

// TableFullError says that a Table has as many regions and windows as it was made for.
type TableFullError struct{ EntriesMax int }

func (e *TableFullError) Error() string {
	return fmt.Sprintf("mem: all %d memory regions are in use; deregister some or make the "+
		"table larger", e.EntriesMax)
}

// ErrRevoked is Bind's answer for a region that is revoked, invalidated by a peer, or deregistered.
var ErrRevoked = errors.New("mem: the region is not valid")

// MemoryRegion is a registered range of memory.
//
//	Register ──> valid ──Revoke, peer's Invalidate──> revoked ──Deregister──> gone
//	               ^                                    │
//	               └───────────Revalidate (new key)─────┘
//
// Its methods are for any goroutine, but one inside its own Reader's Enter must not call those that
// wait.
type MemoryRegion struct {
	tag     tag
	mem     []byte
	base    uint64
	pd      ProtectionDomain
	stream  StreamID
	access  Access
	windows Access // remote rights that a window may have
}

// RegionRoom is memory of something larger for a region with its first entry (RegisterIn).
type RegionRoom struct {
	MemoryRegion
	first entry
}

// Register makes b addressable. b must stay mapped and unmoved until the region is revoked.
//
// Any goroutine; it locks and allocates. b is the caller's own memory of any kind: of an arena, of
// the Go heap, or a file's that is mapped. Its pages are made present, as writable as opt asks, so
// that Placement meets no page fault; what this process may not read, or write, is an *AccessError
// (RFC 5041 section 8.3.2). For b of many pages that were never touched this takes the time to
// clear them. Memory that goes away afterwards (an unmapped or protected page, a file cut shorter)
// faults when it is touched; a QueuePair of package rnic takes that for its connection's error.
//
// The octets remain the caller's, which shares them with the peer as far as opt says. Register only
// what is meant: bounds are exact to the octet. An empty b, one above RegionBytesMax, a Base +
// length of 2^64 or more, an unknown right or domain 0 is a *RegionError; no room is a
// *TableFullError.
func (t *Table) Register(pd ProtectionDomain, b []byte, opt RegionOptions) (*MemoryRegion, error) {
	m := new(MemoryRegion)
	if err := t.register(m, new(entry), pd, b, opt); err != nil {
		return nil, err
	}
	return m, nil
}

// RegisterIn is Register without an allocation: the region is room's. room is zero, and stays where
// it is; after an error it is zero still.
func (t *Table) RegisterIn(room *RegionRoom, pd ProtectionDomain, b []byte,
	opt RegionOptions) error {
	return t.register(&room.MemoryRegion, &room.first, pd, b, opt)
}

func (t *Table) register(m *MemoryRegion, e *entry, pd ProtectionDomain, b []byte,
	opt RegionOptions) error {
	if err := checkRegion(pd, b, &opt); err != nil {
		return err
	}
	if !opt.Fresh {
		if err := MakePresent(b, opt.Zero ||
			(opt.Access|opt.Windows)&(LocalWrite|RemoteWrite) != 0); err != nil {
			return err
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	stag, ok := t.take()
	if !ok {
		return &TableFullError{t.entriesMax}
	}
	if opt.Zero { // before it is published, and not under the lock: it may be terabytes
		t.mu.Unlock()
		clear(b)
		t.mu.Lock()
	}
	m.tag.table, m.mem, m.base, m.pd, m.stream = t, b[:len(b):len(b)], opt.Base, pd, opt.Stream
	m.permit(opt.Access, opt.Windows)
	m.publish(e, stag)
	t.regions[stag.Index()&t.mask] = m
	return nil
}

// checkRegion refuses what no Table could hold, and settles the Base of an address-based region.
func checkRegion(pd ProtectionDomain, b []byte, opt *RegionOptions) error {
	length := uint64(len(b))
	switch {
	case pd == 0:
		return &RegionError{"ProtectionDomain", 0, "one that AllocDomain returned"}
	case length == 0 || length > RegionBytesMax:
		return &RegionError{"length", length, fmt.Sprintf("1 to %d octets", int64(RegionBytesMax))}
	case opt.ByAddr && opt.Base != 0:
		return &RegionError{"Base", opt.Base, "0 when the region is address-based"}
	case opt.Base > math.MaxUint64-length:
		return &RegionError{"Base", opt.Base, fmt.Sprintf("at most 2^64-1 less the length (%d)", length)}
	case opt.Access&^accessAll != 0:
		return &RegionError{"Access", uint64(opt.Access), "a set of the defined rights"}
	case opt.Windows&^remoteAccess != 0:
		return &RegionError{"Windows", uint64(opt.Windows), "a set of RemoteRead and RemoteWrite"}
	}
	if opt.ByAddr {
		opt.Base = uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b))))
	}
	return nil
}

// publish makes the region valid under stag, by e, which was never published. Under table.mu.
func (m *MemoryRegion) publish(e *entry, stag STag) {
	*e = entry{mem: m.mem, base: m.base, stag: stag, pd: m.pd, stream: m.stream, access: m.access}
	m.tag.publish(e)
}

// STag returns the region's STag, of a region that is not valid the last one.
func (m *MemoryRegion) STag() STag { return m.tag.last() }

// Base returns the TO of the first octet.
func (m *MemoryRegion) Base() uint64 { return m.base }

// Len returns the number of octets.
func (m *MemoryRegion) Len() int { return len(m.mem) }

// Bytes returns the octets, which a peer may be changing unless the region is revoked.
func (m *MemoryRegion) Bytes() []byte { return m.mem }

func (m *MemoryRegion) Domain() ProtectionDomain { return m.pd }
func (m *MemoryRegion) Stream() StreamID         { return m.stream }

// Access returns the region's rights.
func (m *MemoryRegion) Access() Access {
	m.tag.table.mu.Lock()
	defer m.tag.table.mu.Unlock()
	return m.access
}

// Valid reports whether the STag reaches the region: neither revoked nor invalidated by the peer.
func (m *MemoryRegion) Valid() bool { return m.tag.lockedValid() }

// Revoke takes the STag's validity away, and that of all windows onto the region: no octet is
// placed or read through any of them after Revoke returned. It waits for the bursts that are under
// way, microseconds as a rule, and is what a server calls before it looks at remotely written data
// (RFC 5042 appendix A). The entry is kept, for Revalidate. On a region that is not valid it only
// waits.
func (m *MemoryRegion) Revoke() { m.tag.revoke() }

// Revalidate makes a revoked region valid again under a new key and returns its STag; the old STag
// stays invalid until the 8-bit key has come round, and windows that were bound until they are
// bound again. A valid region is revoked first, which waits; a revoked one does not wait. It panics
// after Deregister.
func (m *MemoryRegion) Revalidate() STag {
	m.tag.lockInvalid()
	defer m.tag.table.mu.Unlock()
	if m.tag.gone {
		panic(fmt.Sprintf("mem: Revalidate of a deregistered region, STag %08x", uint32(m.STag())))
	}
	m.publish(new(entry), m.tag.next())
	return m.STag()
}

// Permit changes the rights of the region, as RegionOptions has them. The STag stays, and is valid
// afterwards; windows that were bound are not. It returns when no burst goes by the old rights any
// more. Errors are Register's, and leave the region as it was; it panics after Deregister.
func (m *MemoryRegion) Permit(access, windows Access) error {
	t := m.tag.table
	opt := RegionOptions{Access: access, Windows: windows, Base: m.base}
	if err := checkRegion(m.pd, m.mem, &opt); err != nil {
		return err
	}
	if err := MakePresent(m.mem, (access|windows)&(LocalWrite|RemoteWrite) != 0); err != nil {
		return err
	}
	t.mu.Lock()
	if m.tag.gone {
		t.mu.Unlock()
		panic(fmt.Sprintf("mem: Permit of a deregistered region, STag %08x", uint32(m.STag())))
	}
	m.permit(access, windows)
	m.publish(new(entry), m.STag())
	t.mu.Unlock()
	t.quiesce()
	return nil
}

// permit notes the region's rights.
func (m *MemoryRegion) permit(access, windows Access) {
	m.access, m.windows = access|LocalRead, (access|windows)&remoteAccess
}

// Deregister revokes the region, waits as Revoke does, and gives the entry back. A second one only
// waits.
func (m *MemoryRegion) Deregister() { m.tag.release() }

// DeregisterHere is Deregister by the goroutine that places for the region's stream, outside
// Enter and Exit, or when nothing places for it any more. It does not wait, and need not: no peer
// reaches the region through another goroutine (Table.Invalidate). Only this host's own work,
// which names no stream, may still be reading through the STag, so the octets must stay mapped.
// It panics on a region of AnyStream.
func (m *MemoryRegion) DeregisterHere() {
	if m.stream == AnyStream {
		panic(fmt.Sprintf("mem: DeregisterHere of a region of all streams, STag %08x", uint32(m.STag())))
	}
	t := m.tag.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if first := !m.tag.gone; first {
		m.tag.leave()
		m.tag.giveBack()
	}
}
