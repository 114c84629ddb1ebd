package tap

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"
)

// The kernel does not use an IPv6 address that it is silent about for so long, or if it says of it
// nothing among so many messages.
const (
	addr6SilenceSec  = 30
	addr6MessagesMax = 1 << 16
)

var errAddrUnused = errors.New("the kernel was given the address, but does not use it")

// setAddr6 gives the kernel's side an IPv6 address (rtnetlink(7)) and returns when the kernel uses
// it. That is left to a worker of the kernel's (addrconf_dad_work, net/ipv6/addrconf.c), which on a
// busy machine is late; until it has made the local route, what we send to the address is dropped.
// There is no check for duplicates, whose second and more a connection of this host would begin
// with another source address: the only other station on the link are we, and we check ours.
func setAddr6(index int, addr netip.Prefix) error {
	fd, err := unix.Socket(unix.AF_NETLINK, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.NETLINK_ROUTE)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	if err := unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: addr6SilenceSec}); err != nil {
		return err
	}
	if err := unix.Bind(
		fd, &unix.SockaddrNetlink{Family: unix.AF_NETLINK, Groups: unix.RTMGRP_IPV6_ROUTE}); err != nil {
		return err
	}
	ask := func() error {
		return unix.Sendto(fd, newAddr6(index, addr), 0, &unix.SockaddrNetlink{Family: unix.AF_NETLINK})
	}
	if err := ask(); err != nil {
		return err
	}
	buf := make([]byte, 64<<10)
	for range addr6MessagesMax {
		n, _, err := unix.Recvfrom(fd, buf, 0)
		switch {
		case err == unix.EINTR:
			continue
		case err == unix.EAGAIN:
			return errAddrUnused
		case err == unix.ENOBUFS:
			// others' routes have filled the socket, and what we wait for may be lost
			if err := ask(); err != nil {
				return err
			}
			continue
		case err != nil:
			return err
		}
		messages, err := syscall.ParseNetlinkMessage(buf[:n])
		if err != nil {
			return err
		}
		for i := range messages {
			if used, err := used6(&messages[i], addr.Addr()); used || err != nil {
				return err
			}
		}
	}
	return errAddrUnused
}

// newAddr6 asks for an address that no other station has.
func newAddr6(index int, addr netip.Prefix) []byte {
	b := make([]byte, unix.SizeofNlMsghdr, 64)
	binary.NativeEndian.PutUint16(b[4:], unix.RTM_NEWADDR)
	binary.NativeEndian.PutUint16(b[6:], unix.NLM_F_REQUEST|unix.NLM_F_ACK|unix.NLM_F_CREATE|
		unix.NLM_F_EXCL)
	binary.NativeEndian.PutUint32(b[8:], addr6Seq)
	b = append(b, unix.AF_INET6, byte(addr.Bits()), unix.IFA_F_NODAD, unix.RT_SCOPE_UNIVERSE)
	b = binary.NativeEndian.AppendUint32(b, uint32(index))
	b = binary.NativeEndian.AppendUint16(b, unix.SizeofRtAttr+16)
	b = binary.NativeEndian.AppendUint16(b, unix.IFA_LOCAL)
	b = append(b, addr.Addr().AsSlice()...)
	binary.NativeEndian.PutUint32(b, uint32(len(b)))
	return b
}

const addr6Seq = 1

// used6 says whether m tells of the local route to an address. The error is the kernel's answer to
// newAddr6; one that is there already is none, but then nothing more is told of it.
func used6(m *syscall.NetlinkMessage, addr netip.Addr) (used bool, err error) {
	switch {
	case m.Header.Type == unix.NLMSG_ERROR && m.Header.Seq == addr6Seq && len(m.Data) >= 4:
		errno := syscall.Errno(-int32(binary.NativeEndian.Uint32(m.Data)))
		if errno == unix.EEXIST {
			return true, nil
		}
		if errno != 0 {
			return false, errno
		}
	case m.Header.Type == unix.RTM_NEWROUTE && len(m.Data) >= unix.SizeofRtMsg &&
		m.Data[7] == unix.RTN_LOCAL:
		attrs, err := syscall.ParseNetlinkRouteAttr(m)
		if err != nil {
			return false, nil
		}
		for _, a := range attrs {
			if a.Attr.Type == unix.RTA_DST && string(a.Value) == string(addr.AsSlice()) {
				return true, nil
			}
		}
	}
	return false, nil
}
