package rnic

import (
	"errors"
	"fmt"
	"sync"

	"github.com/rnicd/rnicd/mem"
)

// Access is a set of rights on a MemoryRegion or Window.
type Access uint8

// Rights. This host may always read its own regions.
const (
	LocalWrite  Access = Access(mem.LocalWrite)
	RemoteRead  Access = Access(mem.RemoteRead)
	RemoteWrite Access = Access(mem.RemoteWrite)
)

// String returns the rights' names, joined by "|".
func (a Access) String() string { return mem.Access(a).String() }

// PeerAccess is a set of what the peer of one QueuePair may do at all to memory of this end,
// whatever an STag grants (QueuePair.Permit).
type PeerAccess uint8

const (
	PeerWrites PeerAccess = 1 << iota
	PeerReads
	PeerAtomics
)

// STag is a Steering Tag: the name of a region or window that a peer is told. 0 is none.
type STag = mem.STag

// errForeignQP: an STag would be tied to a stream that can never use it.
var errForeignQP = errors.New("the queue pair belongs to another protection domain")

// ProtectionDomain holds the regions and QueuePairs that may meet.
type ProtectionDomain struct {
	adapter *Adapter
	id      mem.ProtectionDomain
}

// RegisterOptions refine ProtectionDomain.RegisterWith.
type RegisterOptions struct {
	// Access of peers and of receive buffers; what this host sends may always be read.
	Access Access
	// Windows are remote rights that windows onto the region may have beyond Access. With no remote
	// right in Access the region's own STag is of no use to peers: they get windows only.
	Windows Access
	// Base is the tagged offset of the first octet; 0 makes the region zero-based.
	Base uint64
	// ByAddr makes the region address-based, as most verbs programs have it: the tagged offset of
	// an octet is its address in this process. Base must be 0 then.
	ByAddr bool
	// Zero clears the octets before a peer may read them.
	Zero bool
	// For binds the region to one QueuePair of the domain: no other stream may touch it. nil: all
	// of the domain may, which is for peers that trust each other (RFC 5042 section 6.4.5).
	For *QueuePair
}

// Register makes b addressable, zero-based, for all QueuePairs of the domain. b must stay mapped
// and unmoved until the region has been revoked: arena memory, a mapped file, or ordinary Go memory
// (the region keeps it reachable).
//
// Any goroutine, not on the packet path: it locks, allocates and asks the kernel to make the pages
// present. The octets stay the caller's. Errors, for errors.As: *mem.AccessError when this process
// may not itself read or write b as asked, *mem.RegionError, *mem.TableFullError
// (Config.RegionsMax).
func (pd *ProtectionDomain) Register(b []byte, access Access) (*MemoryRegion, error) {
	return pd.RegisterWith(b, RegisterOptions{Access: access})
}

// RegisterWith is Register with all options. Any goroutine.
func (pd *ProtectionDomain) RegisterWith(b []byte, opt RegisterOptions) (*MemoryRegion, error) {
	stream, err := pd.streamOf(opt.For)
	if err == nil {
		var m *mem.MemoryRegion
		m, err = pd.adapter.table.Register(pd.id, b, mem.RegionOptions{
			Access: mem.Access(opt.Access), Windows: mem.Access(opt.Windows), Base: opt.Base,
			ByAddr: opt.ByAddr, Zero: opt.Zero, Stream: stream,
		})
		if err == nil {
			return &MemoryRegion{m, pd.adapter}, nil
		}
	}
	return nil, fmt.Errorf("rnic: register %d octets: %w", len(b), err)
}

// streamOf is the stream that an STag for q is tied to.
func (pd *ProtectionDomain) streamOf(q *QueuePair) (mem.StreamID, error) {
	switch {
	case q == nil:
		return mem.AnyStream, nil
	case q.opt.PD.adapter != pd.adapter || q.opt.PD.id != pd.id:
		return 0, errForeignQP
	}
	return q.engine.Stream, nil
}

// MemoryRegion is registered memory. The calls that take its STag away wait for placements that are
// under way: they are for application goroutines only.
type MemoryRegion struct {
	region  *mem.MemoryRegion
	adapter *Adapter
}

// STag is the region's; of a region that is not valid the last one. Any goroutine.
func (m *MemoryRegion) STag() STag { return m.region.STag() }

// Base is the tagged offset of the first octet. Any goroutine.
func (m *MemoryRegion) Base() uint64 { return m.region.Base() }

// Len is the number of octets. Any goroutine.
func (m *MemoryRegion) Len() int { return m.region.Len() }

// Bytes are the octets, which a peer may be changing unless the region is revoked. Any goroutine.
func (m *MemoryRegion) Bytes() []byte { return m.region.Bytes() }

// Access is what RegisterOptions said. Any goroutine.
func (m *MemoryRegion) Access() Access { return Access(m.region.Access() &^ mem.LocalRead) }

// Exclusive says whether the region is for one QueuePair alone (RegisterOptions.For). Any
// goroutine.
func (m *MemoryRegion) Exclusive() bool { return m.region.Stream() != mem.AnyStream }

// Valid says whether the STag reaches the region: neither revoked nor invalidated, by the peer or
// by Local Invalidate. Any goroutine.
func (m *MemoryRegion) Valid() bool { return m.region.Valid() }

// Revoke takes the STag's validity away, and that of all windows onto the region: no octet is
// placed or read through any of them after Revoke has returned. It waits for the bursts that are
// under way, microseconds as a rule, and is what a server calls before it looks at remotely written
// data (RFC 5042 appendix A). The entry is kept, for Revalidate. On a region that is not valid it
// only waits. Any application goroutine.
func (m *MemoryRegion) Revoke() { m.region.Revoke() }

