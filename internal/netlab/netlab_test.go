package netlab

import (
	"io"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
)

// pair is two namespaces on one wire.
func pair(t *testing.T, mtu int) (a, b *Namespace) {
	t.Helper()
	a, b = New(t), New(t)
	Veth(t, a, Device{"wire0", mtu, prefixes("10.66.0.1/24", "fd66::1/64")}, b,
		Device{"wire1", mtu, prefixes("10.66.0.2/24", "fd66::2/64")})
	return a, b
}

func prefixes(text ...string) (p []netip.Prefix) {
	for _, s := range text {
		p = append(p, netip.MustParsePrefix(s))
	}
	return p
}

// transfer sends n octets from a to b, where addr is.
func transfer(t *testing.T, a, b *Namespace, addr string, n int) {
	t.Helper()
	var l net.Listener
	var c net.Conn
	var err error
	b.Do(func() { l, err = net.Listen("tcp", net.JoinHostPort(addr, "4000")) })
	require.NoError(t, err)
	defer l.Close()
	a.Do(func() { c, err = net.DialTimeout("tcp", l.Addr().String(), Patience) })
	require.NoError(t, err)
	defer c.Close()
	s, err := l.Accept()
	require.NoError(t, err)
	defer s.Close()
	require.NoError(t, c.SetDeadline(time.Now().Add(Patience)))
	require.NoError(t, s.SetDeadline(time.Now().Add(Patience)))
	wrote := make(chan error, 1)
	go func() {
		_, err := c.Write(make([]byte, n))
		wrote <- err
		_ = c.(*net.TCPConn).CloseWrite()
	}()
	got, err := io.Copy(io.Discard, s)
	require.NoError(t, err)
	require.NoError(t, <-wrote)
	require.Equal(t, int64(n), got)
}

// A transfer has the MTU that was asked for and checksums as on a wire.
func TestVethCaptureAnalyse(t *testing.T) {
	NeedTshark(t)
	a, b := pair(t, 1400)
	for _, addr := range []string{"10.66.0.2", "fd66::2"} {
		capture := b.Capture(t, "wire1")
		transfer(t, a, b, addr, 1<<20)
		got := Analyse(t, capture.Stop(t))
		require.GreaterOrEqual(t, got.TCP, 1<<20/1400)
		require.Equal(t, 1, got.Connections)
		require.Equal(t, 1400, got.LargestIP)
		require.Zero(t, got.BadChecksums)
		require.Zero(t, got.Malformed)
	}
}

// A segment that was damaged after it was captured has a wrong checksum.
func TestAnalyseSeesBadChecksums(t *testing.T) {
	NeedTshark(t)
	a, b := pair(t, 1500)
	capture := a.Capture(t, "wire0")
	transfer(t, a, b, "10.66.0.2", 256<<10)
	path := capture.Stop(t)
	clean := Analyse(t, path)
	require.Zero(t, clean.BadChecksums)

	// Each TCP segment's last octet but one becomes another.
	octets, err := os.ReadFile(path)
	require.NoError(t, err)
	mangled := filepath.Join(t.TempDir(), "mangled.pcap")
	var spoilt int
	for at := 24; at+16 <= len(octets); { // pcap: global header, then records
		n := int(octets[at+8]) | int(octets[at+9])<<8
		frame := octets[at+16 : at+16+n]
		if n > 1000 {
			frame[n-2] ^= 0x55
			spoilt++
		}
		at += 16 + n
	}
	require.NoError(t, os.WriteFile(mangled, octets, 0o600))
	require.Positive(t, spoilt)
	require.Equal(t, spoilt, Analyse(t, mangled).BadChecksums)
}

// Packets that a queue drops are sent again, and the analysis says so.
func TestAnalyseSeesLoss(t *testing.T) {
	NeedTshark(t)
	a, b := pair(t, 1500)
	// A queue of ten packets at 50 Mbit/s loses some of every burst.
	out := a.Start(t, exec.Command("tc", "qdisc", "add", "dev", "wire0", "root", "tbf", "rate",
		"50mbit", "burst", "3000", "limit", "15000"))
	if out.Wait(t) != 0 {
		skip.Missing(t, "needs tc's tbf: %s", out)
	}
	a.Congestion(t, "reno")
	capture := b.Capture(t, "wire1")
	transfer(t, a, b, "10.66.0.2", 4<<20)
	got := Analyse(t, capture.Stop(t))
	require.Positive(t, got.DuplicateACKs)
	require.Positive(t, got.LostSegments+got.OutOfOrder+got.Retransmissions)
	require.Zero(t, got.BadChecksums)
}

// Each namespace's connections have its congestion control, whichever end dials, over IPv4 and
// IPv6.
func TestCongestion(t *testing.T) {
	a, b := pair(t, 1500)
	for _, names := range [][2]string{{"reno", "cubic"}, {"cubic", "reno"}} {
		a.Congestion(t, names[0])
		b.Congestion(t, names[1])
		for _, addr := range []string{"10.66.0.2", "fd66::2"} {
			var l net.Listener
			var c net.Conn
			var err error
			b.Do(func() { l, err = net.Listen("tcp", net.JoinHostPort(addr, "0")) })
			require.NoError(t, err)
			a.Do(func() { c, err = net.DialTimeout("tcp", l.Addr().String(), Patience) })
			require.NoError(t, err)
			s, err := l.Accept()
			require.NoError(t, err)
			require.Equal(t, names[0], congestionOf(t, c))
			require.Equal(t, names[1], congestionOf(t, s))
			for _, end := range []io.Closer{c, s, l} {
				require.NoError(t, end.Close())
			}
		}
	}
}

