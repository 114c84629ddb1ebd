// Package hugepages maps memory for packet buffers, rings and the memory that applications
// register.
//
// An Arena is one mapping on pages of 2 MiB or 1 GiB, or on normal pages if there are too few of
// those, which Fallback reports. Every page is present before New returns, so that no later
// access faults, waits or raises SIGBUS. Carve hands out pieces at start-up; pieces are not freed
// singly.
//
// Limits: hugepages on Linux only; elsewhere New uses ordinary Go memory. An Arena must not hold Go
// pointers, because the garbage collector does not scan it.
package hugepages

import (
	"errors"
	"fmt"
	"math/bits"
	"unsafe"
)

// heapAlign is what Heap aligns to: the alignment a mapping has by nature.
const heapAlign = int(Normal)

// Arena is one mapping. Carve hands out pieces at start-up; nothing is ever given back singly.
//
// An Arena belongs to the goroutine that sets things up; the octets belong to the one that they
// were carved for. Invariant: mem[:carved] has been handed out, no octet of it twice.
type Arena struct {
	mem      []byte
	carved   int
	page     PageSize
	fallback string
	lockErr  error
	fd       int // memfd, or -1
	// the whole address range to unmap, guard pages included; nil when there is nothing to unmap
	reserved []byte
}

// Heap returns an arena of n octets of ordinary Go memory, for tests under -race (which cannot see
// mapped memory) and for callers without mmap. It is page-aligned and zero; a negative n panics.
func Heap(n int) *Arena {
	if n < 0 {
		panic(fmt.Sprintf("hugepages: Heap of %d octets", n))
	}
	raw := make([]byte, n+heapAlign-1)
	skip := padding(uintptr(unsafe.Pointer(unsafe.SliceData(raw))), heapAlign)
	return &Arena{mem: raw[skip : skip+n : skip+n], page: Normal, fd: -1}
}

// Over returns an arena over octets that the caller mapped: a file, shared memory, a device's own
// memory. It changes nothing of them, so that they are zero only if they were; Close leaves them
// mapped. page is the size of the pages they lie on; another than Normal, Page2MiB or Page1GiB
// panics, as do octets that are not whole pages.
func Over(b []byte, page PageSize) *Arena {
	if page != Normal && page != Page2MiB && page != Page1GiB {
		panic(fmt.Sprintf("hugepages: Over on pages of %v", page))
	}
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	if len(b)%int(page) != 0 || first%uintptr(page) != 0 {
		panic(fmt.Sprintf("hugepages: Over %d octets at %#x, which are not whole pages of %v", len(b),
			first, page))
	}
	return &Arena{mem: b[:len(b):len(b)], page: page, fd: -1}
}

// Bytes returns the whole arena, carved or not: for a device that maps or registers all of it. It
// is nil after Close.
func (a *Arena) Bytes() []byte { return a.mem }

// PageSize returns the size of the pages the arena really lies on.
func (a *Arena) PageSize() PageSize { return a.page }

// Fallback returns "" when the wanted pages were had, else one line for the operator that says what
// was wanted, what there was and what to run.
func (a *Arena) Fallback() string { return a.fallback }

// LockErr says why the arena could not be locked into memory and may be swapped out, or nil.
// Hugepages are never swapped; for them it is always nil.
func (a *Arena) LockErr() error { return a.lockErr }

// FD returns the arena's memfd, or -1. It remains the arena's: Close closes it. A process
// that receives it (SCM_RIGHTS) can neither shrink nor grow it, but it can write to every octet and
// punch holes, so it must be trusted with all of the arena.
func (a *Arena) FD() int { return a.fd }

// remaining returns the octets not carved yet.
func (a *Arena) remaining() int { return len(a.mem) - a.carved }

// Carve takes the next n octets; the first one's address is a multiple of align, a power of two.
// The octets are zero unless something wrote to Bytes. Not goroutine-safe. A *CarveError when the
// arena has too few left; an align that is no power of two, or a negative n, panics.
func (a *Arena) Carve(n, align int) ([]byte, error) {
	if n < 0 || align <= 0 || bits.OnesCount(uint(align)) != 1 {
		panic(fmt.Sprintf("hugepages: Carve of %d octets aligned to %d", n, align))
	}
	left := a.mem[a.carved:]
	// Not the address of left: Go does not move the pointer when it slices to nothing.
	skip := padding(uintptr(unsafe.Pointer(unsafe.SliceData(a.mem)))+uintptr(a.carved), align)
	if skip > len(left) || n > len(left)-skip {
		return nil, &CarveError{Wanted: n, Align: align, Remaining: len(left)}
	}
	a.carved += skip + n
	return left[skip : skip+n : skip+n], nil
}

// Close unmaps the arena. No piece of it may be in use: a later access is a fault that
// ends the process. A second Close does nothing.
func (a *Arena) Close() error {
	reserved, fd := a.reserved, a.fd
	a.mem, a.reserved, a.carved, a.fd = nil, nil, 0, -1
	var errs []error
	if reserved != nil {
		if err := unmap(reserved); err != nil {
			errs = append(errs, fmt.Errorf("hugepages: unmapping %d octets: %w", len(reserved), err))
		}
	}
	if fd >= 0 {
		if err := closeFD(fd); err != nil {
			errs = append(errs, fmt.Errorf("hugepages: closing memfd %d: %w", fd, err))
		}
	}
	return errors.Join(errs...)
}

// padding returns how many octets lie between addr and the next multiple of align.
func padding(addr uintptr, align int) int {
	return int(-addr & uintptr(align-1))
}
