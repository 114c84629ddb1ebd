package transport

import "golang.org/x/sys/unix"

// Watch is a descriptor that is no connection's and that a Loop polls and sleeps with, as a socket
// of datagrams. Its methods are the holder's, except where they say otherwise.
type Watch struct {
	member
	loop *Loop
	on   Watched
}

// Watched is who uses such a descriptor. The holder of the Loop calls it; it must not block, nor
// change what the Loop watches.
type Watched interface {
	// Receive reads what has come, and says whether something had. It is called when something comes;
	// where it leaves anything it calls More of w, its Watch.
	Receive(w *Watch) bool
	// Writable is called when the descriptor, which was Blocked, takes octets again.
	Writable()
}

const (
	watchReads  = unix.EPOLLIN | unix.EPOLLET&0xffffffff
	watchWrites = watchReads | unix.EPOLLOUT
)

// NewWatch has l drive fd, which stays on's, until Stop. Any goroutine but the holder.
func NewWatch(l *Loop, fd int, on Watched) (*Watch, error) {
	w := &Watch{loop: l, on: on}
	w.member.conn, w.member.socket.fd, w.member.events = w, fd, watchReads
	if err := l.enter(&w.member); err != nil {
		return nil, err
	}
	return w, nil
}

// Stop returns when nothing of on is called any more: fd can be closed. Any goroutine but the
// holder.
func (w *Watch) Stop() {
	w.loop.do(func() {
		w.loop.leave(&w.member)
		w.on = nil
	})
}

// More has Receive called again in the next Turn.
func (w *Watch) More() { w.loop.list(&w.member) }

// Blocked has Writable called when the descriptor takes octets again.
func (w *Watch) Blocked() {
	w.blocked = true
	w.loop.sockets.change(&w.member, watchWrites) // which tells if it takes some already
}

func (w *Watch) receive() bool { return w.on != nil && w.on.Receive(w) }

func (w *Watch) serve() {
	if w.on == nil || !w.blocked {
		return
	}
	w.blocked = false
	w.loop.sockets.change(&w.member, watchReads)
	w.on.Writable()
}
