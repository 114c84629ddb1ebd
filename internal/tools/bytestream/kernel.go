package bytestream

import (
	"errors"
	"fmt"
	"net"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/tools/iperf3"
)

// Kernel is what iperf3 wants of the kernel's TCP beyond net.Conn.
type Kernel struct{}

// Prepare implements iperf3.Transport.
func (Kernel) Prepare(c net.Conn, p iperf3.Params) error {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return fmt.Errorf("%T is no socket of the kernel's TCP", c)
	}
	err := tcp.SetNoDelay(p.NoDelay)
	if p.Window > 0 {
		err = errors.Join(err, tcp.SetReadBuffer(p.Window), tcp.SetWriteBuffer(p.Window))
	}
	if p.TOS != 0 {
		err = errors.Join(err, onSocket(tcp, func(fd int) error {
			return setTOS(fd, c.LocalAddr(), p.TOS)
		}))
	}
	if p.Congestion != "" {
		err = errors.Join(err, onSocket(tcp, func(fd int) error {
			if err := unix.SetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION,
				p.Congestion); err != nil {
				return fmt.Errorf("congestion control %q: %w", p.Congestion, err)
			}
			return nil
		}))
	}
	return err
}

// setTOS sets the TOS octet, or the traffic class; of a socket of IPv6 that speaks IPv4, both.
func setTOS(fd int, local net.Addr, tos int) error {
	err := unix.SetsockoptInt(fd, unix.IPPROTO_IPV6, unix.IPV6_TCLASS, tos)
	if at, ok := local.(*net.TCPAddr); ok && at.IP.To4() != nil {
		err = unix.SetsockoptInt(fd, unix.IPPROTO_IP, unix.IP_TOS, tos)
	}
	if err != nil {
		return fmt.Errorf("TOS %d: %w", tos, err)
	}
	return nil
}

// Info implements iperf3.Transport.
func (Kernel) Info(c net.Conn) iperf3.Info {
	info := iperf3.Info{Retransmits: -1}
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return info
	}
	// What cannot be learned of a socket that the peer has reset stays unknown.
	_ = onSocket(tcp, func(fd int) error {
		if ti, err := unix.GetsockoptTCPInfo(fd, unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			info.Retransmits = int64(ti.Total_retrans)
		}
		if n, err := unix.IoctlGetInt(fd, unix.SIOCOUTQ); err == nil {
			info.Unacked = n
		}
		if name, err := unix.GetsockoptString(fd, unix.IPPROTO_TCP, unix.TCP_CONGESTION); err == nil {
			info.Congestion = name
		}
		return nil
	})
	return info
}

func onSocket(c syscall.Conn, fn func(fd int) error) error {
	raw, err := c.SyscallConn()
	if err != nil {
		return err
	}
	var failed error
	if err := raw.Control(func(fd uintptr) { failed = fn(int(fd)) }); err != nil {
		return err
	}
	return failed
}
