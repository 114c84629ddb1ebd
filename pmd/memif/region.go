package memif

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// region is memory of a client: the first octets of a mapping.
type region struct {
	octets, mapping []byte
	guarded         bool // no access to it waits for the kernel to find a page
}

// mapRegion maps the first size octets of a file that a client passed, with all of its pages in
// memory: pages that have to be found or made first hold up the goroutine that polls. It may block
// for as long as that takes. The file must have seals, so it is of tmpfs or hugetlbfs: only asking
// for them is sure not to ask a file system of the client's, whose answers and pages may never
// come. sealed: it must not shrink, either, which it could for as long as its seals have not been
// looked at.
func mapRegion(fd int, size uint64, sealed bool) (r region, err error) {
	seals, err := unix.FcntlInt(uintptr(fd), unix.F_GET_SEALS, 0)
	if err != nil {
		return r, ours("Region is not a memfd")
	}
	if sealed && seals&unix.F_SEAL_SHRINK == 0 {
		return r, ours("Region is not sealed against shrinking")
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return r, ours("Region of no file")
	}
	if size == 0 || st.Size < 0 || size > uint64(st.Size) {
		return r, ours("Region of %d octets in a file of %d", size, st.Size)
	}
	// What lies on hugepages is mapped and unmapped in whole ones only.
	whole := size
	if unit := uint64(max(st.Blksize, 1)); size <= uint64(st.Size)-(unit-size%unit)%unit {
		whole += (unit - size%unit) % unit
	}
	if r.mapping, err = unix.Mmap(fd, 0, int(whole), unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_SHARED); err != nil {
		return r, ours("Region cannot be mapped: %v", err)
	}
	// Linux before 5.14
	if err := unix.Madvise(r.mapping, unix.MADV_POPULATE_WRITE); err != nil && err != unix.EINVAL {
		_ = unix.Munmap(r.mapping)
		return region{}, ours("Region has no memory: %v", err)
	}
	r.guarded = guard(r.mapping)
	r.octets = r.mapping[:size:size]
	return r, nil
}

// isEventfd: nothing else is to be written to for a peer.
func isEventfd(fd int) bool {
	name, err := os.Readlink("/proc/self/fd/" + strconv.Itoa(fd))
	return err == nil && name == "anon_inode:[eventfd]"
}

// unmapAll ends the mappings of regions.
func unmapAll(regions []region) {
	for _, r := range regions {
		_ = unix.Munmap(r.mapping) // it is one
	}
}
