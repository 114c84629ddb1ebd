package transport

import (
	"cmp"
	"errors"
	"math"
	"net"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// querySegment asks the kernel for the effective segment size (TCP_MAXSEG), or if it does not tell
// for the path's MTU. headers are those in front of TCP's payload.
func (s *KernelConn) querySegment() (maxSeg, mtu, headers int) {
	headers = headersIPv4
	_ = s.raw.Control(func(fd uintptr) { // a closed socket leaves both at 0
		if maxSeg, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_MAXSEG); maxSeg > 0 {
			return
		}
		if s.ends[1].Addr().Is4() {
			mtu, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU)
			return
		}
		headers = headersIPv6
		mtu, _ = unix.GetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU)
	})
	return maxSeg, mtu, headers
}

// Octets of a datagram in front of TCP's payload, with timestamps.
const (
	headersIPv4 = 20 + 20 + 12
	headersIPv6 = 40 + 20 + 12
)

// Disconnect ends what the socket does, a connection (with a reset, if it does not linger) or
// listening, although a child of fork may have a copy of its descriptor: Close alone would leave it
// going until that child ends. The descriptor stays open. Any goroutine.
func Disconnect(raw syscall.RawConn) {
	none := unix.RawSockaddr{Family: unix.AF_UNSPEC}
	_ = raw.Control(func(fd uintptr) { // a socket that is closed needs nothing
		_, _, _ = unix.RawSyscall(unix.SYS_CONNECT, fd, uintptr(unsafe.Pointer(&none)),
			unsafe.Sizeof(none))
	})
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

// setUserTimeout bounds how long the kernel waits for a peer that has vanished. It counts whole
// milliseconds, from 1 to what 31 bits hold.
func (s *KernelConn) setUserTimeout(d time.Duration) (err error) {
	ms := int(min(max(d.Milliseconds(), 1), math.MaxInt32))
	closed := s.raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_USER_TIMEOUT, ms)
	})
	return cmp.Or(closed, err)
}

func (s *KernelConn) kernelStats() Stats {
	t := Stats{Kernel: true, EMSS: s.segment}
	_ = s.raw.Control(func(fd uintptr) { // a closed socket has no counters
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			t.add(info)
		}
	})
	return t
}

// add puts the kernel's counters in.
func (t *Stats) add(info *unix.TCPInfo) {
	t.SegmentsIn, t.SegmentsOut = uint64(info.Segs_in), uint64(info.Segs_out)
	t.Retransmits, t.OutOfOrder = uint64(info.Total_retrans), uint64(info.Rcv_ooopack)
}

// Unheard says whether the peer has sent nothing yet. Otherwise it returns when the Upper has been
// offered the first of it. Any goroutine that holds up nothing that the Upper waits for.
func (s *KernelConn) Unheard() bool {
	select {
	case <-s.heard:
		return false
	default:
	}
	came := false
	_ = s.raw.Control(func(fd uintptr) { // a closed socket will not have anything come
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		came = err == nil && info.Bytes_received > 0
	})
	if came {
		<-s.heard
	}
	return !came
}

// Progress counts octets that came in or were acknowledged by the peer's TCP.
func (s *KernelConn) Progress() (n uint64) {
	_ = s.raw.Control(func(fd uintptr) { // a closed socket makes no progress
		if info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			n = info.Bytes_acked + info.Bytes_received
		}
	})
	return n
}

// msgVec sends several segments with one system call and asks the kernel to begin a new TCP segment
// after each (MSG_EOR): the drafts' section 3.1.1 "best effort" to start segments with FPDUs.
type msgVec struct {
	iov []unix.Iovec
	hdr []mmsghdr
}

type mmsghdr struct {
	hdr unix.Msghdr
	len uint32
	_   [4]byte
}

func newMsgVec(n int) *msgVec {
	return &msgVec{iov: make([]unix.Iovec, n), hdr: make([]mmsghdr, n)}
}

// send writes all of out, whose segments end at ends. It blocks in the runtime's poller, not in the
// system call.
func (v *msgVec) send(raw syscall.RawConn, out []byte, ends []int) error {
	from := 0
	for i, end := range ends {
		v.iov[i].Base = &out[from]
		v.iov[i].SetLen(end - from)
		v.hdr[i] = mmsghdr{}
		v.hdr[i].hdr.Iov = &v.iov[i]
		v.hdr[i].hdr.SetIovlen(1)
		from = end
	}
	done := 0
	var errno syscall.Errno
	err := raw.Write(func(fd uintptr) bool {
		for done < len(ends) {
			n, _, e := unix.Syscall6(unix.SYS_SENDMMSG, fd, uintptr(unsafe.Pointer(&v.hdr[done])),
				uintptr(len(ends)-done),
				unix.MSG_EOR|unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL, 0, 0)
			switch {
			case e == unix.EAGAIN:
				return false
			case e == unix.EINTR:
			case e != 0:
				errno = e
				return true
			default:
				done = v.advance(done, int(n))
			}
		}
		return true
	})
	if err != nil {
		return err
	}
	if errno != 0 {
		return errno
	}
	return nil
}

// advance notes that n messages from done on were sent, the last one perhaps in part. It returns
// the first that is still to be sent.
func (v *msgVec) advance(done, n int) int {
	last := done + n - 1
	sent := int(v.hdr[last].len)
	iov := &v.iov[last]
	if left := int(iov.Len) - sent; left > 0 {
		iov.Base = (*byte)(unsafe.Add(unsafe.Pointer(iov.Base), sent))
		iov.SetLen(left)
		v.hdr[last].len = 0
		return last
	}
	return done + n
}
