package engine

import (
	"errors"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// channel is the engine's end of a socket from which the program reads events, a datagram each. It
// is closed when the program has destroyed the channel and no goroutine sends.
//
// The kernel's socket is the queue. What has no room there waits in late, in order, until a
// goroutine of its own has sent it.
type channel struct {
	fd   int
	refs atomic.Int32

	queued atomic.Bool // late is not empty
	mu     sync.Mutex
	late   [][]byte
}

// send sends an event. It does not block, and allocates only where the socket is full.
func (c *channel) send(b []byte) {
	if !c.queued.Load() && c.try(b) != syscall.EAGAIN {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = append(c.late, append([]byte(nil), b...))
	if !c.queued.Swap(true) && c.hold() {
		go c.catchUp()
	}
}

// try is one attempt. That the program has closed its end is no matter.
func (c *channel) try(b []byte) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(c.fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	return errno
}

// catchUp sends what is late as soon as there is room.
func (c *channel) catchUp() {
	defer c.release()
	for {
		fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		c.mu.Lock()
		for len(c.late) > 0 && c.try(c.late[0]) != syscall.EAGAIN {
			c.late = c.late[1:]
		}
		if len(c.late) == 0 {
			c.queued.Store(false)
			c.mu.Unlock()
			return
		}
		c.mu.Unlock()
	}
}

// hold keeps the channel open until release; false: it is closed.
func (c *channel) hold() bool {
	for {
		n := c.refs.Load()
		if n == 0 {
			return false
		}
		if c.refs.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

func (c *channel) release() {
	if c.refs.Add(-1) == 0 {
		_ = syscall.Close(c.fd) // nothing to do about an error
	}
}

// channels are the channels of the process, by descriptor.
type channels struct {
	mu  sync.Mutex
	all map[int]*channel
}

// open is the channel of a descriptor that the program has handed over.
func (s *channels) open(fd int) *channel {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all == nil {
		s.all = map[int]*channel{}
	}
	c := s.all[fd]
	if c == nil {
		c = &channel{fd: fd}
		c.refs.Store(1)
		s.all[fd] = c
	}
	return c
}

func (s *channels) close(fd int) {
	s.mu.Lock()
	c := s.all[fd]
	delete(s.all, fd)
	s.mu.Unlock()
	if c != nil {
		c.release()
		return
	}
	_ = syscall.Close(fd) // handed over and never used
}

// sendStruct sends v, which has no pointers.
func sendStruct[T any](c *channel, v *T) {
	if c != nil && c.hold() {
		c.send(unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v)))
		c.release()
	}
}
