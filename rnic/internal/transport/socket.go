package transport

import (
	"cmp"
	"errors"
	"math"
	"net"
	"os"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/owned"
)

// socket is a descriptor of a TCP connection that Go's poller does not watch. The holder of the
// Loop uses and closes it; option and info are for any goroutine.
//
// A program that closes it by mistake may have something else under its number afterwards. So
// octets go by calls that only sockets answer, and a number that these say is no socket's is not
// closed.
type socket struct {
	mu sync.Mutex // fd is not closed while it is held
	fd int        // -1: closed
}

// take has the socket be a second descriptor of nc's.
func (k *socket) take(nc *net.TCPConn) error {
	k.fd = -1
	raw, err := nc.SyscallConn()
	if err != nil {
		return err
	}
	closed := raw.Control(func(fd uintptr) {
		var dup int
		if dup, err = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0); err == nil {
			k.fd = dup
			owned.Keep(dup)
		}
	})
	return cmp.Or(closed, os.NewSyscallError("fcntl", err))
}

// give makes it Go's again.
func (k *socket) give() (*net.TCPConn, error) {
	k.mu.Lock()
	k.urgentInline(false)
	owned.Forget(k.fd)
	f := os.NewFile(uintptr(k.fd), "socket")
	k.fd = -1
	k.mu.Unlock()
	defer f.Close() // FileConn has a descriptor of its own
	nc, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return nc.(*net.TCPConn), nil
}

func (k *socket) close() {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.fd >= 0 {
		_ = owned.Close(k.fd) // both directions have ended already
		k.fd = -1
	}
}

// lost has the number be forgotten: it is no socket's any more.
func (k *socket) lost() {
	k.mu.Lock()
	owned.Forget(k.fd)
	k.fd = -1
	k.mu.Unlock()
}

// reset ends the connection with RST, and closes the socket.
func (k *socket) reset() {
	k.mu.Lock()
	if k.fd >= 0 {
		_ = unix.SetsockoptLinger(k.fd, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
		disconnect(k.fd)
	}
	k.mu.Unlock()
}

func (k *socket) shutdown(how int) error { return unix.Shutdown(k.fd, how) }

// receive reads into the slots what there is. EAGAIN: nothing.
func (k *socket) receive(v *recvVec, slots [][]byte) (int, error) {
	for i, s := range slots {
		v.iov[i].Base = &s[0]
		v.iov[i].SetLen(len(s))
	}
	v.hdr = unix.Msghdr{Iov: &v.iov[0]}
	v.hdr.SetIovlen(len(slots))
	for {
		n, _, errno := unix.RawSyscall(unix.SYS_RECVMSG, uintptr(k.fd),
			uintptr(unsafe.Pointer(&v.hdr)), unix.MSG_DONTWAIT)
		switch errno {
		case 0:
			return int(n), nil
		case unix.EINTR:
		default:
			return 0, k.failed(errno)
		}
	}
}

// recvVec is room for receive.
type recvVec struct {
	iov [readSlots]unix.Iovec
	hdr unix.Msghdr
}

// send sends what is left of w, several segments with one call, and asks the kernel to begin a new
// TCP segment after each run (MSG_EOR): the drafts' section 3.1.1 "best effort" to start segments
// with FPDUs. EAGAIN: the socket takes no more now.
func (k *socket) send(w *segments) error {
	for {
		took, errno := uintptr(1), syscall.Errno(0)
		switch n := w.prepare(); n {
		case 0:
			return nil
		case 1: // a little less work
			v, octets := &w.iovs[0], uintptr(0)
			octets, _, errno = unix.RawSyscall6(unix.SYS_SENDTO, uintptr(k.fd),
				uintptr(unsafe.Pointer(v.Base)), uintptr(v.Len), sendFlags, 0, 0)
			w.hdrs[0].len = uint32(octets)
		default:
			took, _, errno = unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(k.fd),
				uintptr(unsafe.Pointer(&w.hdrs[0])), uintptr(n), sendFlags, 0, 0)
		}
		switch errno {
		case 0:
			w.sent(int(took))
		case unix.EINTR:
		default:
			return k.failed(errno)
		}
	}
}

const sendFlags = unix.MSG_EOR | unix.MSG_DONTWAIT | unix.MSG_NOSIGNAL

