package engine

import (
	"encoding/binary"
	"net"
	"net/netip"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/owned"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// udSocket is the port over the kernel's socket, one for IPv4 and IPv6. Datagrams go out of the
// program's memory without a copy of ours, and come into room of ours, for it is their header that
// says whose they are.
type udSocket struct {
	port  *udPort
	fd    int
	six   bool // of IPv6, and IPv4 as mapped addresses; false: of IPv4 alone
	watch *rnic.Watch

	sends [udBatch]udMessage
	sent  [udBatch]mmsghdr
	room  [udBatch][udRoom]byte
	recvs [udBatch]udMessage
	came  [udBatch]mmsghdr
}

// udRoom is room for the longest datagram, and one octet to find that it is longer.
const udRoom = udHeaderLen + ring.DatagramMax + 1

// udMessage is what the kernel is told beside a message, or tells.
type udMessage struct {
	name    [unix.SizeofSockaddrInet6]byte
	control [udControlMax]byte
	iov     [1 + sgeMax]unix.Iovec
}

const udControlMax = 96 // octets: IPV6_PKTINFO, IPV6_TCLASS and IP_TOS, with their headers

// mmsghdr is struct mmsghdr.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   uint32
}

// udBufferWant is what is asked for as the socket's receive buffer: what comes while nobody reads.
const udBufferWant = 16 << 20

// newUDSocket has p over c, whose descriptor it takes out of Go's hands.
func newUDSocket(p *udPort, c *net.UDPConn) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	kept := -1
	err = raw.Control(func(fd uintptr) {
		kept, _ = unix.FcntlInt(fd, unix.F_DUPFD_CLOEXEC, 0)
	})
	if err != nil || kept < 0 {
		return unix.EMFILE
	}
	owned.Keep(kept)
	s, err := p.openSocket(kept)
	if err != nil {
		return err
	}
	p.carrier = s
	_ = c.Close() // which the port outlives
	return nil
}

// openSocket has what comes to a descriptor received, which is the udSocket's from then on.
func (p *udPort) openSocket(fd int) (*udSocket, error) {
	s := &udSocket{port: p, fd: fd}
	err := s.set()
	if err == nil {
		s.watch, err = p.engine.adapter.Watch(s.fd, s)
	}
	if err != nil {
		_ = owned.Close(s.fd)
		return nil, err
	}
	return s, nil
}

// close ends a socket of a group.
func (s *udSocket) close() {
	s.watch.Stop()
	_ = owned.Close(s.fd)
}

// set sets the options.
func (s *udSocket) set() error {
	family, err := unix.GetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return os.NewSyscallError("getsockopt", err)
	}
	s.six = family == unix.AF_INET6
	options := [][3]int{{unix.IPPROTO_IP, unix.IP_RECVTOS, 1},
		{unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE}}
	if s.six {
		options = append(options, [3]int{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO, 1},
			[3]int{unix.IPPROTO_IPV6, unix.IPV6_RECVTCLASS, 1},
			[3]int{unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE})
	} else {
		options = append(options, [3]int{unix.IPPROTO_IP, unix.IP_PKTINFO, 1})
	}
	for _, o := range options {
		if err := unix.SetsockoptInt(s.fd, o[0], o[1], o[2]); err != nil {
			return os.NewSyscallError("setsockopt", err)
		}
	}
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, udBufferWant) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, udBufferWant) // as much as may be
	}
	return nil
}

// carry implements udCarrier.
func (s *udSocket) carry(out []udOut) (n int, why udStop) {
	for i := range out {
		s.prepare(i, &out[i])
	}
	for n < len(out) {
		k, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd),
			uintptr(unsafe.Pointer(&s.sent[n])), uintptr(len(out)-n), unix.MSG_DONTWAIT, 0, 0)
		switch errno {
		case 0:
			n += int(k)
		case unix.EINTR:
		case unix.EAGAIN:
			s.watch.Blocked()
			return n, udBlocked
		case unix.EFAULT:
			return n, udFault
		default: // nowhere to send it to, or it is too long for that: as lost on the way
			s.port.drop(ring.DropUnsent)
			n++
		}
	}
	return n, udSent
}

// settle implements udCarrier.
func (*udSocket) settle() {}

