package netlab

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Device is how a network device is to be.
type Device struct {
	Name  string
	MTU   int            // 0: as it is
	Addrs []netip.Prefix // IPv4 and IPv6
}

// Veth joins two namespaces, or one with itself, by a veth pair and brings both ends up. All of its
// offloads are off, so that what one end sends is what a wire would carry: frames of the MTU at
// most, with all checksums.
func Veth(t testing.TB, a *Namespace, da Device, b *Namespace, db Device) {
	t.Helper()
	VethWith(t, a, da, b, db, (*Namespace).NoOffload)
}

// VethWith is Veth with offloads as prepare leaves them at each end; nil: as they are.
func VethWith(t testing.TB, a *Namespace, da Device, b *Namespace, db Device,
	prepare func(*Namespace, testing.TB, string)) {
	t.Helper()
	a.Run(t, "ip", "link", "add", da.Name, "type", "veth", "peer", "name", db.Name)
	if a != b {
		// A namespace without a name is reached through a process in it.
		p := b.Hold(t)
		a.Run(t, "ip", "link", "set", db.Name, "netns", strconv.Itoa(p.PID()))
	}
	for _, end := range []struct {
		ns *Namespace
		Device
	}{{a, da}, {b, db}} {
		if prepare != nil {
			prepare(end.ns, t, end.Name)
		}
		end.ns.Configure(t, end.Device)
	}
}

// Configure gives a device of the namespace, a TAP say, its MTU and addresses and brings it up.
// The addresses are in use when it returns; nothing looks for duplicates.
func (ns *Namespace) Configure(t testing.TB, d Device) {
	t.Helper()
	if d.MTU != 0 {
		ns.Run(t, "ip", "link", "set", d.Name, "mtu", strconv.Itoa(d.MTU))
	}
	for _, a := range d.Addrs {
		args := []string{"addr", "add", a.String(), "dev", d.Name}
		if a.Addr().Is6() {
			args = append(args, "nodad")
		}
		ns.Run(t, "ip", args...)
	}
	ns.Run(t, "ip", "link", "set", d.Name, "up")
	ns.Do(func() { AwaitAddrs(t, d.Addrs...) })
}

// AwaitAddrs waits until the kernel uses addresses that its devices have been given, in the
// namespace of the calling thread. IPv4's are used at once. One of IPv6 is left to a worker of
// the kernel's, with or without a check for duplicates (addrconf_dad_work, net/ipv6/addrconf.c),
// and on a busy machine that comes round later than the next command. Until then there is no
// local route: what arrives for the address is dropped (Ip6InAddrErrors), and so are answers to
// Neighbour Solicitations. One that is tentative as well is no source of a connection either, so
// that another is taken, ::1 for one.
func AwaitAddrs(t testing.TB, addrs ...netip.Prefix) {
	t.Helper()
	for until := time.Now().Add(Patience); ; {
		routes, err := os.ReadFile("/proc/thread-self/net/ipv6_route")
		require.NoError(t, err)
		missing := slices.DeleteFunc(slices.Clone(addrs), func(a netip.Prefix) bool {
			return a.Addr().Is4() || hasLocalRoute(string(routes), a.Addr())
		})
		if len(missing) == 0 {
			return
		}
		require.True(t, time.Now().Before(until), "the kernel does not use %v", missing)
		<-time.After(time.Millisecond)
	}
}

// hasLocalRoute looks for an address of this host in /proc/net/ipv6_route: destination, its
// length, source, its length, next hop, metric, references, uses, flags, device.
func hasLocalRoute(routes string, a netip.Addr) bool {
	const flagLocal = 0x80000000 // RTF_LOCAL, linux/ipv6_route.h
	want := a.As16()
	for line := range strings.Lines(routes) {
		col := strings.Fields(line)
		if len(col) != 10 || col[0] != hex.EncodeToString(want[:]) || col[1] != "80" {
			continue
		}
		if flags, err := strconv.ParseUint(col[8], 16, 32); err == nil && flags&flagLocal != 0 {
			return true
		}
	}
	return false
}

// Sysctl sets a parameter of the namespace's network, as net.ipv4.tcp_sack.
func (ns *Namespace) Sysctl(t testing.TB, key, value string) {
	t.Helper()
	path := "/proc/sys/" + strings.ReplaceAll(key, ".", "/")
	var err error
	ns.Do(func() { err = writeFile(path, value) })
	require.NoError(t, err, "%s = %s", key, value)
}

// Congestion sets the congestion control of the namespace's new connections: reno, cubic, bbr. One
// that the kernel lacks fails the test. Call it when all devices have their addresses: the kernel
// lets a namespace choose its default only among net.ipv4.tcp_allowed_congestion_control of the
// machine, but takes any for a route (ip-route(8), congctl).
func (ns *Namespace) Congestion(t testing.TB, name string) {
	t.Helper()
	var err error
	ns.Do(func() { err = writeFile("/proc/sys/net/ipv4/tcp_congestion_control", name) })
	if !errors.Is(err, unix.EPERM) {
		require.NoError(t, err, "congestion control %s", name)
	}
	for _, family := range []string{"-4", "-6"} {
		for route := range strings.Lines(ns.Run(t, "ip", family, "route", "show")) {
			words := slices.DeleteFunc(strings.Fields(route), func(w string) bool {
				return w == "linkdown" || w == "dead"
			})
			// those two are states, not arguments
			args := append([]string{family, "route", "change"}, words...)
			ns.Run(t, "ip", append(args, "congctl", name)...)
		}
	}
}

// writeFile writes to a file that is there; /proc/sys shows the namespace of the thread that opens
// it.
func writeFile(path, text string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	_, err = unix.Write(fd, []byte(text))
	return err
}

type offload struct {
	name string
	cmd  uint32
}

// offloads are what NoOffload switches off, the segmenting ones last: linux/ethtool.h.
var offloads = []offload{
	{"tx checksum", 0x17}, // ETHTOOL_STXCSUM; scatter-gather and segmentation go with it
	{"rx checksum", 0x15}, // ETHTOOL_SRXCSUM
	{"tso", 0x1f},         // ETHTOOL_STSO
	{"gso", 0x24},         // ETHTOOL_SGSO
	{"gro", 0x2c},         // ETHTOOL_SGRO
}

// NoOffload makes the kernel cut and checksum on its own what leaves by a device.
func (ns *Namespace) NoOffload(t testing.TB, device string) { ns.switchOff(t, device, offloads) }

// NoSegmentation makes the kernel cut on its own what leaves by a device, and join nothing that
// comes. Checksums stay as they are.
func (ns *Namespace) NoSegmentation(t testing.TB, device string) {
	ns.switchOff(t, device, offloads[2:])
}

func (ns *Namespace) switchOff(t testing.TB, device string, offloads []offload) {
	t.Helper()
	require.Less(t, len(device), unix.IFNAMSIZ)
	ns.Do(func() {
		fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
		require.NoError(t, err)
		defer unix.Close(fd)
		for _, o := range offloads {
			value := struct{ cmd, data uint32 }{o.cmd, 0}
			var ifr struct {
				name [unix.IFNAMSIZ]byte
				data unsafe.Pointer
				_    [16]byte // struct ifreq is 40 octets
			}
			copy(ifr.name[:], device)
			ifr.data = unsafe.Pointer(&value)
			_, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), unix.SIOCETHTOOL,
				uintptr(unsafe.Pointer(&ifr)))
			require.Zero(t, errno, "%s: %s: %v", device, o.name, errno)
		}
	})
}
