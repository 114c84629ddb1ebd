package hugepages

import (
	"errors"
	"fmt"
	"math/bits"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mapArena maps size octets, whole pages of one size: address range, pages, node, population, lock.
// An error that is errShort means too few hugepages.
func mapArena(cfg Config, page PageSize, size int64) (*Arena, error) {
	a := &Arena{page: page, fd: -1}
	ok := false
	defer func() {
		if !ok {
			a.Close()
		}
	}()
	if cfg.Memfd {
		fd, err := newMemfd(page, size)
		if err != nil {
			return nil, err
		}
		a.fd = fd
	}
	if err := a.mapRange(cfg.GuardPages, size); err != nil {
		return nil, err
	}
	if err := bindNode(a.mem, page, cfg.Node); err != nil {
		return nil, err
	}
	if err := populate(a.mem, page); err != nil {
		return nil, err
	}
	if page == Normal { // hugepages are never swapped: mlock on them only costs RLIMIT_MEMLOCK
		a.lockErr = lock(a.mem)
	}
	ok = true
	return a, nil
}

// newMemfd returns a sealed memfd of size octets. The seals matter: a process that shares it and
// truncates it would leave us with SIGBUS.
func newMemfd(page PageSize, size int64) (int, error) {
	flags := unix.MFD_CLOEXEC | unix.MFD_ALLOW_SEALING
	if page != Normal {
		flags |= unix.MFD_HUGETLB | log2(page)<<unix.MFD_HUGE_SHIFT
	}
	fd, err := unix.MemfdCreate("rnicd", flags)
	if err != nil {
		return -1, mapError("memfd_create", page, size, err)
	}
	if err := unix.Ftruncate(fd, size); err != nil {
		unix.Close(fd)
		return -1, mapError("ftruncate", page, size, err)
	}
	seals := unix.F_SEAL_SHRINK | unix.F_SEAL_GROW | unix.F_SEAL_SEAL
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, seals); err != nil {
		unix.Close(fd)
		return -1, mapError("sealing the memfd", page, size, err)
	}
	return fd, nil
}

// mapRange maps the pages, without touching them. With guards it first reserves a larger
// inaccessible range and maps into the middle of it, so that no other mapping can ever be the
// neighbour.
func (a *Arena) mapRange(guards bool, size int64) error {
	flags := unix.MAP_PRIVATE | unix.MAP_ANONYMOUS
	if a.fd >= 0 {
		flags = unix.MAP_SHARED
	}
	if a.page != Normal {
		flags |= unix.MAP_HUGETLB | log2(a.page)<<unix.MAP_HUGE_SHIFT
	}
	var at unsafe.Pointer
	if guards {
		// One page's worth for alignment and a guard on either side.
		unit := unitOf(a.page)
		whole, err := unix.MmapPtr(-1, 0, nil, uintptr(size+3*unit), unix.PROT_NONE,
			unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_NORESERVE)
		if err != nil {
			return mapError("reserving addresses", a.page, size, err)
		}
		a.reserved = unsafe.Slice((*byte)(whole), size+3*unit)
		skip := int(unit) + padding(uintptr(whole), int(unit))
		at = unsafe.Add(whole, skip)
		flags |= unix.MAP_FIXED
	}
	p, err := unix.MmapPtr(a.fd, 0, at, uintptr(size), unix.PROT_READ|unix.PROT_WRITE, flags)
	if err != nil {
		return mapError("mmap", a.page, size, err)
	}
	a.mem = unsafe.Slice((*byte)(p), size)
	if !guards {
		a.reserved = a.mem
	}
	return nil
}

// mapError names the call. For hugepages ENOMEM is the answer of the pool (the mapping reserves
// its pages), of a control group or of RLIMIT_AS, ENOENT, EINVAL, ENODEV and EOPNOTSUPP that of a
// kernel without pages of this size.
func mapError(call string, page PageSize, size int64, err error) error {
	err = fmt.Errorf("hugepages: %s for %d octets on pages of %v: %w", call, size, page, err)
	if page == Normal {
		return err
	}
	for _, short := range []error{unix.ENOMEM, unix.ENOENT, unix.EINVAL, unix.ENODEV, unix.EOPNOTSUPP,
		unix.ENOSPC} {
		if errors.Is(err, short) {
			return fmt.Errorf("%w: %w", errShort, err)
		}
	}
	return err
}

