package engine

import (
	"sync"

	"github.com/rnicd/rnicd/rnic"
)

// windows are the windows of type 2 that are bound to a queue pair: they end with the connection by
// which the peer reaches them, or earlier with the queue pair.
type windows struct {
	mu  sync.Mutex
	all map[*rnic.Window]boundTo
	few int // so many may be there before those that are not valid any more are looked for
}

// boundTo is to what a window was bound, and with which key. While that is valid it is bound to
// nothing else.
type boundTo struct {
	r    *rnic.QueuePair
	stag rnic.STag
}

const fewWindows = 64

// add keeps w, which was just bound.
func (s *windows) add(w *rnic.Window, to boundTo) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all, s.few = map[*rnic.Window]boundTo{}, fewWindows
	}
	s.all[w] = to
	if len(s.all) <= s.few {
		return
	}
	for w := range s.all {
		if !w.Valid() {
			delete(s.all, w)
		}
	}
	s.few = max(fewWindows, 2*len(s.all))
}

// end unbinds those that are bound to r; nil: to any. It waits as Window.Unbind does, perhaps for
// the goroutine that calls add.
func (s *windows) end(r *rnic.QueuePair) {
	for _, w := range s.take(r) {
		w.Unbind()
	}
}

func (s *windows) take(r *rnic.QueuePair) (bound []*rnic.Window) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for w, to := range s.all {
		if r != nil && to.r != r {
			continue
		}
		if w.STag() == to.stag && w.Valid() {
			bound = append(bound, w)
		}
		delete(s.all, w)
	}
	return bound
}