func congestionOf(t *testing.T, c net.Conn) (name string) {
	t.Helper()
	raw, err := c.(*net.TCPConn).SyscallConn()
	require.NoError(t, err)
	require.NoError(t, raw.Control(func(fd uintptr) {
		name, err = unix.GetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION)
	}))
	require.NoError(t, err)
	return name
}

// An address is in use when AwaitAddrs returns, here after the kernel's check for duplicates,
// which takes a second and more.
func TestAwaitAddrs(t *testing.T) {
	a, b := New(t), New(t)
	Veth(t, a, Device{Name: "wire0"}, b, Device{Name: "wire1"})
	addr := netip.MustParsePrefix("fd66::1/64")
	a.Run(t, "ip", "addr", "add", addr.String(), "dev", "wire0")
	a.Do(func() {
		AwaitAddrs(t, addr, netip.MustParsePrefix("10.66.0.1/24")) // IPv4's are not waited for
		l, err := net.Listen("tcp", net.JoinHostPort(addr.Addr().String(), "0"))
		require.NoError(t, err)
		require.NoError(t, l.Close())
	})
}

func TestSysctlIsTheNamespacesOwn(t *testing.T) {
	a, b := New(t), New(t)
	a.Sysctl(t, "net.ipv4.tcp_sack", "0")
	b.Sysctl(t, "net.ipv4.tcp_sack", "1")
	require.Equal(t, "0\n", a.Run(t, "cat", "/proc/sys/net/ipv4/tcp_sack"))
	require.Equal(t, "1\n", b.Run(t, "cat", "/proc/sys/net/ipv4/tcp_sack"))
}

// A namespace's commands see its devices and no others.
func TestNamespacesAreApart(t *testing.T) {
	a, b := pair(t, 1500)
	require.True(t, a.Has(t, "wire0"))
	require.False(t, a.Has(t, "wire1"))
	require.True(t, b.Has(t, "wire1"))
	_, err := net.InterfaceByName("wire0")
	require.Error(t, err)
}

// A listener is found in the namespace of its process only, whatever its family; a process that
// ends before it listens is noticed.
func TestAwaitListener(t *testing.T) {
	a, b := New(t), New(t)
	for _, addr := range []string{"127.0.0.1:0", "[::1]:0"} {
		var l net.Listener
		var err error
		a.Do(func() { l, err = net.Listen("tcp", addr) })
		require.NoError(t, err)
		port := uint16(l.Addr().(*net.TCPAddr).Port)
		require.True(t, a.Hold(t).AwaitListener(t, port))
		require.False(t, b.Start(t, exec.Command("true")).AwaitListener(t, port))
		require.False(t, a.Start(t, exec.Command("true")).AwaitListener(t, port+1))
		require.NoError(t, l.Close())
	}
}

// What is printed is waited for line by line; a process that ends first is noticed.
func TestProcess(t *testing.T) {
	p := Start(t, exec.Command("sh", "-c", "echo one; echo two >&2; printf three; read x; exit 3"))
	require.Equal(t, "two", p.Expect(t, 2, "one|two"))
	require.Equal(t, 3, p.Wait(t), "standard input is empty")
	require.Equal(t, "one\ntwo\nthree", p.String())
	require.Len(t, p.Lines("."), 2, "three is no whole line")
	_, ok := p.Await(t, 1, "four")
	require.False(t, ok)

	p = Start(t, exec.Command("sleep", "infinity"))
	p.Signal(t, syscall.SIGTERM)
	require.Equal(t, 128+int(syscall.SIGTERM), p.Wait(t))
}

// Tests take what make test has built, as it is, and say what is not there.
func TestBuilt(t *testing.T) {
	built, dir := t.TempDir(), t.TempDir()
	t.Setenv("RNICD_BUILT", built)
	for _, name := range []string{"rnicd", "librnicd_verbs.so", "librnicd_engine.so"} {
		require.NoError(t, os.WriteFile(filepath.Join(built, name), []byte(name), 0o755))
	}
	require.NoError(t, BuildProgram("/nowhere", dir))
	require.NoError(t, os.Mkdir(filepath.Join(built, "standin"), 0o755))
	const link = "standin/libibverbs.so"
	require.NoError(t, os.Symlink("../librnicd_verbs.so", filepath.Join(built, link)))
	require.NoError(t, BuildLibraries("/nowhere", dir))
	for name, want := range map[string]string{"rnicd": "rnicd", link: "librnicd_verbs.so",
		"librnicd_engine.so": "librnicd_engine.so"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		require.NoError(t, err)
		require.Equal(t, want, string(text))
	}
	require.NoError(t, os.Remove(filepath.Join(built, "rnicd")))
	require.ErrorContains(t, BuildProgram("/nowhere", dir), built+"/rnicd")
}
