package port

import (
	"fmt"
	"net"
	"strings"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

// NoChecksums says that checksums of packets were left to a device, and what to do.
const NoChecksums = "packets came without checksums: the kernel that sends them leaves these to " +
	"its device, which completes none; there: ethtool -K DEVICE tx off"

// Unsummed are the segments and datagrams that came without checksums.
func Unsummed(k *stack.Counters) uint64 {
	return k.TCP[tcp.DropChecksumLeft] + k.Inet[inet.DropChecksumLeft]
}

// ChecksumsLeft is one end of a veth that a port is made on, and to whose other end the kernel
// leaves the checksums of TCP and UDP, as to a NIC that completes them. A veth completes nothing,
// and what reads its frames, except the kernel, finds each packet damaged.
type ChecksumsLeft struct {
	Device string
	Peer   string // the other end; empty: in another network namespace, where it may be so
}

func (c ChecksumsLeft) String() string {
	if c.Peer == "" {
		return fmt.Sprintf("%s is an end of a veth, and the other is in another network namespace: "+
			"no TCP or UDP from there arrives while the kernel leaves checksums to it", c.Device)
	}
	return fmt.Sprintf("%s is an end of a veth, and the kernel leaves checksums to the other, %s, "+
		"which completes none: no TCP or UDP from there arrives", c.Device, c.Peer)
}

// Fix is the command.
func (c ChecksumsLeft) Fix() string {
	if c.Peer == "" {
		return "in that namespace: ethtool -K DEVICE tx off"
	}
	return "ethtool -K " + c.Peer + " tx off"
}

// ChecksumsLeft are those of the interfaces of a port in this network namespace. What cannot be
// found out is not among them.
func (c *Config) ChecksumsLeft() (all []ChecksumsLeft) {
	if c.Driver.Name != "dpdk" || !strings.HasPrefix(c.Device, "net_af_") {
		return nil
	}
	for _, name := range claimsOfDPDK(c) {
		end, err := vethOf(name)
		if err != nil {
			continue
		}
		left := ChecksumsLeft{Device: name}
		if !end.elsewhere {
			peer, err := net.InterfaceByIndex(end.peer)
			if err != nil || !offloadsTx(peer.Name) {
				continue
			}
			left.Peer = peer.Name
		}
		all = append(all, left)
	}
	return all
}

// veth is one end of one.
type veth struct {
	peer      int // its index
	elsewhere bool
}

// Attributes of a link (linux/if_link.h).
const (
	iflaLink      = 5
	iflaLinkInfo  = 18
	iflaLinkNetNS = 37
	iflaInfoKind  = 1
	rtaTypeMask   = 0x3fff // of netlink's NLA_F_ flags
)

// vethOf asks the kernel about an interface. Its error: there is none, or it is no veth.
func vethOf(name string) (end veth, err error) {
	dev, err := net.InterfaceByName(name)
	if err != nil {
		return end, err
	}
	rib, err := syscall.NetlinkRIB(unix.RTM_GETLINK, unix.AF_UNSPEC)
	if err != nil {
		return end, err
	}
	messages, err := syscall.ParseNetlinkMessage(rib)
	if err != nil {
		return end, err
	}
	kind := ""
	for _, m := range messages {
		if m.Header.Type != unix.RTM_NEWLINK || len(m.Data) < unix.SizeofIfInfomsg ||
			int((*unix.IfInfomsg)(unsafe.Pointer(&m.Data[0])).Index) != dev.Index {
			continue
		}
		attrs, err := syscall.ParseNetlinkRouteAttr(&m)
		if err != nil {
			return end, err
		}
		for _, a := range attrs {
			switch a.Attr.Type & rtaTypeMask {
			case iflaLink:
				end.peer = int(*(*uint32)(unsafe.Pointer(&a.Value[0])))
			case iflaLinkNetNS:
				end.elsewhere = true
			case iflaLinkInfo:
				kind = kindOf(a.Value)
			}
		}
	}
	if kind != "veth" || end.peer == 0 {
		return end, fmt.Errorf("%s is no veth", name)
	}
	return end, nil
}

// kindOf is IFLA_INFO_KIND among nested attributes, which it begins.
func kindOf(b []byte) string {
	if len(b) < unix.SizeofRtAttr {
		return ""
	}
	a := (*unix.RtAttr)(unsafe.Pointer(&b[0]))
	if a.Type&rtaTypeMask != iflaInfoKind || int(a.Len) > len(b) || a.Len < unix.SizeofRtAttr {
		return ""
	}
	return strings.TrimRight(string(b[unix.SizeofRtAttr:a.Len]), "\x00")
}

// Of linux/ethtool.h.
const ethtoolGetTxChecksum = 0x16

// offloadsTx says whether the kernel leaves checksums of what it sends to a device.
func offloadsTx(name string) bool {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(fd)
	value := &struct{ command, data uint32 }{command: ethtoolGetTxChecksum}
	request := struct { // struct ifreq
		name [unix.IFNAMSIZ]byte
		data unsafe.Pointer
		_    [16]byte
	}{data: unsafe.Pointer(value)}
	copy(request.name[:unix.IFNAMSIZ-1], name)
	_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
		uintptr(unsafe.Pointer(&request)))
	return errno == 0 && value.data != 0
}