// bindNode sets the NUMA policy before the first page is touched. Hugepages are bound, since a
// shortage there is a clean error; normal pages only prefer the node, since a shortage of those on
// one node would call the OOM killer while other nodes have memory.
func bindNode(mem []byte, page PageSize, node int) error {
	if node == AnyNode {
		return nil
	}
	policy := unix.MPOL_BIND
	if page == Normal {
		policy = unix.MPOL_PREFERRED
	}
	var mask [nodesMax / 64]uint64
	mask[node/64] = 1 << (node % 64)
	_, _, errno := unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(unsafe.SliceData(mem))),
		uintptr(len(mem)),
		uintptr(policy), uintptr(unsafe.Pointer(&mask)), nodesMax+1, 0)
	if errno == 0 {
		return nil
	}
	if online, err := onlineNodes(sysRoot); err != nil || len(online) <= 1 {
		return nil // a kernel without NUMA, or a sandbox without mbind: there is only one node to be on
	}
	return fmt.Errorf("hugepages: mbind of %d octets to node %d: %w; use AnyNode or allow mbind "+
		"(CAP_SYS_NICE in containers)",
		len(mem), node, errno)
}

// populate makes every page present, or says why not. MAP_POPULATE cannot: mmap succeeds whether or
// not the pages could be had, and the missing ones raise SIGBUS when touched (mmap(2), madvise(2)).
func populate(mem []byte, page PageSize) error {
	err := populateByMadvise(mem)
	if errors.Is(err, unix.EINVAL) { // Linux before 5.14
		err = populateByRead(mem, page)
	}
	return mapErrorIf("populating", page, mem, err)
}

func mapErrorIf(call string, page PageSize, mem []byte, err error) error {
	if err == nil {
		return nil
	}
	if page != Normal && (errors.Is(err, unix.EFAULT) || errors.Is(err, unix.ENOMEM)) {
		// EFAULT stands for the SIGBUS that touching the page would have raised.
		return fmt.Errorf("%w: hugepages: %s %d octets on pages of %v: %w", errShort, call,
			len(mem), page, err)
	}
	return mapError(call, page, int64(len(mem)), err)
}

func populateByMadvise(mem []byte) error {
	for {
		err := unix.Madvise(mem, unix.MADV_POPULATE_WRITE)
		if err != unix.EINTR && err != unix.EAGAIN {
			return err
		}
	}
}

// populateByRead lets the kernel write one octet into each page: where a store of ours would raise
// SIGBUS, read(2) answers EFAULT.
func populateByRead(mem []byte, page PageSize) error {
	zero, err := os.Open("/dev/zero")
	if err != nil {
		return err
	}
	defer zero.Close()
	fd := int(zero.Fd())
	for off := 0; off < len(mem); off += int(page) {
		for {
			_, err := unix.Read(fd, mem[off:off+1])
			if err == nil {
				break
			}
			if err != unix.EINTR {
				return err
			}
		}
	}
	return nil
}

// lock keeps the pages from being swapped out.
func lock(mem []byte) error {
	err := unix.Mlock(mem)
	if err == nil {
		return nil
	}
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_MEMLOCK, &limit) != nil {
		return fmt.Errorf("hugepages: %s not locked and may be swapped out: %w",
			octets(int64(len(mem))), err)
	}
	return fmt.Errorf("hugepages: %s not locked and may be swapped out: %w; RLIMIT_MEMLOCK is %s: "+
		"run ulimit -l %d or grant CAP_IPC_LOCK",
		octets(int64(len(mem))), err, octets(int64(limit.Cur)), len(mem)>>10)
}

// addressLimit says how much a process may map at all, if that is bounded.
func addressLimit() string {
	var limit unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_AS, &limit) != nil || limit.Cur == unix.RLIM_INFINITY {
		return ""
	}
	return fmt.Sprintf("; RLIMIT_AS is %s: run ulimit -v unlimited (systemd: LimitAS=infinity)",
		octets(int64(limit.Cur)))
}

func unmap(mem []byte) error {
	return unix.MunmapPtr(unsafe.Pointer(unsafe.SliceData(mem)), uintptr(len(mem)))
}

func closeFD(fd int) error { return unix.Close(fd) }

// log2 is how the kernel's flags encode a page size.
func log2(p PageSize) int { return bits.TrailingZeros64(uint64(p)) }
