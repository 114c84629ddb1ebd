package mem

import (
	"errors"
	"fmt"
	"math"
)

// Window is a second STag, with a key of its own, for a part of a region: narrower bounds, fewer
// rights, or one stream where the region has many. It serves peers only; work of this host names
// the region.
//
//	NewWindow ──> unbound ──Bind (new key)──> bound ──Free──> gone
//	                 ^                          │
//	                 └── Unbind, peer's Invalidate, end of the region's validity
//
// Binding costs no more than a lock and an allocation, so that a server may grant each request a
// window of exactly its octets onto one region that is registered for good. Its methods are for any
// goroutine, but one inside its own Reader's Enter must not call those that wait.
type Window struct{ tag tag }

// WindowOptions say what a Window shows of its region.
type WindowOptions struct {
	Off, Len int // octets of the region, from its first, to the octet
	// TO of the window's first octet: 0 = zero-based. Region.Base() + Off keeps the region's TOs
	Base uint64
	// RemoteRead, RemoteWrite or both, with Key perhaps neither; no more than windows are granted
	Access Access
	// AnyStream or the one stream that may use it; the region's, if that is tied to one
	Stream StreamID
	Key    *uint8 // of the STag; nil: the next. With one the window must not be bound
}

var errBound = errors.New("mem: the window is bound")

// NewWindow takes an entry of the Table for a window that is not bound. Any goroutine. No room is a
// *TableFullError.
func (t *Table) NewWindow() (*Window, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	stag, ok := t.take()
	if !ok {
		return nil, &TableFullError{t.entriesMax}
	}
	w := &Window{tag{table: t}}
	w.tag.stag.Store(uint32(stag))
	return w, nil
}

// Bind lays the window over a part of m, in m's domain, and returns the STag to advertise: a new
// key, so that what was advertised before reaches nothing. A window that is bound is unbound first,
// which waits; with WindowOptions.Key Bind does not wait, and leaves a window that is bound as it
// is: an error.
//
// The window is valid until Unbind or Free, until its stream's peer invalidates it, or until m is
// revoked, invalidated or deregistered: m's Revalidate does not bring it back. Octets, rights or a
// stream that m does not have are a *RegionError, an m that is not valid is ErrRevoked. An error
// leaves the window unbound. Bind panics after Free, and on a region of another Table.
func (w *Window) Bind(m *MemoryRegion, opt WindowOptions) (STag, error) {
	t := w.tag.table
	if m.tag.table != t {
		panic("mem: Bind of a window to a region of another Table")
	}
	if opt.Key == nil {
		w.tag.lockInvalid()
	} else {
		t.mu.Lock()
	}
	defer t.mu.Unlock()
	stag := w.tag.next()
	if opt.Key != nil {
		stag = stag&^0xff | STag(*opt.Key)
	}
	if w.tag.gone {
		panic(fmt.Sprintf("mem: Bind of a window that was freed, STag %08x", uint32(w.STag())))
	}
	if w.tag.valid() {
		return 0, errBound
	}
	if err := m.checkWindow(&opt); err != nil {
		return 0, err
	}
	if !m.tag.valid() {
		return 0, ErrRevoked
	}
	w.tag.publish(&entry{
		mem: m.mem[opt.Off : opt.Off+opt.Len : opt.Off+opt.Len], base: opt.Base, of: m.tag.entry,
		stag: stag, pd: m.pd, stream: opt.Stream, access: opt.Access,
	})
	return w.STag(), nil
}

// checkWindow refuses a window that would show more than the region has.
func (m *MemoryRegion) checkWindow(opt *WindowOptions) error {
	length := len(m.mem)
	switch {
	case opt.Len < 1 || opt.Len > length:
		return &RegionError{windowField + "length", uint64(opt.Len),
			fmt.Sprintf("1 to %d octets, the region's", length)}
	case opt.Off < 0 || opt.Off > length-opt.Len:
		return &RegionError{windowField + "Off", uint64(opt.Off),
			fmt.Sprintf("0 to %d, so that the window ends within the region", length-opt.Len)}
	case opt.Base > math.MaxUint64-uint64(opt.Len):
		return &RegionError{windowField + "Base", opt.Base,
			fmt.Sprintf("at most 2^64-1 less the length (%d)", opt.Len)}
	case opt.Access == 0 && opt.Key == nil || opt.Access&^m.windows != 0:
		return &RegionError{windowField + "Access", uint64(opt.Access),
			fmt.Sprintf("some of what the region grants to windows (%v)", m.windows)}
	case m.stream != AnyStream && opt.Stream != m.stream:
		// A peer that invalidates the region must be the only one that writes through its windows
		// (Table.Invalidate).
		return &RegionError{windowField + "Stream", uint64(opt.Stream),
			fmt.Sprintf("%d, the region's", m.stream)}
	}
	return nil
}

// STag returns the window's STag, of a window that is not bound the last one, which reaches
// nothing.
func (w *Window) STag() STag { return w.tag.last() }

// Valid reports whether the STag reaches the region.
func (w *Window) Valid() bool { return w.tag.lockedValid() }

// Unbind takes the window's validity away and waits as MemoryRegion.Revoke does: no octet is placed
// or read through its STag afterwards. The region and other windows onto it stay as they are. On a
// window that is not bound it only waits.
func (w *Window) Unbind() { w.tag.revoke() }

// Free unbinds the window, waits as Unbind does, and gives its entry back. A second one only waits.
func (w *Window) Free() { w.tag.release() }