// Revalidate makes a revoked region valid again under a new key and returns its STag; the old STag
// stays invalid until the 8-bit key has come round, and windows that were bound until they are
// bound again. A valid region is revoked first, which waits; a revoked one does not wait. It panics
// after Deregister. Any application goroutine.
func (m *MemoryRegion) Revalidate() STag { return m.region.Revalidate() }

// Permit changes the region's rights to access, and those that windows may have beyond them to
// windows (RegisterOptions). The STag stays, and is valid afterwards; windows that were bound are
// not. It returns when nothing goes by the old rights any more; errors are Register's, and change
// nothing. It panics after Deregister. Any application goroutine.
func (m *MemoryRegion) Permit(access, windows Access) error {
	if err := m.region.Permit(mem.Access(access), mem.Access(windows)); err != nil {
		return fmt.Errorf("rnic: new rights for %d octets: %w", m.Len(), err)
	}
	return nil
}

// Deregister revokes the region, waits as Revoke does, and gives the entry back. A second one only
// waits. Any application goroutine.
func (m *MemoryRegion) Deregister() { m.region.Deregister() }

// Slice names octets [off, off+n) of the region, for a work request. Out of range is the
// programmer's error. Any goroutine.
func (m *MemoryRegion) Slice(off, n int) SGE {
	if off < 0 || n < 0 || off > m.Len() || n > m.Len()-off || uint64(n) > 1<<32-1 {
		panic(fmt.Sprintf("rnic: slice [%d, %d+%d) of a region of %d octets", off, off, n, m.Len()))
	}
	return SGE{STag: m.STag(), Length: uint32(n), Offset: m.Base() + uint64(off)}
}

// Window is a second STag for a part of a region: exactly the octets, rights and stream that one
// peer needs, for as long as it needs them. It is valid from Bind until Unbind or Free, until its
// QueuePair's peer invalidates it, or until the region is revoked, invalidated or deregistered,
// whose Revalidate does not bring it back.
//
// It belongs to its domain and is to be freed.
type Window struct {
	window *mem.Window
	pd     *ProtectionDomain

	mu    sync.Mutex // Bind
	freed bool
}

// WindowOptions of Window.Bind.
type WindowOptions struct {
	Off, Len int    // octets of the region, from its first
	Base     uint64 // tagged offset of the window's first octet; 0 makes it zero-based
	Access   Access // RemoteRead, RemoteWrite or both: no more than the region's Access and Windows
	// For binds the window to one QueuePair of the domain, whose peer may then invalidate it
	// (OpSendInvalidate). nil: all of the domain may use it. It must be the region's own For, if
	// that has one.
	For *QueuePair
	// Key is the lowest octet of the STag; nil: one that is new. With a Key the window must not be
	// bound, and Bind does not wait.
	Key *uint8
}

// NewWindow makes a window that is not bound. It counts among Config.RegionsMax. Any goroutine.
func (pd *ProtectionDomain) NewWindow() (*Window, error) {
	w, err := pd.adapter.table.NewWindow()
	if err != nil {
		return nil, fmt.Errorf("rnic: new window: %w", err)
	}
	return &Window{window: w, pd: pd}, nil
}

// Bind lays the window over a part of m, a region of the same domain, and returns the STag to
// advertise, which is new each time. A window that is bound is unbound first, which waits; no other
// call does. ErrRevoked if m is not valid, *mem.RegionError if the window would show more than m
// has, ErrWindowFreed after Free. Any application goroutine.
func (w *Window) Bind(m *MemoryRegion, opt WindowOptions) (STag, error) {
	if m == nil || m.region == nil {
		return 0, errors.New("rnic: bind a window: no region given")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	stream, err := w.pd.streamOf(opt.For)
	switch {
	case w.freed:
		err = ErrWindowFreed
	case m.adapter != w.pd.adapter || m.region.Domain() != w.pd.id:
		err = errForeignRegion
	}
	if err == nil {
		var stag STag
		stag, err = w.window.Bind(m.region, mem.WindowOptions{Off: opt.Off, Len: opt.Len, Base: opt.Base,
			Access: mem.Access(opt.Access), Stream: stream, Key: opt.Key})
		if err == nil {
			return stag, nil
		}
	}
	return 0, fmt.Errorf("rnic: bind a window to [%d, %d+%d) of %d octets: %w", opt.Off, opt.Off,
		opt.Len, m.Len(), err)
}

// STag is the window's; of a window that is not bound the last one, which reaches nothing. Any
// goroutine.
func (w *Window) STag() STag { return w.window.STag() }

// Valid says whether the STag reaches the region. Any goroutine.
func (w *Window) Valid() bool { return w.window.Valid() }

// Unbind takes the window's validity away and waits as MemoryRegion.Revoke does: no octet is placed
// or read through its STag afterwards. The region and other windows onto it stay as they are. On a
// window that is not bound it only waits. Any application goroutine.
func (w *Window) Unbind() { w.window.Unbind() }

// Free unbinds the window, waits as Unbind does, and gives its entry back: it cannot be bound
// again. Any application goroutine.
func (w *Window) Free() {
	w.mu.Lock()
	w.freed = true
	w.mu.Unlock() // who binds with a Key must not wait until nothing is under way
	w.window.Free()
}

var errForeignRegion = errors.New("the region belongs to another protection domain")
