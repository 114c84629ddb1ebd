package connect

import "sync/atomic"

// Signal is given once, and stays given. It is ready for use as it is, and for any goroutine. Most
// are never waited for, so its channel is made when somebody asks for it first.
type Signal struct{ ch atomic.Pointer[chan struct{}] }

// closed is the channel of all Signals that were given.
var closed = func() *chan struct{} {
	ch := make(chan struct{})
	close(ch)
	return &ch
}()

// Give closes the channel. A second call does nothing.
func (s *Signal) Give() {
	if ch := s.ch.Swap(closed); ch != nil && ch != closed {
		close(*ch)
	}
}

// Given says whether the channel is closed. A goroutine that sees true sees what came before Give.
func (s *Signal) Given() bool { return s.ch.Load() == closed }

// C is closed when the Signal is given.
func (s *Signal) C() <-chan struct{} {
	ch := s.ch.Load()
	if ch == nil {
		made := make(chan struct{})
		s.ch.CompareAndSwap(nil, &made)
		ch = s.ch.Load() // ours, another's, or closed
	}
	return *ch
}
