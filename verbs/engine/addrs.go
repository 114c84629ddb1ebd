package engine

import (
	"net"
	"net/netip"
	"slices"
	"syscall"
)

// Addresses. Over the kernel's sockets they are the host's, and the kernel knows them and its
// routes; our own stack has those that it was given.

// overKernel says whether connections go over the kernel's sockets.
func (e *Engine) overKernel() bool { return len(e.addrs) == 0 }

// isOurs says whether our stack has the address.
func (e *Engine) isOurs(a netip.Addr) bool {
	return slices.ContainsFunc(e.addrs, func(p netip.Prefix) bool { return p.Addr() == a })
}

// source is the local address towards dst, or wanted if it is one. Nothing is asked for on the wire.
func (e *Engine) source(wanted, dst netip.Addr) (netip.Addr, error) {
	given := wanted.IsValid() && !wanted.IsUnspecified()
	if e.overKernel() {
		return kernelSource(wanted, dst, given)
	}
	if given {
		if !e.isOurs(wanted) {
			return netip.Addr{}, syscall.EADDRNOTAVAIL
		}
		return wanted, nil
	}
	var best netip.Prefix
	for _, p := range e.addrs {
		if p.Addr().Is4() == dst.Is4() && (!best.IsValid() || p.Contains(dst) && (!best.Contains(dst) || p.Bits() > best.Bits())) {
			best = p
		}
	}
	if !best.IsValid() {
		return netip.Addr{}, syscall.ENETUNREACH // none of that family
	}
	return best.Addr(), nil
}

// kernelSource asks the kernel, which looks for a route when a datagram socket is connected.
func kernelSource(wanted, dst netip.Addr, given bool) (netip.Addr, error) {
	d := net.Dialer{}
	if given {
		d.LocalAddr = net.UDPAddrFromAddrPort(netip.AddrPortFrom(wanted, 0))
	}
	const port = 9 // any
	probe, err := d.Dial("udp", netip.AddrPortFrom(dst, port).String())
	if err != nil {
		return netip.Addr{}, err
	}
	defer probe.Close()
	return probe.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap(), nil
}
