package engine

import (
	"sync"
	"syscall"
)

// handles numbers objects for the program. A number is never used again.
type handles struct {
	mu   sync.Mutex
	last uint64
	all  map[uint64]any
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
		return syscall.EINVAL
	}
	delete(h.all, n)
	return nil
}

// find is object n, which must be a T.
func find[T any](h *handles, n uint64) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.all[n].(T)
	if !ok {
		return o, syscall.EINVAL
	}
	return o, nil
}

// take is find, and forgets the object.
func take[T any](h *handles, n uint64) (T, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	o, ok := h.all[n].(T)
	if !ok {
		return o, syscall.EINVAL
	}
	delete(h.all, n)
	return o, nil
}
