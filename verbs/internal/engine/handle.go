package engine

import (
	"sync"
	"syscall"
)

// handles numbers objects for the program. A number is never used again, nor is it one of another
// process: after fork a child has its parent's numbers, and perhaps an engine of its own.
type handles struct {
	mu      sync.Mutex
	process uint64 // the upper bits of all
	last    uint64
	all     map[uint64]any
}

// processShift is where the process's number stands.
const processShift = 40

// of makes the handles those of a process. Before any is added.
func (h *handles) of(process uint32) {
	h.process = uint64(process) << processShift
	h.last = h.process
}

func (h *handles) add(o any) uint64 {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.all == nil {
		h.all = map[uint64]any{}
	}
	h.last++
	h.all[h.last] = o
	return h.last
}

func (h *handles) drop(n uint64) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	if _, ok := h.all[n]; !ok {
		return h.unknown(n)
	}
	delete(h.all, n)
	return nil
}

// unknown is why there is no object n: EPERM for one of another process.
func (h *handles) unknown(n uint64) error {
	if n != 0 && n>>processShift<<processShift != h.process {
		return syscall.EPERM
	}
	return syscall.EINVAL
}

// find is object n, which must be a T.
func find[T any](h *handles, n uint64) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.all[n].(T)
	if !ok {
		return o, h.unknown(n)
	}
	return o, nil
}

// take is find, and forgets the object.
func take[T any](h *handles, n uint64) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.all[n].(T)
	if !ok {
		return o, h.unknown(n)
	}
	delete(h.all, n)
	return o, nil
}
