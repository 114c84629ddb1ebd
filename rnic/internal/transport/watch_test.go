package transport

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// reader reads datagrams, at most burst at a time, and hands on how many it has read.
type reader struct {
	fd, burst int
	read      chan int
	writable  chan bool
}

func (r *reader) Receive(w *Watch) bool {
	n := 0
	for ; n < r.burst; n++ {
		if _, err := unix.Read(r.fd, make([]byte, 16)); err != nil {
			break
		}
	}
	if n == r.burst {
		w.More()
	}
	if n > 0 {
		r.read <- n
	}
	return n > 0
}

func (r *reader) Writable() { r.writable <- true }

// What comes to a watched descriptor is read, all of it though a Turn takes some only; and it is
// told when it takes octets again. After Stop nothing is.
func TestWatch(t *testing.T) {
	const count = 6 // that a socket has room for
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	l := newLoop(t)
	r := &reader{fd: fds[0], burst: 2, read: make(chan int, count), writable: make(chan bool, 1)}
	w := must(NewWatch(l, fds[0], r))(t)
	for range count {
		_, err := unix.Write(fds[1], []byte("datagram"))
		require.NoError(t, err)
	}
	for left := count; left > 0; {
		left -= <-r.read
	}
	for err = nil; err == nil; _, err = unix.Write(fds[0], []byte("datagram")) {
	}
	require.Equal(t, unix.EAGAIN, err)
	l.do(func() {
		w.Blocked()
		require.Empty(t, r.writable)
	})
	for err = nil; err == nil; _, err = unix.Read(fds[1], make([]byte, 16)) {
	}
	require.True(t, <-r.writable)
	l.do(func() { require.False(t, w.blocked) })
	w.Stop()
	must(unix.Write(fds[1], []byte("datagram")))(t)
	l.do(func() { require.Zero(t, l.conns) })
	require.Empty(t, r.read)
	for _, fd := range fds {
		require.NoError(t, unix.Close(fd))
	}
}

// A descriptor that is blocked is told of in the epoll, too, that takes the place of one that was
// closed by mistake.
func TestBlockedWatchInAnotherEpoll(t *testing.T) {
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, 0)
	require.NoError(t, err)
	l := newLoop(t)
	require.NoError(t, l.sockets.open())
	require.NoError(t, l.rouser.Prepare(&l.sockets, nil))
	l.running = true
	r := &reader{fd: fds[0], writable: make(chan bool, 1)}
	w, err := NewWatch(l, fds[0], r)
	require.NoError(t, err)
	for err = nil; err == nil; _, err = unix.Write(fds[0], []byte("datagram")) {
	}
	w.Blocked()
	require.NoError(t, unix.Close(l.sockets.fd))
	l.turn(true, true)
	for err = nil; err == nil; _, err = unix.Read(fds[1], make([]byte, 16)) {
	}
	for range 2 {
		l.turn(true, true)
	}
	require.Len(t, r.writable, 1)
	w.Stop()
	for _, fd := range fds {
		require.NoError(t, unix.Close(fd))
	}
	l.sockets.close()
	l.rouser.Close()
}
