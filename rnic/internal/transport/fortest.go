package transport

import "net"

// What tests of package rnic ask of a transport, and nothing else.

// Socket is what the connection stands on.
func (s *KernelConn) Socket() *net.TCPConn { return s.nc }

// Control calls f with the socket's descriptor, if the socket is not closed.
func (s *KernelConn) Control(f func(fd uintptr)) error { return s.raw.Control(f) }

// Timed says whether the timer was ever set. mu is held.
func (s *KernelConn) Timed() bool { return s.timer != nil }

// SendFailed lets a write have failed. mu is held.
func (s *KernelConn) SendFailed(err error) { s.sendFailed(err) }

// Count is how many slots are taken. Any goroutine.
func (p *Slots) Count() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken
}

// Empty says whether no slot is taken and nothing of former ones is left. Any goroutine.
func (p *Slots) Empty() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.taken == 0 && len(p.peers) == 0 && p.silent.Len() == 0
}
