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
//
// A run of datagrams of one length by one path is one message to the kernel (UDP_SEGMENT), and may
// come as one (UDP_GRO), of which each Turn delivers some.
type udSocket struct {
	port  *udPort
	fd    int
	six   bool // of IPv6, and IPv4 as mapped addresses; false: of IPv4 alone
	alone bool // each datagram is a message: the kernel does not part them
	watch *rnic.Watch

	sends  [udBatch]udMessage
	sent   [udBatch]mmsghdr
	runs   [udBatch]int // datagrams of each message
	ranges [udBatch * (1 + sgeMax)]unix.Iovec

	recvs   [udMessages]udMessage
	came    [udMessages]mmsghdr
	into    [udMessages]unix.Iovec
	room    []byte
	arrived int  // of came
	opened  int  // of those
	rest    udIn // of the last that was opened, and how long its datagrams are
	size    int
}

const (
	udMessages = 8                             // that are received by one call
	udRunMax   = 1<<16 - 1 - 40 - udpHeaderLen // octets of a message, over IPv4 and IPv6
	// udMessageRoom is room for a message. That of the next begins in other lines of the cache.
	udMessageRoom = 1<<16 + 192
)

// udMessage is what the kernel is told beside a message, or tells.
type udMessage struct {
	name    [unix.SizeofSockaddrInet6]byte
	control [udControlMax]byte
}

// udControlMax are octets: IPV6_PKTINFO, IPV6_TCLASS, IP_TOS and UDP_GRO, with their headers.
const udControlMax = 128

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
	s := &udSocket{port: p, fd: fd, room: make([]byte, udMessages*udMessageRoom)}
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
	// where there is neither, each datagram goes and comes by itself
	s.alone = unix.SetsockoptInt(s.fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0) != nil
	_ = unix.SetsockoptInt(s.fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
	if unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, udBufferWant) != nil {
		_ = unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_RCVBUF, udBufferWant) // as much as may be
	}
	return nil
}

// carry implements udCarrier.
func (s *udSocket) carry(out []udOut) (n int, why udStop) {
	alone := 0 // so many of those that are left are no part of a run
next:
	for n < len(out) {
		messages := s.lay(out[n:], alone)
		for i := 0; i < messages; {
			k, _, errno := unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(s.fd),
				uintptr(unsafe.Pointer(&s.sent[i])), uintptr(messages-i), unix.MSG_DONTWAIT, 0, 0)
			switch {
			case errno == 0:
				for _, run := range s.runs[i : i+int(k)] {
					n += run
				}
				i += int(k)
			case errno == unix.EINTR:
			case errno == unix.EAGAIN:
				s.watch.Blocked()
				return n, udBlocked
			case s.runs[i] > 1: // one of them is to blame, or the path's MTU, or its device
				alone = s.runs[i]
				// EIO: it has no checksums (before Linux 6.11), or IPsec is on the way
				s.alone = s.alone || errno == unix.EIO
				continue next
			case errno == unix.EFAULT:
				return n, udFault
			default: // nowhere to send it to, or it is too long for that: as lost on the way
				s.port.drop(ring.DropUnsent)
				n++
				i++
			}
		}
	}
	return n, udSent
}

// settle implements udCarrier.
func (*udSocket) settle() {}

// lay prepares the messages that carry out, and says how many. The first datagrams, so many as
// alone says, have a message each.
func (s *udSocket) lay(out []udOut, alone int) (messages int) {
	ranges := s.ranges[:0]
	for i := 0; i < len(out); messages++ {
		run := 1
		if i >= alone && !s.alone {
			run = runOf(out[i:])
		}
		first := len(ranges)
		for k := range out[i : i+run] {
			ranges = out[i+k].addRanges(ranges)
		}
		s.runs[messages] = run
		s.prepare(messages, &out[i], ranges[first:])
		i += run
	}
	return messages
}

// runOf is how many of the first of out the kernel can send as one message: of one length, but
// that the last may be shorter. A batch has no more than the kernel takes.
func runOf(out []udOut) int {
	first := &out[0]
	total := first.size
	for i := 1; i < len(out); i++ {
		o := &out[i]
		total += o.size
		switch {
		case total > udRunMax || o.size > first.size || o.udPath != first.udPath:
			return i
		case o.size < first.size:
			return i + 1
		}
	}
	return len(out)
}

// addRanges adds where the datagram is.
func (o *udOut) addRanges(to []unix.Iovec) []unix.Iovec {
	to = append(to, unix.Iovec{Base: &o.header[0], Len: udHeaderLen})
	for _, b := range o.parts {
		to = append(to, unix.Iovec{Base: &b[0], Len: uint64(len(b))})
	}
	return to
}