// prepare fills in the i-th message.
func (s *udSocket) prepare(i int, o *udOut) {
	m, h := &s.sends[i], &s.sent[i].hdr
	m.iov[0].Base = &o.header[0]
	m.iov[0].SetLen(len(o.header))
	for k, b := range o.parts {
		m.iov[1+k].Base = &b[0]
		m.iov[1+k].SetLen(len(b))
	}
	*h = unix.Msghdr{Name: &m.name[0], Namelen: uint32(s.putName(&m.name, &o.destination, o.port)),
		Iov: &m.iov[0], Control: &m.control[0]}
	h.SetIovlen(1 + len(o.parts))
	c := controls{b: m.control[:0]}
	if o.source != (gid{}) {
		s.putSource(&c, &o.source)
	}
	if o.class != 0 {
		if o.destination.is4() {
			c.int32(unix.IPPROTO_IP, unix.IP_TOS, int32(o.class))
		} else {
			c.int32(unix.IPPROTO_IPV6, unix.IPV6_TCLASS, int32(o.class))
		}
	}
	h.SetControllen(len(c.b))
}

// putName is the address in C, and how long it is.
func (s *udSocket) putName(b *[unix.SizeofSockaddrInet6]byte, g *gid, port uint16) int {
	binary.BigEndian.PutUint16(b[2:], port)
	if s.six {
		binary.NativeEndian.PutUint16(b[:], unix.AF_INET6)
		copy(b[8:24], g[:])
		return unix.SizeofSockaddrInet6
	}
	binary.NativeEndian.PutUint16(b[:], unix.AF_INET)
	copy(b[4:8], g[12:])
	return unix.SizeofSockaddrInet4
}

// putSource names the address that a datagram is from.
func (s *udSocket) putSource(c *controls, g *gid) {
	if s.six {
		copy(c.add(unix.IPPROTO_IPV6, unix.IPV6_PKTINFO, unix.SizeofInet6Pktinfo), g[:])
	} else {
		copy(c.add(unix.IPPROTO_IP, unix.IP_PKTINFO, unix.SizeofInet4Pktinfo)[4:8], g[12:])
	}
}

// controls are control messages.
type controls struct{ b []byte }

// add adds one of n octets, which are zero.
func (c *controls) add(level, kind int32, n int) []byte {
	at := len(c.b)
	c.b = c.b[:at+unix.CmsgSpace(n)]
	clear(c.b[at:])
	h := (*unix.Cmsghdr)(unsafe.Pointer(&c.b[at]))
	h.Level, h.Type = level, kind
	h.SetLen(unix.CmsgLen(n))
	return c.b[at+unix.CmsgLen(0):][:n]
}

func (c *controls) int32(level, kind, v int32) {
	binary.NativeEndian.PutUint32(c.add(level, kind, 4), uint32(v))
}

// Receive implements rnic.Watched.
func (s *udSocket) Receive(w *rnic.Watch) bool {
	for i := range s.came {
		m := &s.recvs[i]
		m.iov[0].Base = &s.room[i][0]
		m.iov[0].SetLen(udRoom)
		h := unix.Msghdr{Name: &m.name[0], Namelen: uint32(len(m.name)), Iov: &m.iov[0],
			Control: &m.control[0]}
		h.SetIovlen(1)
		h.SetControllen(len(m.control))
		s.came[i].hdr = h
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd),
		uintptr(unsafe.Pointer(&s.came)), udBatch, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return false // what comes next is told
	}
	for i := range s.came[:n] {
		s.receive(i)
	}
	if n == udBatch {
		w.More()
	}
	return true
}

// Writable implements rnic.Watched.
func (s *udSocket) Writable() { s.port.blocked.goOn() }

// receive hands on the i-th datagram that has come.
func (s *udSocket) receive(i int) {
	m, h := &s.recvs[i], &s.came[i]
	if h.hdr.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || h.n == udRoom {
		s.port.drop(ring.DropMalformed)
		return
	}
	d := udIn{octets: s.room[i][:h.n], port: binary.BigEndian.Uint16(m.name[2:])}
	if s.six {
		d.source = gid(m.name[8:24])
	} else {
		d.source = gid(netip.AddrFrom4([4]byte(m.name[4:8])).As16())
	}
	for b := m.control[:h.hdr.Controllen]; len(b) >= unix.SizeofCmsghdr; {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		n := int(c.Len) - unix.CmsgLen(0)
		if n < 0 || int(c.Len) > len(b) {
			break
		}
		data := b[unix.CmsgLen(0):][:n]
		switch {
		case c.Level == unix.IPPROTO_IPV6 && c.Type == unix.IPV6_PKTINFO && n >= 16:
			d.destination = gid(data[:16])
		case c.Level == unix.IPPROTO_IP && c.Type == unix.IP_PKTINFO && n >= unix.SizeofInet4Pktinfo:
			d.destination = gid(netip.AddrFrom4([4]byte(data[8:12])).As16())
		case (c.Type == unix.IPV6_TCLASS && c.Level == unix.IPPROTO_IPV6 ||
			c.Type == unix.IP_TOS && c.Level == unix.IPPROTO_IP) && n >= 1:
			d.class = data[0]
		}
		b = b[min(unix.CmsgSpace(n), len(b)):]
	}
	s.port.receive(&d)
}
