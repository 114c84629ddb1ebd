package stack

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/stretchr/testify/require"
)

var (
	kernelAddr6 = netip.MustParsePrefix("fd77::1/64")
	ourAddr6    = netip.MustParsePrefix("fd77::2/64")
)

// sh runs a command line in the network namespace of the test's thread and returns what it printed.
func sh(t *testing.T, format string, args ...any) string {
	t.Helper()
	words := strings.Fields(fmt.Sprintf(format, args...))
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	require.NoError(t, err, "%v: %s", words, out)
	return string(out)
}

// dual gives both sides an IPv6 address besides IPv4's.
func dual(t *testing.T) func(cfg *Config, dev string) {
	return func(cfg *Config, dev string) {
		cfg.Addrs, cfg.NoDAD = []netip.Prefix{ourAddr6}, true
		addKernelAddr(t, kernelAddr6, dev)
	}
}

// addKernelAddr gives the kernel's side an IPv6 address that it uses at once.
func addKernelAddr(t *testing.T, a netip.Prefix, dev string) {
	t.Helper()
	sh(t, "ip addr add %v dev %s nodad", a, dev)
	netlab.AwaitAddrs(t, a)
}

// Pings of both families, whole and in fragments: those of 8000 octets come in six and are answered
// in six.
// req: 1122-3.3.2-1, 791-3.2-1, 1122-3.2.2.6-1, 4443-4.2-1, 8200-5-1
func TestKernelPingsOfAllSizes(t *testing.T) {
	k := tunedKernelLab(t, dual(t))
	for _, to := range []netip.Addr{ourAddr.Addr(), ourAddr6.Addr()} {
		for _, size := range []int{0, 56, 1452, 1472, 1473, 8000, 60000} {
			out := sh(t, "ping -n -c 1 -W 10 -s %d %v", size, to)
			require.Contains(t, out, " 0% packet loss", "%v, %d octets", to, size)
		}
	}
	k.do(func() {
		require.Equal(t, uint64(2*7), k.host.Counters().EchoReplies)
		require.GreaterOrEqual(t, k.host.Counters().Reassembled, uint64(2*3))
	})
}

// carry moves octets both ways over a connection that the kernel opens and one that we open.
func (k *kernelLab) carry(ours, theirs netip.Addr) {
	t, n := k.t, kernelOctets
	l := listenThere(t, theirs)
	for _, dial := range []func(m *mirror) *net.TCPConn{
		func(m *mirror) *net.TCPConn {
			k.do(func() { require.NoError(t, k.Listen(7, 4, func(*Conn) Upper { return m })) })
			return dialUs(t, ours)
		},
		func(m *mirror) *net.TCPConn { return k.dials(l, m) },
	} {
		m := newMirror(t, n)
		c := dial(m)
		k.exchange(c, n)
		k.wait(m.ended)
		require.NoError(t, m.err)
		require.Equal(t, []uint64{uint64(n), uint64(n)}, []uint64{m.edge, m.acked})
		addrs := []net.Addr{c.LocalAddr(), c.RemoteAddr()}
		require.True(t, slices.ContainsFunc(addrs, func(a net.Addr) bool {
			return a.(*net.TCPAddr).AddrPort().Addr().Unmap() == ours
		}), "%v", addrs)
	}
	k.do(func() { k.Unlisten(7) })
}

// req: C02-3.2-3, D01-1.2-3, 8200-8.1-1, 4861-7.2-3, 9293-MUST-44
func TestKernelTCP(t *testing.T) {
	k := tunedKernelLab(t, dual(t))
	k.carry(ourAddr.Addr(), kernelAddr.Addr())
	k.carry(ourAddr6.Addr(), kernelAddr6.Addr())
	neigh := sh(t, "ip -6 neigh show %v", ourAddr6.Addr())
	require.Contains(t, strings.ToLower(neigh), k.cfg.MAC.String())
	k.do(func() { require.NotZero(t, k.host.Counters().NDReplies) })
}

// distant is a namespace after the kernel, which forwards to it over a link of MTU 1280.
type distant struct {
	t *testing.T
	*netlab.Namespace
}

func newDistant(t *testing.T) *distant {
	d := &distant{t, netlab.New(t)}
	sh(t, "ip link add near mtu 1280 type veth peer name far netns %d mtu 1500", d.Hold(t).PID())
	sh(t, "ip addr add 10.99.0.1/24 dev near")
	sh(t, "ip link set near up")
	addKernelAddr(t, netip.MustParsePrefix("fd99::1/64"), "near")
	d.Configure(
		t,
		netlab.Device{Name: "far", Addrs: []netip.Prefix{netip.MustParsePrefix("10.99.0.2/24"),
			netip.MustParsePrefix("fd99::2/64")}})
	d.Run(t, "ip", "route", "add", "default", "via", "10.99.0.1")
	d.Run(t, "ip", "route", "add", "default", "via", "fd99::1")
	for _, path := range []string{"ipv4/ip_forward", "ipv6/conf/all/forwarding"} {
		require.NoError(t, os.WriteFile("/proc/sys/net/"+path, []byte("1"), 0o644))
	}
	return d
}

// listen opens a kernel socket there.
func (d *distant) listen(addr netip.Addr) (l *net.TCPListener) {
	d.Do(func() { l = listenThere(d.t, addr) })
	return l
}

// A router on the way has a link of 1280: its ICMP lowers what we send, of both families, and the
// next connection begins with that size.
// req: 1191-3-1, 4443-2.4-2, 1122-3.3.1-1, 7323-5.7-1, 1191-2-1
func TestKernelRouterLowersThePathMTU(t *testing.T) {
	k := tunedKernelLab(t, func(cfg *Config, dev string) {
		dual(t)(cfg, dev)
		cfg.Routes = []inet.Route{
			{Prefix: netip.MustParsePrefix("0.0.0.0/0"), Gateway: kernelAddr.Addr()},
			{Prefix: netip.MustParsePrefix("::/0"), Gateway: kernelAddr6.Addr()},
		}
	})
	d := newDistant(t)
	const n = 1 << 20
	for round, to := range []string{"10.99.0.2", "fd99::2"} {
		fixed := 20 + 20*(round+1)
		for _, reports := range []uint64{1, 0} {
			l := d.listen(netip.MustParseAddr(to))
			m := newMirror(t, n)
			m.finAfter = true
			var before, after uint64
			var emss int
			k.do(func() { before = k.n.PathMTU })
			c := k.dials(l, m)
			require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
			got := must(io.ReadAll(c))(t)
			require.True(t, bytes.Equal(octets(1, n), got))
			k.do(func() { after, emss = k.n.PathMTU, m.conn.EMSS() })
			require.NoError(t, c.Close())
			k.wait(m.ended)
			require.Equal(t, reports, after-before, to)
			require.Equal(t, 1280-fixed-12, emss, to)
		}
	}
}
