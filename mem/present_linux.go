package mem

import (
	"os"
	"runtime"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// MakePresent makes every page of b present, and writable if write is set, or says in an
// *AccessError that this process may not. Any goroutine; it takes the time to clear pages that were
// never touched.
//
// The kernel does both in one walk over the page table (madvise(2), MADV_POPULATE_WRITE), writes
// nothing, and answers where a store would raise a signal. Before Linux 5.14 it cannot, and b is
// taken as it is.
func MakePresent(b []byte, write bool) error {
	if !canPopulate() {
		return nil
	}
	if err := populate(b, write); err != nil {
		return &AccessError{Octets: len(b), Write: write, Err: err}
	}
	return nil
}

// canPopulate tries on memory that is there for certain.
var canPopulate = sync.OnceValue(func() bool { return populate([]byte{0}, true) == nil })

func populate(b []byte, write bool) error {
	first := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := first & uintptr(os.Getpagesize()-1)
	advice := uintptr(unix.MADV_POPULATE_READ)
	if write {
		advice = unix.MADV_POPULATE_WRITE
	}
	for {
		// By address, not by slice: the page begins before b does.
		_, _, errno := unix.Syscall(unix.SYS_MADVISE, first-skip, uintptr(len(b))+skip, advice)
		switch errno {
		case unix.EINTR, unix.EAGAIN:
		case 0:
			runtime.KeepAlive(b)
			return nil
		case unix.EINVAL: // what it says of pages without the right; the address and the advice are good
			return unix.EACCES
		default:
			return errno
		}
	}
}
