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
)

// arenaMemory is an Arena the EAL knows, shared by all ports over it.
type arenaMemory struct {
	c     *C.struct_rnic_memory
	bytes []byte
	ports int
	pin   runtime.Pinner // an arena on the Go heap must not move under the device
}

// arenas are those in use, by first octet. Under environment's lock.
var arenas = map[*byte]*arenaMemory{}

// registerArena makes a known to the EAL, once for all ports.
func registerArena(a *hugepages.Arena) (*arenaMemory, error) {
	b := a.Bytes()
	first := unsafe.SliceData(b)
	if m := arenas[first]; m != nil {
		m.ports++
		return m, nil
	}
	page := uintptr(a.PageSize())
	base := uintptr(unsafe.Pointer(first))
	// Whole pages only; a Pool never lies in the last, broken one of an arena on the Go heap.
	whole := uintptr(len(b)) &^ (page - 1)
	if base&(page-1) != 0 || whole == 0 {
		return nil, fmt.Errorf("dpdk: arena of %d octets at %#x is not made of whole pages of %v", len(b), base, a.PageSize())
	}
	m := &arenaMemory{bytes: b[:whole], ports: 1}
	m.pin.Pin(first)
	var rc C.int
	m.c = C.rnic_memory_register(C.uintptr_t(base), C.uint64_t(whole), C.uint64_t(page), &rc)
	if m.c == nil {
		m.pin.Unpin()
		if syscall.Errno(errnoOf(rc)) == syscall.EFAULT {
			return nil, fmt.Errorf("dpdk: the arena's physical addresses are hidden from this process: run it as root or use --iova-mode=va with vfio-pci")
		}
		return nil, fmt.Errorf("dpdk: rte_extmem_register of %d octets on pages of %v: %w", whole, a.PageSize(), errnoOf(rc))
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
	lo, first := uintptr(unsafe.Pointer(unsafe.SliceData(m.bytes))), uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	return first >= lo && first-lo <= uintptr(len(m.bytes)) && uintptr(len(b)) <= uintptr(len(m.bytes))-(first-lo)
}

// iova returns the address at which a device sees the arena's octet at off.
func (m *arenaMemory) iova(off int) uint64 { return uint64(C.rnic_memory_iova(m.c, C.uint64_t(off))) }
