package memif

import (
	"fmt"
	"runtime/debug"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/pmd"
)

// interrupt is what wakes a queue's goroutine: a descriptor that stays the same from session to
// session, an epoll that has the eventfd of the current one in it. The eventfd is the peer's, too,
// which may make a read of it block; so it is never read, but watched for its edges. The goroutines
// of connections put it in and take it out (Port.eachWaker), as the peer can make that slow as
// well: it may watch its eventfd itself, a thousand times over.
type interrupt struct {
	epoll int
	armed bool
}

var _ pmd.Interrupter = (*Queue)(nil)

func (in *interrupt) open() (err error) {
	if in.epoll, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return fmt.Errorf("epoll: %w", err)
	}
	return nil
}

func (in *interrupt) close() { _ = unix.Close(in.epoll) }

// watch has the queue woken by an eventfd, unwatch not any more. Not on the queue's goroutine.
func (in *interrupt) watch(waker int) {
	// An error leaves the sleeper's own bound, and frames that come late.
	_ = unix.EpollCtl(in.epoll, unix.EPOLL_CTL_ADD, waker,
		&unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET})
}

func (in *interrupt) unwatch(waker int) {
	_ = unix.EpollCtl(in.epoll, unix.EPOLL_CTL_DEL, waker, nil)
}

// Interrupt implements pmd.Interrupter.
func (q *Queue) Interrupt() (fd int, ok bool) { return q.interrupt.epoll, true }

// Arm implements pmd.Interrupter.
func (q *Queue) Arm(on bool) {
	in := &q.interrupt
	in.armed = on
	if !on {
		// What the descriptor says is taken, so that it is not readable for what has been received.
		var ev [1]unix.EpollEvent
		_, _ = unix.EpollWait(in.epoll, ev[:], 0)
	}
	if q.session != nil && !q.broken {
		q.unmask(on)
	}
}

// unmask says in the peer's memory whether it is to wake us.
func (q *Queue) unmask(on bool) {
	defer q.guard(debug.SetPanicOnFault(true))
	if rx := &q.session.rings[q.index].rx; on {
		rx.unmaskInterrupts()
	} else {
		rx.maskInterrupts()
	}
}
