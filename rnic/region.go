package rnic

import (
	"errors"
	"fmt"
	"sync"

	"github.com/rnicd/rnicd/mem"
)

// Access is a set of rights on a MemoryRegion or Window.
type Access = mem.Access

const (
	LocalWrite  = mem.LocalWrite
	RemoteRead  = mem.RemoteRead
	RemoteWrite = mem.RemoteWrite
)

// ErrRevoked is Window.Bind's answer for a region that is not valid.
var ErrRevoked = mem.ErrRevoked

// ErrWindowFreed is Window.Bind's answer behind Free.
var ErrWindowFreed = errors.New("the window was freed")

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
	// Windows are remote rights that windows onto the region may have beyond Access. With no remote right in Access the
	// region's own STag is of no use to peers: they get windows only.
	Windows Access
	// Base is the tagged offset of the first octet; 0 makes the region zero-based.
	Base uint64
	// ByAddr makes the region address-based, as most verbs programs have it: the tagged offset of an octet is its address
	// in this process. Base must be 0 then.
	ByAddr bool
	// Zero clears the octets before a peer may read them.
	Zero bool
	// For binds the region to one QueuePair of the domain: no other stream may touch it. nil: all of the domain may, which
	// is for peers that trust each other (RFC 5042 section 6.4.5).
	For *QueuePair
}

// Register makes b addressable, zero-based, for all QueuePairs of the domain. b must stay mapped and unmoved until the
// region has been revoked: arena memory, a mapped file, or ordinary Go memory (the region keeps it reachable).
//
// Any goroutine, not on the packet path: it locks, allocates and asks the kernel to make the pages present. The octets
// stay the caller's. Errors, for errors.As: *mem.AccessError when this process may not itself read or write b as asked,
// *mem.RegionError, *mem.TableFullError (Config.RegionsMax).
func (pd *ProtectionDomain) Register(b []byte, access Access) (*MemoryRegion, error) {
	return pd.RegisterWith(b, RegisterOptions{Access: access})
}

// RegisterWith is Register with all options.
func (pd *ProtectionDomain) RegisterWith(b []byte, opt RegisterOptions) (*MemoryRegion, error) {
	stream, err := pd.streamOf(opt.For)
	if err == nil {
		var m *mem.MemoryRegion
		m, err = pd.adapter.table.Register(pd.id, b, mem.RegionOptions{
			Access: opt.Access, Windows: opt.Windows, Base: opt.Base, ByAddr: opt.ByAddr, Zero: opt.Zero, Stream: stream,
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
	return q.stream, nil
}

// MemoryRegion is registered memory. Its STag, Base, Len, Access and Bytes are mem.MemoryRegion's, and so are Revoke, Revalidate and
// Deregister: see there for what they promise, which is that no octet is placed after they have returned. They wait for placements
// that are under way and must not be called from the goroutine that turns a Poller.
type MemoryRegion struct {
	*mem.MemoryRegion
	adapter *Adapter
}

// Slice names octets [off, off+n) of the region, for a work request. Out of range is the programmer's error.
func (m *MemoryRegion) Slice(off, n int) SGE {
	if off < 0 || n < 0 || off > m.Len() || n > m.Len()-off || uint64(n) > 1<<32-1 {
		panic(fmt.Sprintf("rnic: slice [%d, %d+%d) of a region of %d octets", off, off, n, m.Len()))
	}
	return SGE{STag: m.STag(), Length: uint32(n), Offset: m.Base() + uint64(off)}
}

// Window is a second STag for a part of a region: exactly the octets, rights and stream that one peer needs, for as long
// as it needs them. See mem.Window for its life.
//
// Any goroutine, under the same rule as MemoryRegion's methods. It belongs to its domain and is to be freed.
type Window struct {
	*mem.Window
	pd *ProtectionDomain

	mu    sync.Mutex // Bind and Free, which wait
	freed bool
}

// WindowOptions of Window.Bind.
type WindowOptions struct {
	Off, Len int    // octets of the region, from its first
	Base     uint64 // tagged offset of the window's first octet; 0 makes it zero-based
	Access   Access // RemoteRead, RemoteWrite or both: no more than the region's Access and Windows
	// For binds the window to one QueuePair of the domain, whose peer may then invalidate it (OpSendInvalidate). nil: all
	// of the domain may use it. It must be the region's own For, if that has one.
	For *QueuePair
}

// NewWindow makes a window that is not bound. It counts among Config.RegionsMax.
func (pd *ProtectionDomain) NewWindow() (*Window, error) {
	w, err := pd.adapter.table.NewWindow()
	if err != nil {
		return nil, fmt.Errorf("rnic: new window: %w", err)
	}
	return &Window{Window: w, pd: pd}, nil
}

// Bind lays the window over a part of m, a region of the same domain, and returns the STag to advertise, which is new
// each time. A window that is bound is unbound first, which waits; no other call does. ErrRevoked if m is not valid,
// *mem.RegionError if the window would show more than m has, ErrWindowFreed behind Free.
func (w *Window) Bind(m *MemoryRegion, opt WindowOptions) (mem.STag, error) {
	if m == nil || m.MemoryRegion == nil {
		return 0, errors.New("rnic: bind a window: no region given")
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	stream, err := w.pd.streamOf(opt.For)
	switch {
	case w.freed:
		err = ErrWindowFreed
	case m.adapter != w.pd.adapter || m.Domain() != w.pd.id:
		err = errForeignRegion
	}
	if err == nil {
		var stag mem.STag
		stag, err = w.Window.Bind(m.MemoryRegion, mem.WindowOptions{Off: opt.Off, Len: opt.Len, Base: opt.Base, Access: opt.Access, Stream: stream})
		if err == nil {
			return stag, nil
		}
	}
	return 0, fmt.Errorf("rnic: bind a window to [%d, %d+%d) of %d octets: %w", opt.Off, opt.Off, opt.Len, m.Len(), err)
}

// Free unbinds the window, waits as Unbind does, and gives its entry back: it cannot be bound again.
func (w *Window) Free() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.freed = true
	w.Window.Free()
}

var errForeignRegion = errors.New("the region belongs to another protection domain")