// failed is errno as an error. What has failed because the descriptor is no socket is over.
func (k *socket) failed(errno syscall.Errno) error {
	if errno == unix.EBADF || errno == unix.ENOTSOCK {
		k.lost()
	}
	return errno
}

// option is an integer option's value; 0 if there is none, or the socket is closed.
func (k *socket) option(level, name int) int {
	k.mu.Lock()
	defer k.mu.Unlock()
	v, _ := unix.GetsockoptInt(k.fd, level, name)
	return v
}

// unacked is how many octets the peer's TCP has not acknowledged; 0 if the socket is closed.
func (k *socket) unacked() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	n, _ := unix.IoctlGetInt(k.fd, unix.TIOCOUTQ)
	return n
}

// info is the kernel's TCP_INFO; nil if the socket is closed.
func (k *socket) info() *unix.TCPInfo {
	k.mu.Lock()
	defer k.mu.Unlock()
	info, err := unix.GetsockoptTCPInfo(k.fd, unix.IPPROTO_TCP, unix.TCP_INFO)
	if err != nil {
		return nil
	}
	return info
}

// setUserTimeout bounds how long the kernel waits for a peer that has vanished. It counts whole
// milliseconds, from 1 to what 31 bits hold.
func (k *socket) setUserTimeout(d time.Duration) error {
	return unix.SetsockoptInt(k.fd, unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT,
		int(min(max(d.Milliseconds(), 1), math.MaxInt32)))
}

// setKeepAlive has count probes be sent, the first after idle, the others interval apart. The
// kernel counts whole seconds, at least one.
func (k *socket) setKeepAlive(idle, interval time.Duration, count int) (err error) {
	seconds := func(d time.Duration) int { return int((d + time.Second - 1) / time.Second) }
	for _, o := range [][3]int{
		{unix.IPPROTO_TCP, unix.TCP_KEEPIDLE, seconds(idle)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPINTVL, seconds(interval)},
		{unix.IPPROTO_TCP, unix.TCP_KEEPCNT, count},
		{unix.SOL_SOCKET, unix.SO_KEEPALIVE, 1},
	} {
		err = errors.Join(err, unix.SetsockoptInt(k.fd, o[0], o[1], max(o[2], 1)))
	}
	return err
}

// urgentInline has octets that the peer calls urgent stay where they are in the stream: MPA knows
// none. Without it the kernel takes one out.
func (k *socket) urgentInline(yes bool) {
	_ = unix.SetsockoptInt(k.fd, unix.SOL_SOCKET, unix.SO_OOBINLINE, asInt(yes))
}

// nagle lets small segments wait for acknowledgements.
func (k *socket) nagle() {
	_ = unix.SetsockoptInt(k.fd, unix.IPPROTO_TCP, unix.TCP_NODELAY, 0)
}

// Disconnect ends what the socket does, a connection (with a reset, if it does not linger) or
// listening, although a child of fork may have a copy of its descriptor: Close alone would leave it
// going until that child ends. The descriptor stays open. Any goroutine.
func Disconnect(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { disconnect(int(fd)) }) // a closed socket needs nothing
}

func disconnect(fd int) {
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_, _, _ = unix.RawSyscall(unix.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&none)),
		unsafe.Sizeof(none))
}

// KeepDescriptor has a socket's descriptor not be the program's to close, until ForgetDescriptor,
// which comes before the socket is closed. Any goroutine.
func KeepDescriptor(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { owned.Keep(int(fd)) }) // a closed socket has none
}

// ForgetDescriptor undoes KeepDescriptor.
func ForgetDescriptor(raw syscall.RawConn) {
	_ = raw.Control(func(fd uintptr) { owned.Forget(int(fd)) })
}

// UnreadOctets is how many octets the kernel has in order that were not read yet. Any goroutine.
func UnreadOctets(nc *net.TCPConn) (n int, err error) {
	raw, err := nc.SyscallConn()
	if err != nil {
		return 0, err
	}
	cerr := raw.Control(func(fd uintptr) { n, err = unix.IoctlGetInt(int(fd), unix.TIOCINQ) })
	return n, errors.Join(cerr, err)
}

func asInt(b bool) int {
	if b {
		return 1
	}
	return 0
}
