package engine

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// mapping is memory of a ring, which the program and the engine both have. It is private to the
// process, so that after fork the child has a harmless copy, and goes back to the kernel
// when the last of those that may still write has released it: a queue pair that winds up completes
// into a completion queue that the program has destroyed.
type mapping struct {
	mem  []byte
	refs atomic.Int32
	more []*mapping // that goes back with it
}

func newMapping(size int) (*mapping, error) {
	b, err := syscall.Mmap(-1, 0, size, syscall.PROT_READ|syscall.PROT_WRITE,
		syscall.MAP_PRIVATE|syscall.MAP_ANONYMOUS)
	if err != nil {
		return nil, syscall.ENOMEM
	}
	m := &mapping{mem: b}
	m.refs.Store(1)
	return m, nil
}

// hold keeps it mapped until release; false: it is gone. The program may destroy in one call an
// object that another call has just found.
func (m *mapping) hold() bool {
	for {
		n := m.refs.Load()
		if n == 0 {
			return false
		}
		if m.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (m *mapping) release() {
	if m.refs.Add(-1) == 0 {
		for _, x := range m.more {
			x.release()
		}
		_ = syscall.Munmap(m.mem) // it is ours
	}
}

// keep has others, which are held, go back with m. One goroutine at a time.
func (m *mapping) keep(others ...*mapping) { m.more = append(m.more, others...) }

func (m *mapping) addr() uint64 { return uint64(uintptr(unsafe.Pointer(&m.mem[0]))) }

// ringOf is a head H and n entries E after it.
func ringOf[H, E any](n int) (*mapping, *H, []E, error) {
	var h H
	var entry E
	m, err := newMapping(int(unsafe.Sizeof(h)) + n*int(unsafe.Sizeof(entry)))
	if err != nil {
		return nil, nil, nil, err
	}
	return m, (*H)(unsafe.Pointer(&m.mem[0])),
		unsafe.Slice((*E)(unsafe.Pointer(&m.mem[unsafe.Sizeof(h)])), n), nil
}

// ringSize is what a ring of n entries takes: a power of two.
func ringSize(n int) int {
	size := 2
	for size < n {
		size *= 2
	}
	return size
}
