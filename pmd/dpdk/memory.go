//go:build dpdk

package dpdk

/*
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"runtime"
	"syscall"
	"unsafe"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
)

// arenaMemory is memory that the EAL knows, shared by all ports over it: an Arena, or what Map was
// given.
type arenaMemory struct {
	c     *C.struct_rnic_memory
	bytes []byte
	page  uintptr
	ports int
	pin   runtime.Pinner // memory on the Go heap must not move under the device
}

// arenas are those in use, by first octet. Under environment's lock.
var arenas = map[*byte]*arenaMemory{}

// registerArena makes a known to the EAL, once for all ports. Whole pages only; a Pool never lies
// in the last, broken one of an arena on the Go heap.
func registerArena(a *hugepages.Arena) (*arenaMemory, error) {
	b := a.Bytes()
	page := uintptr(a.PageSize())
	return registerMemory(b[:uintptr(len(b))&^(page-1)], page)
}

// registerMemory makes b known to the EAL, once for all ports.
func registerMemory(b []byte, page uintptr) (*arenaMemory, error) {
	first := unsafe.SliceData(b)
	base, whole := uintptr(unsafe.Pointer(first)), uintptr(len(b))
	if base&(page-1) != 0 || whole == 0 || whole&(page-1) != 0 {
		return nil, fmt.Errorf("dpdk: memory of %d octets at %#x is not made of whole pages of %v",
			len(b), base, hugepages.PageSize(page))
	}
	for _, m := range arenas { // the EAL would take pages twice
		lo := uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes)))
		switch {
		case base+whole <= lo || lo+uintptr(len(m.bytes)) <= base:
		case base != lo || len(m.bytes) != len(b) || m.page != page:
			return nil, fmt.Errorf("dpdk: some of %d octets at %#x is known already, with %d octets at "+
				"%#x on pages of %v", whole, base, len(m.bytes), lo, hugepages.PageSize(m.page))
		default:
			m.ports++
			return m, nil
		}
	}
	m := &arenaMemory{bytes: b, page: page, ports: 1}
	m.pin.Pin(first)
	var rc C.int
	m.c = C.rnic_memory_register(C.uintptr_t(base), C.uint64_t(whole), C.uint64_t(page), &rc)
	if m.c == nil {
		m.pin.Unpin()
		if syscall.Errno(errnoOf(rc)) == syscall.EFAULT {
			return nil, fmt.Errorf("dpdk: the memory's physical addresses are hidden from this process: " +
				"run it as root or use --iova-mode=va with vfio-pci")
		}
		return nil, fmt.Errorf("dpdk: rte_extmem_register of %d octets on pages of %v: %w", whole,
			hugepages.PageSize(page), errnoOf(rc))
	}
	arenas[first] = m
	return m, nil
}

// release ends one port's use.
func (m *arenaMemory) release() {
	m.ports--
	if m.ports > 0 {
		return
	}
	delete(arenas, unsafe.SliceData(m.bytes))
	C.rnic_memory_unregister(m.c)
	m.pin.Unpin()
}

// contains says whether b lies in the registered part.
func (m *arenaMemory) contains(b []byte) bool {
	lo, first := uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes))),
		uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return first >= lo && first-lo <= uintptr(len(m.bytes)) &&
		uintptr(len(b)) <= uintptr(len(m.bytes))-(first-lo)
}

// offset of b, which lies in m.
func (m *arenaMemory) offset(b []byte) int {
	return int(uintptr(unsafe.Pointer(unsafe.SliceData(b))) - uintptr(
		unsafe.Pointer(unsafe.SliceData(m.bytes))))
}

// iova returns the address at which a device sees the octet at off.
func (m *arenaMemory) iova(off int) uint64 {
	return uint64(C.rnic_memory_iova(m.c, C.uint64_t(off)))
}

// onePiece says whether a device sees b, which lies in m, as one piece.
func (m *arenaMemory) onePiece(b []byte) bool {
	off := m.offset(b)
	page := int(m.page)
	for next := (off/page + 1) * page; next < off+len(b); next += page {
		if m.iova(next) != m.iova(next-1)+1 {
			return false
		}
	}
	return true
}

// known asks the EAL.
func (m *arenaMemory) known() bool { return C.rnic_memory_known(m.c) != 0 }

// Map implements pmd.Mapper: b becomes external memory of the EAL and is mapped for the device
// (rte_extmem_register, rte_dev_dma_map), once for each Port. Memory of Config.Arena needs no Map.
// docs/reference/memory.md says which memory a NIC can reach.
func (p *Port) Map(b []byte, page int) error {
	environment.Lock()
	defer environment.Unlock()
	first := unsafe.SliceData(b)
	switch {
	case p.closed:
		return fmt.Errorf("dpdk: %s is closed", p.name)
	case page < int(hugepages.Normal) || page&(page-1) != 0:
		return fmt.Errorf("dpdk: %s: pages of %d octets, must be a power of two from %d on", p.name, page,
			hugepages.Normal)
	case p.reaches(b) != nil:
		return fmt.Errorf("dpdk: %s reaches this memory already", p.name)
	}
	if err := p.pagesStay(hugepages.PageSize(page)); err != nil {
		return err
	}
	if len(b) > 0 {
		if err := mem.MakePresent(b, true); err != nil {
			return fmt.Errorf("dpdk: %s: %w", p.name, err)
		}
	}
	m, err := registerMemory(b, uintptr(page))
	if err != nil {
		return err
	}
	if rc := C.rnic_memory_dma_map(m.c, p.id); rc < 0 {
		m.release()
		return fmt.Errorf("dpdk: %s: rte_dev_dma_map of %d octets: %w (is RLIMIT_MEMLOCK large enough? "+
			"ulimit -l unlimited; pages of a file other than a memfd or one of hugetlbfs cannot be pinned)",
			p.name, len(b), errnoOf(rc))
	}
	if p.extra == nil {
		p.extra = map[*byte]*arenaMemory{}
	}
	p.extra[first] = m
	return nil
}

// Unmap implements pmd.Mapper.
func (p *Port) Unmap(b []byte) error {
	environment.Lock()
	defer environment.Unlock()
	m := p.extra[unsafe.SliceData(b)]
	if m == nil || len(m.bytes) != len(b) {
		return fmt.Errorf("dpdk: %s: %d octets to unmap that were not mapped", p.name, len(b))
	}
	p.unmap(m)
	return nil
}

func (p *Port) unmap(m *arenaMemory) {
	C.rnic_memory_dma_unmap(m.c, p.id)
	delete(p.extra, unsafe.SliceData(m.bytes))
	m.release()
}

// IOVA implements pmd.Mapper. It knows the memory of Config.Arena too.
func (p *Port) IOVA(b []byte) (addr uint64, ok bool) {
	environment.Lock()
	defer environment.Unlock()
	if p.closed {
		return 0, false
	}
	m := p.reaches(b)
	if m == nil {
		return 0, false
	}
	return m.iova(m.offset(b)), m.onePiece(b)
}

// reaches is the memory that b lies in, nil if the device does not reach it.
func (p *Port) reaches(b []byte) *arenaMemory {
	if len(b) == 0 {
		return nil
	}
	if p.memory.contains(b) {
		return p.memory
	}
	for _, m := range p.extra {
		if m.contains(b) {
			return m
		}
	}
	return nil
}

// pagesStay refuses pages that may move under a NIC that is given physical addresses.
func (p *Port) pagesStay(page hugepages.PageSize) error {
	if p.cfg.PCI != "" && C.rnic_eal_iova_is_pa() != 0 && page == hugepages.Normal {
		return fmt.Errorf("dpdk: %s: by physical addresses a device reaches hugepages only, normal "+
			"pages may move: run hugepages/setup.sh, or bind it to vfio-pci and use --iova-mode=va", p.name)
	}
	return nil
}
