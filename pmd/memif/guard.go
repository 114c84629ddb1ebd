package memif

import (
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A client can take pages out of its memory at any time: it punches holes, or has them swapped out.
// The next access to such a page waits until the kernel has found or made one, and longer than that
// while the hole is being punched. In a guarded mapping it fails instead: pages are locked in
// memory, and one that is not mapped raises SIGBUS, as in a file that has shrunk (userfaultfd(2),
// UFFD_FEATURE_SIGBUS). That ends the connection. docs/adr/0032-time-of-a-peers-memory.md has the
// figures.

// Of linux/userfaultfd.h.
const (
	uffdAPI             = 0xaa
	uffdUserModeOnly    = 1 // what any process may have
	uffdSigbus          = 1 << 7
	uffdMinorHugetlbfs  = 1 << 9
	uffdMinorShmem      = 1 << 10
	uffdRegisterMissing = 1 << 0
	uffdRegisterMinor   = 1 << 2
	uffdioAPI           = 0xc018aa3f
	uffdioRegister      = 0xc020aa00
)

type uffdioAPIArgs struct{ api, features, ioctls uint64 }

type uffdioRegisterArgs struct{ start, length, mode, ioctls uint64 }

// faults is this process's userfaultfd, or -1: the kernel is older than Linux 5.14, or lets us have
// none. Nothing is ever read from it. A mapping leaves it when it is unmapped.
var faults = sync.OnceValue(func() int {
	const flags = unix.O_CLOEXEC | unix.O_NONBLOCK | uffdUserModeOnly
	r, _, errno := unix.Syscall(unix.SYS_USERFAULTFD, flags, 0, 0)
	if errno != 0 {
		return -1
	}
	fd := int(r)
	args := uffdioAPIArgs{api: uffdAPI, features: uffdSigbus | uffdMinorShmem | uffdMinorHugetlbfs}
	if ioctl(fd, uffdioAPI, unsafe.Pointer(&args)) != 0 {
		unix.Close(fd)
		return -1
	}
	return fd
})

// guard has accesses to pages that are not there fail instead of wait. All pages of the mapping are
// in memory when it is called. False: some accesses may wait. Where pages cannot be locked, only
// holes fail: a page that the kernel has swapped out is no fault of the client's.
func guard(mapping []byte) bool {
	if faults() < 0 {
		return false
	}
	locked, mode := unix.Mlock(mapping) == nil, uint64(uffdRegisterMissing)
	if locked {
		mode |= uffdRegisterMinor
	}
	args := uffdioRegisterArgs{
		start:  uint64(uintptr(unsafe.Pointer(unsafe.SliceData(mapping)))),
		length: (uint64(len(mapping)) + pageBytes - 1) &^ (pageBytes - 1),
		mode:   mode,
	}
	return ioctl(faults(), uffdioRegister, unsafe.Pointer(&args)) == 0 && locked
}

func ioctl(fd int, request uintptr, args unsafe.Pointer) unix.Errno {
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), request, uintptr(args))
	return errno
}

var pageBytes = uint64(unix.Getpagesize())
