package tap

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

const (
	clonePath = "/dev/net/tun"

	mendPermission = "run as root or with CAP_NET_ADMIN"
)

// attach opens the clone device once per queue and names it: a new device, or one that is there and
// free. With vnet it asks for a virtio_net_hdr and offloads; where this kernel has none it goes on
// without, and vnet comes back false. The name returned has its %d filled in.
func attach(name string, queues int,
	vnet bool) (fds []int, actual string, withVnet bool, err error) {
	for {
		fds, actual, err = attachQueues(name, queues, vnet)
		if err != nil {
			return nil, "", false, err
		}
		if !vnet {
			// A device that outlives its users may have been left with offloads, which would give
			// us frames without checksum.
			_ = unix.IoctlSetInt(fds[0], unix.TUNSETOFFLOAD, 0)
			return fds, actual, false, nil
		}
		if err = setOffload(fds[0]); err == nil {
			return fds, actual, true, nil
		}
		closeAll(fds)
		vnet = false
	}
}

func attachQueues(name string, queues int, vnet bool) ([]int, string, error) {
	var fds []int
	if queues > 1 && held(name) { // the kernel would let us share the device, and its frames
		return nil, "", attachError(name, queues, unix.EBUSY)
	}
	for range queues {
		fd, actual, err := attachQueue(name, queues, vnet)
		if err != nil {
			closeAll(fds)
			return nil, "", err
		}
		fds, name = append(fds, fd), actual
	}
	return fds, name, nil
}

func attachQueue(name string, queues int, vnet bool) (fd int, actual string, err error) {
	fd, err = unix.Open(clonePath, unix.O_RDWR|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return -1, "", openError(name, err)
	}
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		_ = unix.Close(fd)
		return -1, "", fmt.Errorf("tap: name %q: %w: choose another", name, err)
	}
	// Without IFF_NO_PI every frame would be led by four octets that repeat its EtherType.
	flags := uint16(unix.IFF_TAP | unix.IFF_NO_PI)
	if vnet {
		flags |= unix.IFF_VNET_HDR
	}
	if queues > 1 {
		flags |= unix.IFF_MULTI_QUEUE
	}
	ifr.SetUint16(flags)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		_ = unix.Close(fd)
		return -1, "", attachError(name, queues, err)
	}
	return fd, ifr.Name(), nil
}

// held says whether a process has queues of a TAP: its carrier is there only as long.
func held(name string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	info, err := unix.IoctlGetEthtoolDrvinfo(fd, name)
	if err != nil || unix.ByteSliceToString(info.Driver[:]) != "tun" {
		return false
	}
	value := struct{ cmd, data uint32 }{cmd: unix.ETHTOOL_GLINK}
	req, err := unix.NewIfreq(name)
	if err != nil {
		return false
	}
	err = ioctlData(fd, unix.SIOCETHTOOL, req, unsafe.Pointer(&value))
	return err == nil && value.data != 0
}

// ioctlData is an ioctl of a struct ifreq that points to data.
func ioctlData(fd int, call uintptr, req *unix.Ifreq, data unsafe.Pointer) error {
	raw := struct {
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: data}
	copy(raw.name[:], req.Name())
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), call, uintptr(unsafe.Pointer(&raw)))
	if errno != 0 {
		return errno
	}
	return nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		_ = unix.Close(fd)
	}
}

// TUN_F_USO4 and TUN_F_USO6, linux/if_tun.h: UDP segmentation, since Linux 6.2.
const tunUSO = 0x20 | 0x40

// setOffload tells the kernel what we can receive: frames without checksum, and uncut ones.
func setOffload(fd int) error {
	// A device that outlives its users may have been left with another size of header.
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, vnetLen); err != nil {
		return err
	}
	const tso = unix.TUN_F_CSUM | unix.TUN_F_TSO4 | unix.TUN_F_TSO6 | unix.TUN_F_TSO_ECN
	err := unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tso|tunUSO)
	if err != nil {
		err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, tso)
	}
	return err
}

// features are the flags of TUNSETIFF that this kernel's driver knows; none when it cannot be
// asked.
func features() int {
	fd, err := unix.Open(clonePath, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		return 0
	}
	defer unix.Close(fd)
	f, err := unix.IoctlGetInt(fd, unix.TUNGETFEATURES)
	if err != nil {
		return 0
	}
	return f
}

func openError(name string, err error) error {
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return fmt.Errorf("tap: %s: %s: %w; load the driver (modprobe tun) or hand the device to the "+
			"container (--device %s)",
			name, clonePath, err, clonePath)
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return fmt.Errorf("tap: %s: %s: %w; %s, or give this user access to %s", name, clonePath, err,
			mendPermission, clonePath)
	}
	return fmt.Errorf("tap: %s: %s: %w", name, clonePath, err)
}

