package engine

import (
	"errors"
	"net/netip"
	"os"
	"strconv"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/owned"
	"github.com/rnicd/rnicd/rnic"
)

// serviceSocket is a port of RDMA_PS_UDP over the kernel's sockets.
type serviceSocket struct {
	port  *servicePort
	fd    int
	six   bool // of IPv6; else of IPv4
	watch *rnic.Watch
	room  [serviceMax + 1]byte
	oob   [udControlMax]byte

	mu   sync.Mutex
	peer netip.AddrPort // of connect
}

// openServiceSocket has p over a socket. A port that a socket of the program has, as rsockets have
// one of the same number, is taken without: the program answers there.
func openServiceSocket(p *servicePort, at netip.AddrPort, opt rnic.BindOptions) error {
	s := &serviceSocket{port: p, six: !at.Addr().Unmap().Is4()}
	err := s.open(at, opt)
	if errors.Is(err, unix.EAFNOSUPPORT) && !at.Addr().IsValid() {
		s.six = false
		err = s.open(at, opt)
	}
	if errors.Is(err, unix.EADDRINUSE) && isPrograms(at.Port()) {
		p.at = at
		return nil
	}
	if err != nil {
		return err
	}
	if s.watch, err = p.engine.adapter.Watch(s.fd, s); err != nil {
		_ = owned.Close(s.fd)
		return err
	}
	return nil
}

// open makes the socket, and tells p.
func (s *serviceSocket) open(at netip.AddrPort, opt rnic.BindOptions) error {
	family := unix.AF_INET
	options := [][2]int{{unix.IPPROTO_IP, unix.IP_PKTINFO}}
	if s.six {
		family = unix.AF_INET6
		options = [][2]int{{unix.IPPROTO_IPV6, unix.IPV6_RECVPKTINFO}}
	}
	only := opt.V6Only || at.Addr().IsValid() && !at.Addr().IsUnspecified()
	if s.six && only {
		options = append(options, [2]int{unix.IPPROTO_IPV6, unix.IPV6_V6ONLY})
	}
	if opt.Shared {
		options = append(options, [2]int{unix.SOL_SOCKET, unix.SO_REUSEADDR})
	}
	fd, err := unix.Socket(family, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return os.NewSyscallError("socket", err)
	}
	if s.six && !only {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, 0)
	}
	for _, o := range options {
		if err == nil {
			err = unix.SetsockoptInt(fd, o[0], o[1], 1)
		}
	}
	if err == nil {
		err = unix.Bind(fd, s.name(at))
	}
	var name unix.Sockaddr
	if err == nil {
		name, err = unix.Getsockname(fd)
	}
	if err != nil {
		_ = unix.Close(fd)
		return err
	}
	owned.Keep(fd)
	a := at.Addr()
	if !a.IsValid() {
		a = netip.IPv6Unspecified()
	}
	s.fd, s.port.carrier, s.port.at = fd, s, netip.AddrPortFrom(a, nameAddr(name).Port())
	return nil
}

// name is an address in C.
func (s *serviceSocket) name(a netip.AddrPort) unix.Sockaddr {
	if !s.six {
		n := &unix.SockaddrInet4{Port: int(a.Port())}
		if a.Addr().IsValid() {
			n.Addr = a.Addr().Unmap().As4()
		}
		return n
	}
	n := &unix.SockaddrInet6{Port: int(a.Port())}
	if a.Addr().IsValid() {
		n.Addr, n.ZoneId = a.Addr().As16(), inet.ZoneIndex(a.Addr().Zone())
	}
	return n
}

// nameAddr is the inverse.
func nameAddr(name unix.Sockaddr) netip.AddrPort {
	switch n := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(n.Addr), uint16(n.Port))
	case *unix.SockaddrInet6:
		a := netip.AddrFrom16(n.Addr)
		if n.ZoneId != 0 && !a.Is4In6() {
			a = a.WithZone(strconv.FormatUint(uint64(n.ZoneId), 10))
		}
		return netip.AddrPortFrom(a.Unmap(), uint16(n.Port))
	}
	return netip.AddrPort{}
}

// connect implements serviceCarrier.
func (s *serviceSocket) connect(remote netip.AddrPort) error {
	s.mu.Lock()
	s.peer = remote
	s.mu.Unlock()
	return os.NewSyscallError("connect", unix.Connect(s.fd, s.name(remote)))
}

func (s *serviceSocket) connected() netip.AddrPort {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.peer
}

// send implements serviceCarrier. What the kernel does not take is lost, as others may be.
func (s *serviceSocket) send(local, remote netip.AddrPort, b []byte) {
	if s.connected().IsValid() {
		if _, err := unix.Write(s.fd, b); errors.Is(err, unix.ECONNREFUSED) {
			s.port.refuse(remote)
		}
		return
	}
	oob := unix.PktInfo4(&unix.Inet4Pktinfo{Spec_dst: local.Addr().Unmap().As4()})
	if s.six {
		oob = unix.PktInfo6(&unix.Inet6Pktinfo{Addr: local.Addr().As16()})
	}
	_ = unix.Sendmsg(s.fd, b, oob, s.name(remote), unix.MSG_DONTWAIT)
}

// Receive implements rnic.Watched.
func (s *serviceSocket) Receive(w *rnic.Watch) bool {
	for i := range udBatch {
		n, control, flags, from, err := unix.Recvmsg(s.fd, s.room[:], s.oob[:], unix.MSG_DONTWAIT)
		switch {
		case errors.Is(err, unix.ECONNREFUSED):
			s.port.refuse(s.connected())
			continue
		case err != nil:
			return i > 0
		case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
			continue
		}
		if local := localOf(s.oob[:control]); local.IsValid() {
			s.port.receive(netip.AddrPortFrom(local, s.port.at.Port()), nameAddr(from), s.room[:n])
		}
	}
	w.More()
	return true
}

// Writable implements rnic.Watched.
func (*serviceSocket) Writable() {}

// localOf is where a datagram has come to.
func localOf(oob []byte) (a netip.Addr) {
	all, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return a
	}
	for i := range all {
		d := all[i].Data
		switch {
		case all[i].Header.Type == unix.IPV6_PKTINFO && len(d) >= 16 &&
			all[i].Header.Level == unix.IPPROTO_IPV6:
			a = netip.AddrFrom16([16]byte(d)).Unmap()
		case all[i].Header.Type == unix.IP_PKTINFO && len(d) >= unix.SizeofInet4Pktinfo &&
			all[i].Header.Level == unix.IPPROTO_IP:
			a = netip.AddrFrom4([4]byte(d[8:]))
		}
	}
	return a
}

func (s *serviceSocket) share() error {
	return os.NewSyscallError("setsockopt",
		unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1))
}

func (s *serviceSocket) close() {
	s.watch.Stop()
	_ = owned.Close(s.fd)
}

// isPrograms says whether a socket of the program has a port of UDP.
func isPrograms(port uint16) bool {
	all, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		return false
	}
	for _, f := range all {
		fd, err := strconv.Atoi(f.Name())
		if err != nil || owned.Has(fd) {
			continue
		}
		if kind, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE); err != nil ||
			kind != unix.SOCK_DGRAM {
			continue
		}
		if name, err := unix.Getsockname(fd); err == nil && nameAddr(name).Port() == port {
			return true
		}
	}
	return false
}