// prepare fills in the i-th message, a run that begins with o.
func (s *udSocket) prepare(i int, o *udOut, ranges []unix.Iovec) {
	m, h := &s.sends[i], &s.sent[i].hdr
	*h = unix.Msghdr{Name: &m.name[0], Namelen: uint32(s.putName(&m.name, &o.destination, o.port)),
		Iov: &ranges[0], Control: &m.control[0]}
	h.SetIovlen(len(ranges))
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
	if s.runs[i] > 1 {
		binary.NativeEndian.PutUint16(c.add(unix.IPPROTO_UDP, unix.UDP_SEGMENT, 2), uint16(o.size))
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
	drained := false
	if !s.left() {
		if s.arrived = s.recvmmsg(); s.arrived == 0 {
			return false // what comes next is told
		}
		s.opened, drained = 0, s.arrived < udMessages
	}
	var d udIn
	for n := 0; n < udBatch && s.next(&d) && !s.port.receive(&d); n++ {
		s.rest.octets = s.rest.octets[len(d.octets):]
	}
	if s.left() || !drained {
		w.More()
	}
	return true
}

// left says whether there is more of what has come.
func (s *udSocket) left() bool { return len(s.rest.octets) > 0 || s.opened < s.arrived }

// recvmmsg reads messages, and says how many.
func (s *udSocket) recvmmsg() int {
	for i := range s.came {
		m, into := &s.recvs[i], &s.into[i]
		into.Base = &s.room[i*udMessageRoom]
		into.SetLen(1 << 16)
		h := unix.Msghdr{Name: &m.name[0], Namelen: uint32(len(m.name)), Iov: into,
			Control: &m.control[0]}
		h.SetIovlen(1)
		h.SetControllen(len(m.control))
		s.came[i].hdr = h
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(s.fd),
		uintptr(unsafe.Pointer(&s.came)), udMessages, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0
	}
	return int(n)
}

// Writable implements rnic.Watched.
func (s *udSocket) Writable() { s.port.blocked.goOn() }

// next is the next datagram of what has come, which stays. False: there is none left.
func (s *udSocket) next(d *udIn) bool {
	for len(s.rest.octets) == 0 {
		if s.opened == s.arrived {
			return false
		}
		s.open(s.opened)
		s.opened++
	}
	*d = s.rest
	d.octets = d.octets[:min(s.size, len(d.octets))]
	return true
}

// open has the datagrams of the i-th message be next.
func (s *udSocket) open(i int) {
	m, h := &s.recvs[i], &s.came[i]
	if h.hdr.Flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0 || h.n == 0 {
		s.port.drop(ring.DropMalformed)
		return
	}
	d := udIn{octets: s.room[i*udMessageRoom:][:h.n], port: binary.BigEndian.Uint16(m.name[2:]),
		stays: true}
	if s.six {
		d.source = gid(m.name[8:24])
	} else {
		d.source = gid(netip.AddrFrom4([4]byte(m.name[4:8])).As16())
	}
	s.size = len(d.octets)
	for b := m.control[:h.hdr.Controllen]; len(b) >= unix.SizeofCmsghdr; {
		c := (*unix.Cmsghdr)(unsafe.Pointer(&b[0]))
		n := int(c.Len) - unix.CmsgLen(0)
		if n < 0 || int(c.Len) > len(b) {
			break
		}
		s.control(&d, c, b[unix.CmsgLen(0):][:n])
		b = b[min(unix.CmsgSpace(n), len(b)):]
	}
	s.rest = d
}

// control takes what a control message says of a message.
func (s *udSocket) control(d *udIn, c *unix.Cmsghdr, data []byte) {
	n := len(data)
	switch {
	case c.Level == unix.IPPROTO_IPV6 && c.Type == unix.IPV6_PKTINFO && n >= 16:
		d.destination = gid(data[:16])
	case c.Level == unix.IPPROTO_IP && c.Type == unix.IP_PKTINFO && n >= unix.SizeofInet4Pktinfo:
		d.destination = gid(netip.AddrFrom4([4]byte(data[8:12])).As16())
	case (c.Type == unix.IPV6_TCLASS && c.Level == unix.IPPROTO_IPV6 ||
		c.Type == unix.IP_TOS && c.Level == unix.IPPROTO_IP) && n >= 1:
		d.class = data[0]
	case c.Level == unix.IPPROTO_UDP && c.Type == unix.UDP_GRO && n >= 4:
		s.size = max(1, int(binary.NativeEndian.Uint32(data)))
	}
}
