package stack

import (
	"unsafe"

	"golang.org/x/sys/unix"
)

// largePageBytes is a huge page of amd64 and arm64.
const largePageBytes = 2 << 20

// onLargePages asks the kernel to back s with huge pages: with very many connections a segment's is
// seldom in the TLB otherwise. s stays ordinary memory of Go's heap, so it may hold pointers. Only
// advice: without transparent huge pages, or for less than a few of them, nothing changes.
func onLargePages[T any](s []T) {
	if len(s) == 0 {
		return
	}
	var item T
	b := unsafe.Slice((*byte)(unsafe.Pointer(&s[0])), len(s)*int(unsafe.Sizeof(item)))
	skip := -uintptr(unsafe.Pointer(&s[0])) % largePageBytes
	if n := len(b) - int(skip); n >= largePageBytes {
		_ = unix.Madvise(b[skip:][:n&^(largePageBytes-1)], unix.MADV_HUGEPAGE)
	}
}
