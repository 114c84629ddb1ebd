package engine

import (
	"encoding/binary"
	"net/netip"
	"strconv"
	"syscall"

	"github.com/rnicd/rnicd/internal/inet"
)

// Octets of struct sockaddr_in and sockaddr_in6.
const (
	sockaddrLen4 = 16
	sockaddrLen6 = 28
)

// addrOf is the struct sockaddr_in or sockaddr_in6 in b. No address at all is the zero AddrPort.
func addrOf(b []byte) (netip.AddrPort, error) {
	if len(b) == 0 {
		return netip.AddrPort{}, nil
	}
	if len(b) < sockaddrLen4 {
		return netip.AddrPort{}, syscall.EINVAL
	}
	port := binary.BigEndian.Uint16(b[2:])
	switch binary.NativeEndian.Uint16(b) {
	case syscall.AF_INET:
		return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[4:8])), port), nil
	case syscall.AF_INET6:
		if len(b) < sockaddrLen6 {
			return netip.AddrPort{}, syscall.EINVAL
		}
		a := netip.AddrFrom16([16]byte(b[8:24]))
		if zone := binary.NativeEndian.Uint32(b[24:]); zone != 0 && a.Is6() && !a.Is4In6() {
			a = a.WithZone(strconv.FormatUint(uint64(zone), 10))
		}
		return netip.AddrPortFrom(a.Unmap(), port), nil
	}
	return netip.AddrPort{}, syscall.EAFNOSUPPORT
}

// putAddr is addrOf's inverse. It returns how many octets it has put.
func putAddr(b []byte, a netip.AddrPort) int {
	clear(b)
	if !a.IsValid() {
		return 0
	}
	binary.BigEndian.PutUint16(b[2:], a.Port())
	if a.Addr().Unmap().Is4() {
		binary.NativeEndian.PutUint16(b, syscall.AF_INET)
		ip := a.Addr().Unmap().As4()
		copy(b[4:], ip[:])
		return sockaddrLen4
	}
	binary.NativeEndian.PutUint16(b, syscall.AF_INET6)
	ip := a.Addr().As16()
	copy(b[8:], ip[:])
	binary.NativeEndian.PutUint32(b[24:], inet.ZoneIndex(a.Addr().Zone()))
	return sockaddrLen6
}
