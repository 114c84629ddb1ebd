package transport

import (
	"cmp"
	"sync/atomic"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/owned"
)

// sockets is an epoll of connections. Each is in it for edges, and stays as it is: nothing has to
// be changed before a read or a write. The holder of the Loop.
type sockets struct {
	fd     int
	all    []*member // by the index that events carry; nil: free
	free   []int32
	events [socketEventsMax]unix.EpollEvent
}

func (e *sockets) open() (err error) {
	e.fd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	owned.Keep(e.fd)
	return err
}

func (e *sockets) close() { _ = owned.Close(e.fd) }

// Interrupt implements rouse.Device.
func (e *sockets) Interrupt() (fd int, ok bool) { return e.fd, true }

// Arm implements rouse.Device: it always is.
func (e *sockets) Arm(bool) {}

const socketEvents = unix.EPOLLIN | unix.EPOLLPRI | unix.EPOLLRDHUP | unix.EPOLLOUT |
	unix.EPOLLET&0xffffffff

// add has events of s told.
func (e *sockets) add(s *member) error {
	if len(e.free) == 0 {
		e.all, e.free = append(e.all, nil), append(e.free, int32(len(e.all)))
	}
	at := e.free[len(e.free)-1]
	if err := e.watch(s, at); err != nil {
		return err
	}
	e.free = e.free[:len(e.free)-1]
	e.all[at], s.at = s, at
	return nil
}

// reopen makes another epoll, where something else has the number of the last: that was closed by
// mistake. It returns the members that could not be put in. Events of the others come again.
func (e *sockets) reopen() (failed []*member, err error) {
	owned.Forget(e.fd)
	if err = e.open(); err != nil {
		return nil, err
	}
	for at, s := range e.all {
		if s != nil && e.watch(s, int32(at)) != nil {
			failed = append(failed, s)
		}
	}
	return failed, nil
}

func (e *sockets) watch(s *member, at int32) error {
	ev := unix.EpollEvent{Events: cmp.Or(s.events, socketEvents), Fd: at}
	return unix.EpollCtl(e.fd, unix.EPOLL_CTL_ADD, s.socket.fd, &ev)
}

// change has other events of s told, also after reopen. Its descriptor is there: the kernel has no
// reason to refuse.
func (e *sockets) change(s *member, events uint32) {
	s.events = events
	ev := unix.EpollEvent{Events: events, Fd: s.at}
	_ = unix.EpollCtl(e.fd, unix.EPOLL_CTL_MOD, s.socket.fd, &ev)
}

// remove is for a socket that is about to be closed: a child of fork may have a copy, which would
// keep it here.
func (e *sockets) remove(s *member) {
	_ = unix.EpollCtl(e.fd, unix.EPOLL_CTL_DEL, s.socket.fd, nil)
	e.all[s.at] = nil
	e.free = append(e.free, s.at)
}

// wait returns the events that there are, without waiting for some. They are good until the next
// call. False: the number is not that of our epoll any more.
func (e *sockets) wait() (all []unix.EpollEvent, is bool) {
	n, _, errno := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(e.fd),
		uintptr(unsafe.Pointer(&e.events)), uintptr(len(e.events)), 0, 0, 0)
	if errno != 0 {
		return nil, errno == unix.EINTR
	}
	all = e.events[:n]
	for i := range all {
		if uint32(all[i].Fd) >= uint32(len(e.all)) {
			return nil, false // the program's own epoll
		}
	}
	return all, true
}

// member is a connection as its Loop sees it.
type member struct {
	conn interface {
		receive() bool // reads what has come: false if nothing had
		serve()        // sends what there is to send, and ends what is over
	}
	socket socket
	events uint32 // of epoll; 0: socketEvents
	// any goroutine
	rung     atomic.Bool
	rungNext *member // the next that rang, in Loop.rang
	// the holder
	at     int32 // in Loop.sockets
	listed bool  // in Loop.ready
	active bool  // in Loop.active
	// what a read has brought may not be all that there is: the end comes after it, or octets that
	// the peer has called urgent, at which a read stops
	partly  bool
	blocked bool // the socket has not taken everything
}
