package transport

import (
	"cmp"
	"errors"
	"net"
	"net/netip"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/owned"
)

// HeldSocket keeps a local address and port of the kernel's for a socket to come: it is bound, and
// neither listens nor connects. Any goroutine.
type HeldSocket struct {
	mu sync.Mutex
	fd int // -1: closed
}

// HoldSocket binds a socket to at, or to a free port of it where that is 0; the zero Addr is ::
// with IPv4. v6Only: without IPv4. Sockets of connections that came in at the port do not matter.
// shared: nor do others that were held so. Errors are the kernel's.
func HoldSocket(at netip.AddrPort, v6Only, shared bool) (s *HeldSocket, port uint16, err error) {
	addr, family := sockaddrOf(at)
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, 0, err
	}
	owned.Keep(fd)
	s = &HeldSocket{fd: fd}
	if family == unix.AF_INET6 {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_V6ONLY, asInt(v6Only))
	}
	if err == nil {
		err = s.bind(addr, shared)
	}
	if err == nil {
		port, err = portOf(fd)
	}
	if err != nil {
		s.Close()
		return nil, 0, err
	}
	return s, port, nil
}

// bind takes the port from everybody, if it can. It cannot where connections have it that came in
// at a listener which is gone, and which may go on beside the next listener: the kernel lets them
// with SO_REUSEADDR.
func (s *HeldSocket) bind(addr unix.Sockaddr, shared bool) error {
	if !shared {
		if err := unix.Bind(s.fd, addr); !errors.Is(err, unix.EADDRINUSE) {
			return err
		}
	}
	return cmp.Or(s.share(), unix.Bind(s.fd, addr))
}

func (s *HeldSocket) share() error {
	return unix.SetsockoptInt(s.fd, unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
}

// Share lets sockets with SO_REUSEADDR have the same address and port: those of the holder.
func (s *HeldSocket) Share() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		return nil
	}
	return s.share()
}

// Close gives the port back, unless another socket has it by now.
func (s *HeldSocket) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd >= 0 {
		_ = owned.Close(s.fd) // it has nothing to say
		s.fd = -1
	}
}

// ReuseAddr is a net.Dialer's Control for an address that is held.
func ReuseAddr(_, _ string, c syscall.RawConn) (err error) {
	closed := c.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_REUSEADDR, 1)
	})
	return cmp.Or(closed, err)
}

// SourceFor is the local address from which the kernel reaches remote. It looks for a route when a
// datagram socket is connected; nothing is sent.
func SourceFor(remote netip.Addr) (netip.Addr, error) {
	const anyPort = 9
	probe, err := net.DialUDP("udp", nil, net.UDPAddrFromAddrPort(netip.AddrPortFrom(remote, anyPort)))
	if err != nil {
		return netip.Addr{}, SocketError(err)
	}
	defer probe.Close()
	return probe.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}

func sockaddrOf(at netip.AddrPort) (unix.Sockaddr, int) {
	a := at.Addr()
	if a.Is4() {
		return &unix.SockaddrInet4{Port: int(at.Port()), Addr: a.As4()}, unix.AF_INET
	}
	return &unix.SockaddrInet6{Port: int(at.Port()), Addr: a.As16(), ZoneId: inet.ZoneIndex(a.Zone())},
		unix.AF_INET6
}

func portOf(fd int) (uint16, error) {
	addr, err := unix.Getsockname(fd)
	switch a := addr.(type) {
	case *unix.SockaddrInet4:
		return uint16(a.Port), err
	case *unix.SockaddrInet6:
		return uint16(a.Port), err
	}
	return 0, err
}