func attachError(name string, queues int, err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("tap: %s: not permitted to create or attach to the device: %w; %s, or let "+
			"root make it for this user: ip tuntap add dev %s mode tap user NAME",
			name, err, mendPermission, name)
	case errors.Is(err, unix.EBUSY):
		return fmt.Errorf("tap: %s: %w: another process holds the device; end that process or choose "+
			"another name", name, err)
	case errors.Is(err, unix.EINVAL) && queues > 1:
		return fmt.Errorf("tap: %s: %w: a device of this name exists and is not a TAP with several "+
			"queues; choose another name, one queue, or remake it: ip link delete %s; ip tuntap add dev "+
			"%s mode tap multi_queue",
			name, err, name, name)
	case errors.Is(err, unix.E2BIG):
		return fmt.Errorf("tap: %s: %w: %d queues are more than this kernel's driver has; use fewer",
			name, err, queues)
	case errors.Is(err, unix.EINVAL):
		return fmt.Errorf("tap: %s: %w: a device of this name exists and is not a TAP with a single "+
			"queue; choose another name or remove it: ip link delete %s",
			name, err, name)
	}
	return fmt.Errorf("tap: %s: create or attach: %w", name, err)
}

// configure gives the kernel's side its MTU and address, brings it up and returns its MAC. What is
// right already is left alone, so that a device prepared by root serves a user without
// CAP_NET_ADMIN.
func configure(name string, mtu int, addr netip.Prefix) (mac [6]byte, err error) {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return mac, fmt.Errorf("tap: %s: look up: %w", name, err)
	}
	if len(ifi.HardwareAddr) != len(mac) {
		return mac, fmt.Errorf("tap: %s: hardware address %q is no Ethernet address; choose another name",
			name, ifi.HardwareAddr)
	}
	copy(mac[:], ifi.HardwareAddr)
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return mac, fmt.Errorf("tap: %s: control socket: %w", name, err)
	}
	defer unix.Close(sock)
	if ifi.MTU != mtu {
		err := control(sock, unix.SIOCSIFMTU, name, func(r *unix.Ifreq) { r.SetUint32(uint32(mtu)) })
		if err != nil {
			return mac,
				setError(name, fmt.Sprintf("set MTU %d", mtu),
					fmt.Sprintf("ip link set dev %s mtu %d", name, mtu), err)
		}
	}
	if ifi.Flags&net.FlagUp == 0 {
		if err := bringUp(sock, name); err != nil {
			return mac, setError(name, "bring up", fmt.Sprintf("ip link set dev %s up", name), err)
		}
	}
	if addr.IsValid() && !hasAddr(ifi, addr) {
		err := setAddr(sock, ifi, addr)
		if addr.Addr().Is6() && errors.Is(err, unix.EACCES) {
			return mac, fmt.Errorf("tap: %s: set address %v: IPv6 is switched off here; switch it on: "+
				"sysctl -w net.ipv6.conf.all.disable_ipv6=0 net.ipv6.conf.default.disable_ipv6=0: %w",
				name, addr, err)
		}
		if err != nil {
			return mac,
				setError(name, "set address "+addr.String(),
					fmt.Sprintf("ip address add %s dev %s", addr, name), err)
		}
	}
	return mac, nil
}

func setError(name, what, command string, err error) error {
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("tap: %s: %s: %w; %s, or let root do it: %s", name, what, err,
			mendPermission, command)
	}
	return fmt.Errorf("tap: %s: %s: %w; try by hand: %s", name, what, err, command)
}

func control(sock int, req uint, name string, set func(*unix.Ifreq)) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	set(ifr)
	return unix.IoctlIfreq(sock, req, ifr)
}

func bringUp(sock int, name string) error {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return err
	}
	if err := unix.IoctlIfreq(sock, unix.SIOCGIFFLAGS, ifr); err != nil {
		return err
	}
	ifr.SetUint16(ifr.Uint16() | unix.IFF_UP)
	return unix.IoctlIfreq(sock, unix.SIOCSIFFLAGS, ifr)
}

func hasAddr(ifi *net.Interface, want netip.Prefix) bool {
	addrs, err := ifi.Addrs()
	if err != nil {
		return false
	}
	for _, a := range addrs {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p == want {
			return true
		}
	}
	return false
}

func setAddr(sock int, ifi *net.Interface, addr netip.Prefix) error {
	if !addr.Addr().Is4() {
		return setAddr6(ifi.Index, addr)
	}
	for _, step := range []struct {
		req uint
		b   []byte
	}{
		{unix.SIOCSIFADDR, addr.Addr().AsSlice()},
		{unix.SIOCSIFNETMASK, net.CIDRMask(addr.Bits(), 32)},
	} {
		ifr, err := unix.NewIfreq(ifi.Name)
		if err != nil {
			return err
		}
		if err := ifr.SetInet4Addr(step.b); err != nil {
			return err
		}
		if err := unix.IoctlIfreq(sock, step.req, ifr); err != nil {
			return err
		}
	}
	return nil
}
