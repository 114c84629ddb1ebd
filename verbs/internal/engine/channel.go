package engine

import (
	"encoding/binary"
	"errors"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/owned"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// channel is the engine's end of a socket from which the program reads events, a datagram each. It
// is closed when the program has destroyed the channel and no goroutine sends.
//
// The kernel's socket is the queue. Events that have no room there wait in late, in order, until
// flush has sent them.
type channel struct {
	fd   int
	refs atomic.Int32

	sending atomic.Int32 // goroutines that may be sending without pump
	queued  atomic.Bool  // events go to late: there are some, or remove is at work
	pump    sync.Mutex   // of flush and remove
	mu      sync.Mutex   // of late
	late    [][]byte
}

// send sends an event. It does not block, and allocates only where the socket is full.
func (c *channel) send(b []byte) {
	c.sending.Add(1)
	sent := !c.queued.Load() && c.try(b) != syscall.EAGAIN
	c.sending.Add(-1)
	if sent {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = append(c.late, append([]byte(nil), b...))
	if !c.queued.Swap(true) && c.hold() {
		go c.catchUp()
	}
}

// try is one attempt. It ignores that the program has closed its end.
func (c *channel) try(b []byte) syscall.Errno {
	_, _, errno := syscall.RawSyscall6(syscall.SYS_SENDTO, uintptr(c.fd),
		uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)),
		syscall.MSG_DONTWAIT|syscall.MSG_NOSIGNAL, 0, 0)
	return errno
}

// catchUp sends the late events as soon as there is room.
func (c *channel) catchUp() {
	defer c.release()
	for {
		fds := []unix.PollFd{{Fd: int32(c.fd), Events: unix.POLLOUT}}
		if _, err := unix.Poll(fds, -1); err != nil && !errors.Is(err, unix.EINTR) {
			return
		}
		c.pump.Lock()
		all := c.flush()
		c.pump.Unlock()
		if all {
			return
		}
	}
}

// flush sends late events while there is room, and says whether it has sent all. pump is locked.
func (c *channel) flush() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.late) > 0 && c.try(c.late[0]) != syscall.EAGAIN {
		c.late = c.late[1:]
	}
	if len(c.late) > 0 {
		return false
	}
	c.queued.Store(false)
	return true
}

// remove takes the events about an object out of those that the program has not read, and returns
// them in their order. The others stay in theirs. fd is the program's end of the socket, from which
// it reads nothing until remove returns. Nobody sends events about the object meanwhile.
func (c *channel) remove(fd int, cookie uint64) (removed [][]byte) {
	c.pump.Lock()
	defer c.pump.Unlock()
	catching := c.queued.Swap(true) // from now on others send to late
	for c.sending.Load() != 0 {
		runtime.Gosched()
	}
	var kept [][]byte
	for b := receive(fd); b != nil; b = receive(fd) {
		if cookieOf(b) == cookie {
			removed = append(removed, b)
		} else {
			kept = append(kept, b)
		}
	}
	c.mu.Lock()
	for _, b := range c.late {
		if cookieOf(b) == cookie {
			removed = append(removed, b)
		} else {
			kept = append(kept, b)
		}
	}
	c.late = kept
	c.mu.Unlock()
	if !c.flush() && !catching && c.hold() {
		go c.catchUp()
	}
	return removed
}

// forgetLate takes events about an object out of late. Nobody sends events about it any more.
func (c *channel) forgetLate(cookie uint64) {
	if !c.queued.Load() {
		return
	}
	c.pump.Lock()
	defer c.pump.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.late = slices.DeleteFunc(c.late, func(b []byte) bool { return cookieOf(b) == cookie })
}

// receive reads an event as the program does; nil: there is none.
func receive(fd int) []byte {
	var b [unsafe.Sizeof(ring.CMEvent{})]byte // the longest of them
	n, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT)
	if err != nil || n < 8 {
		return nil
	}
	return append([]byte(nil), b[:n]...)
}

// cookieOf is the cookie of the object that an event names: each begins with it.
func cookieOf(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

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
		_ = owned.Close(c.fd) // nothing to do about an error
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
		owned.Keep(fd)
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

// forget is a call: the events about an object that is gone, and that the program has not read, go
// with it. The program reads none meanwhile.
func (s *channels) forget(c *call) error {
	s.mu.Lock()
	ch := s.all[int(int64(c.arg[0]))]
	s.mu.Unlock()
	if ch == nil || !ch.hold() {
		return syscall.EINVAL
	}
	defer ch.release()
	ch.remove(int(int64(c.arg[1])), c.arg[2])
	return nil
}

// subject is an object that events name, by its cookie.
type subject struct {
	cookie uint64
	mu     sync.Mutex
	gone   bool
}

// tell sends an event about the object, unless it is gone. Any goroutine.
func (s *subject) tell(ch *channel, b []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.gone && ch != nil && ch.hold() {
		ch.send(b)
		ch.release()
	}
}

// leave is called when the program destroys the object. When it returns no event about it follows.
// Those in the sockets are for forget.
func (s *subject) leave(channels ...*channel) {
	s.mu.Lock()
	s.gone = true
	s.mu.Unlock()
	for _, ch := range channels {
		if ch != nil {
			ch.forgetLate(s.cookie)
		}
	}
}

// octets are those of v, which has no pointers.
func octets[T any](v *T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(v)), unsafe.Sizeof(*v))
}

// sendStruct sends v.
func sendStruct[T any](c *channel, v *T) {
	if c != nil && c.hold() {
		c.send(octets(v))
		c.release()
	}
}
