package tap

import (
	"encoding/binary"
	"errors"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// enterNetns puts the test on a thread in a network namespace of its own.
func enterNetns(t testing.TB) { netlab.Enter(t) }

func newPool(t testing.TB, bufs, mtu int) *mem.Pool {
	stride := (mem.Headroom + mtu + pmd.FrameOverhead + 1 + 63) / 64 * 64
	cfg := mem.PoolConfig{Bufs: bufs, Stride: stride}
	return must(mem.NewPool(hugepages.Heap(cfg.Bytes()), cfg))(t)
}

// newDevice is a port that the test closes.
func newDevice(t testing.TB, cfg Config) *Port {
	t.Helper()
	return must(New(cfg))(t)
}

func open(t testing.TB, cfg Config) (*Port, *mem.Pool, *queue) {
	p := newDevice(t, cfg)
	t.Cleanup(func() { _ = p.Close() })
	pool := newPool(t, 64, p.Caps().MTU)
	q := must(p.Open(0, pool))(t)
	return p, pool, q.(*queue)
}

// ip runs ip(8) in the test's network namespace.
func ip(t testing.TB, words string) {
	t.Helper()
	path, err := exec.LookPath("ip")
	if err != nil {
		skip.Missing(t, "needs iproute2: %v", err)
	}
	out, err := exec.Command(path, strings.Fields(words)...).CombinedOutput()
	require.NoError(t, err, "ip %s: %s", words, out)
}

// send puts one frame on the device.
func send(t testing.TB, pool *mem.Pool, q *queue, frame []byte) int {
	b := pool.Alloc()
	require.NotEqual(t, mem.NoBuf, b)
	pool.Desc(b).Len = uint32(len(frame))
	copy(pool.Data(b), frame)
	n := q.Tx([]mem.Buf{b})
	pool.Free(b)
	return n
}

// poll receives until handle says that it has seen enough; it fails after five seconds.
func poll(t testing.TB, pool *mem.Pool, q *queue, handle func(frame []byte) bool) {
	bufs := make([]mem.Buf, 8)
	for deadline := time.Now().Add(5 * time.Second); time.Now().Before(deadline); runtime.Gosched() {
		n := q.Rx(bufs)
		enough := n == 0 && handle(nil)
		for _, b := range bufs[:n] {
			enough = handle(pool.Data(b)) || enough
		}
		pool.FreeN(bufs[:n])
		if enough {
			return
		}
	}
	t.Fatal("what was waited for did not come within five seconds")
}

var (
	kernelIP = netip.MustParsePrefix("10.77.0.1/24")
)

func TestDeviceIsSetUpAndGone(t *testing.T) {
	enterNetns(t)
	p := newDevice(t, Config{Name: "rsetup", MTU: 9000, Addr: kernelIP})
	require.Equal(t, "rsetup", p.Name())
	require.Equal(t, pmd.Caps{MTU: 9000, Queues: 1, RxChecksum: true, TxChecksum: true,
		TxSegment: true}, p.Caps())
	ifi := must(net.InterfaceByName("rsetup"))(t)
	require.Equal(t, 9000, ifi.MTU)
	require.NotZero(t, ifi.Flags&net.FlagUp)
	addrs := must(ifi.Addrs())(t)
	require.Contains(t, addrs[0].String(), kernelIP.String())

	mac := p.MAC()
	require.NotEqual(t, ifi.HardwareAddr, net.HardwareAddr(mac[:]))
	require.Equal(t, byte(2), mac[0]&3, "locally administered, unicast")

	require.NoError(t, p.Close())
	require.Error(t, errOf(net.InterfaceByName("rsetup")))
}

// Who deletes the device under us is found out.
func TestLost(t *testing.T) {
	enterNetns(t)
	p := newDevice(t, Config{Name: "rlost", Addr: kernelIP})
	require.NoError(t, p.Lost())
	ip(t, "link set rlost down name relsewhere")
	require.NoError(t, p.Lost(), "down and renamed, but there")
	ip(t, "link delete relsewhere")
	require.ErrorIs(t, p.Lost(), ErrGone)
	require.NoError(t, p.Close())
}

// The kernel uses the address at once: sockets can have it, and what we send to it has a route.
func TestIPv6Address(t *testing.T) {
	enterNetns(t)
	want := netip.MustParsePrefix("fd77::1/64")
	p := newDevice(t, Config{Name: "rsix", Addr: want})
	routes := must(os.ReadFile("/proc/thread-self/net/ipv6_route"))(t)
	l := must(net.Listen("tcp", "[fd77::1]:0"))(t)
	require.NoError(t, l.Close())
	require.Regexp(t, "(?m)^fd770000000000000000000000000001 80 ", string(routes))
	ifi := must(net.InterfaceByName("rsix"))(t)
	require.True(t, hasAddr(ifi, want))
	require.NoError(t, setAddr6(ifi.Index, want), "once more")
	require.ErrorIs(t, setAddr6(1<<30, want), unix.ENODEV)
	require.NoError(t, p.Close())
}

// Where IPv6 is switched off the error says so: the command that gives an address by hand would
// fail, too.
func TestIPv6SwitchedOff(t *testing.T) {
	enterNetns(t)
	require.NoError(t, os.WriteFile("/proc/sys/net/ipv6/conf/default/disable_ipv6", []byte("1"), 0))
	_, err := New(Config{Name: "roff", Addr: netip.MustParsePrefix("fd77::1/64")})
	require.ErrorContains(t, err, "net.ipv6.conf.default.disable_ipv6=0")
	require.NotContains(t, err.Error(), "by hand")
}

func TestKernelNumbersTheDevice(t *testing.T) {
	enterNetns(t)
	a, _, _ := open(t, Config{})
	b, _, _ := open(t, Config{})
	require.Equal(t, []string{"tap0", "tap1"}, []string{a.Name(), b.Name()})
	require.NotEqual(t, a.MAC(), b.MAC())
}

// A device the operator made stays, with what the operator gave it.
func TestPersistentDeviceIsLeft(t *testing.T) {
	enterNetns(t)
	ip(t, "tuntap add dev rkeep mode tap")
	for range 2 {
		p := newDevice(t, Config{Name: "rkeep", Addr: kernelIP})
		require.NoError(t, p.Close())
		must(net.InterfaceByName("rkeep"))(t)
	}
}

// The kernel lets a second process share a TAP with several queues. We do not: frames would reach
// one of both by chance. A TAP that is there and free is taken.
func TestQueuesAreNotShared(t *testing.T) {
	enterNetns(t)
	ip(t, "tuntap add dev rshare mode tap multi_queue")
	for range 2 {
		p := newDevice(t, Config{Name: "rshare", Queues: 2, Addr: kernelIP})
		_, err := New(Config{Name: "rshare", Queues: 3})
		require.ErrorIs(t, err, unix.EBUSY)
		require.ErrorContains(t, err, "another process holds the device")
		require.NoError(t, p.Close())
	}
}

// A device that takes no frames although it is there says why: down, renamed and down, moved to
// another network namespace; one in a bridge that it is to leave says so.
func TestTrouble(t *testing.T) {
	enterNetns(t)
	p := newDevice(t, Config{Name: "rtrouble", Addr: kernelIP})
	defer func() { require.NoError(t, p.Close()) }()
	require.Empty(t, p.Trouble())
	ip(t, "link set rtrouble down")
	require.Contains(t, p.Trouble().Text,
		"rtrouble is down: it takes no frames; ip link set rtrouble up")
	ip(t, "link set rtrouble name rother")
	require.Contains(t, p.Trouble().Text, "rother is down")
	ip(t, "link set rother name rtrouble")
	ip(t, "link set rtrouble up")
	require.Empty(t, p.Trouble())

	ip(t, "link add rbridge type bridge")
	ip(t, "link set rtrouble master rbridge")
	require.NoError(t, p.WatchLink(func() {}))
	require.Contains(t, p.Trouble().Text,
		"rtrouble is in a bridge, and will not be in it after a restart")
	ip(t, "link set rtrouble nomaster")

	other := exec.Command("unshare", "-n", "cat") // holds a namespace
	in := must(other.StdinPipe())(t)
	out := must(other.StdoutPipe())(t)
	require.NoError(t, other.Start())
	_, err := in.Write([]byte("x"))
	require.NoError(t, err)
	_, err = out.Read(make([]byte, 1)) // it is there
	require.NoError(t, err)
	ip(t, "link set rtrouble netns "+strconv.Itoa(other.Process.Pid))
	require.Contains(t, p.Trouble().Text, "rtrouble is in another network namespace")
	require.NoError(t, in.Close())
	require.NoError(t, other.Wait())
}

func TestErrorsNameDeviceAndMending(t *testing.T) {
	enterNetns(t)
	_, _, _ = open(t, Config{Name: "rbusy"})
	_, err := New(Config{Name: "rbusy"})
	require.ErrorIs(t, err, unix.EBUSY)
	require.ErrorContains(t, err,
		"tap: rbusy: device or resource busy: another process holds the device; end that process or "+
			"choose another name")

	_, err = New(Config{Name: "lo"})
	require.ErrorIs(t, err, unix.EINVAL)
	require.ErrorContains(t, err, "tap: lo: ")
	require.ErrorContains(t, err, "not a TAP")

	_, err = New(Config{Name: "rmac", MAC: [6]byte{1}})
	require.ErrorContains(t, err, "tap: rmac: MAC 01:00:00:00:00:00 is a group address")
}

func TestNoPermission(t *testing.T) {
	enterNetns(t)
	// Capabilities are a thread's, and this thread ends with the test.
	require.NoError(t, dropNetAdmin())
	_, err := New(Config{Name: "rperm"})
	require.ErrorIs(t, err, unix.EPERM)
	require.ErrorContains(t, err, "tap: rperm: not permitted")
	require.ErrorContains(t, err, "run as root or with CAP_NET_ADMIN")
}

func dropNetAdmin() error {
	hdr := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var data [2]unix.CapUserData
	if err := unix.Capget(&hdr, &data[0]); err != nil {
		return err
	}
	data[0].Effective &^= 1 << unix.CAP_NET_ADMIN
	return unix.Capset(&hdr, &data[0])
}

func TestOpenErrorsSayWhatToDo(t *testing.T) {
	for errno, want := range map[error]string{
		unix.ENOENT: "tap: rnic0: /dev/net/tun: no such file or directory; load the driver (modprobe " +
			"tun) or hand the device to the container (--device /dev/net/tun)",
		unix.ENODEV: "tap: rnic0: /dev/net/tun: no such device; load the driver",
		unix.EACCES: "tap: rnic0: /dev/net/tun: permission denied; run as root or with CAP_NET_ADMIN, " +
			"or give this user access to /dev/net/tun",
		unix.EMFILE: "tap: rnic0: /dev/net/tun: too many open files",
	} {
		err := openError("rnic0", errno)
		require.ErrorContains(t, err, want)
		require.ErrorIs(t, err, errno)
	}
	require.ErrorContains(t, setError("rnic0", "bring up", "ip link set dev rnic0 up", unix.EPERM),
		"tap: rnic0: bring up: operation not permitted; run as root or with CAP_NET_ADMIN, or let root "+
			"do it: ip link set dev rnic0 up")
}

func TestConfigErrors(t *testing.T) {
	for _, c := range []struct {
		cfg  Config
		want string
	}{
		{Config{Name: strings.Repeat("x", 16)},
			"has 16 octets; a device name has at most 15: choose a shorter one"},
		{Config{Name: "a b"}, "a device name has no space"},
		{Config{Name: ".."}, "is not a dot"},
		{Config{Name: "x", MTU: 67}, "tap: x: MTU 67; the kernel's driver takes 68 to 65521"},
		{Config{Name: "x", MTU: 65522}, "tap: x: MTU 65522"},
	} {
		require.ErrorContains(t, errOf(New(c.cfg)), c.want)
	}
}

func TestQueueErrors(t *testing.T) {
	enterNetns(t)
	p := newDevice(t, Config{Name: "ropen"})
	defer p.Close()
	_, err := p.Open(1, newPool(t, 4, 1500))
	require.EqualError(t, err, "tap: ropen: no queue 1; the device has 1")
	_, err = p.Open(0, newPool(t, 4, 1400))
	require.ErrorContains(t, err, "MTU 1500 needs 1523: use a larger stride or a smaller MTU")
	_, err = p.Open(0, newPool(t, 4, 1500))
	require.NoError(t, err)
	require.ErrorContains(t, errOf(p.Open(0, newPool(t, 4, 1500))), "a queue is opened once")
}

// Frames the device cannot have are dropped by reason and do not stop the burst.
func TestTxErrors(t *testing.T) {
	enterNetns(t)
	p, pool, q := open(t, Config{Name: "rtx", NoOffload: true})
	var bufs []mem.Buf
	for _, n := range []uint32{13, 1523, 60} {
		b := pool.Alloc()
		pool.Desc(b).Len = n
		clear(pool.Data(b))
		bufs = append(bufs, b)
	}
	require.Equal(t, 3, q.Tx(bufs))
	require.EqualValues(t, 2, q.Counters().TxErrors)
	require.EqualValues(t, 1, q.Counters().TxFrames)

	sock := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(sock)
	require.NoError(t, control(sock, unix.SIOCSIFFLAGS, p.Name(), func(r *unix.Ifreq) {
		r.SetUint16(0)
	}))
	require.Equal(t, 3, q.Tx(bufs))
	require.EqualValues(t, 5, q.Counters().TxErrors, "device is down")
	require.EqualValues(t, 1, q.Counters().TxFrames)
	for _, flag := range []mem.DescFlags{mem.TxChecksum, mem.TxSegment} {
		pool.Desc(bufs[2]).Flags = flag
		require.Panics(t, func() { q.Tx(bufs[2:]) })
	}
}

// packetSocket sends whole frames out of the device, as the kernel would.
func packetSocket(t testing.TB, name string) int {
	ifi := must(net.InterfaceByName(name))(t)
	sock := must(unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))(t)
	t.Cleanup(func() { _ = unix.Close(sock) })
	require.NoError(t, unix.Bind(sock, &unix.SockaddrLinklayer{Ifindex: ifi.Index}))
	require.NoError(t, unix.SetsockoptInt(sock, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1))
	return sock
}

// testEtherType is for experiments (IEEE 802, local experimental 1).
const testEtherType = 0x88b5

func testFrame(n int) []byte {
	f := make([]byte, n)
	f[0], f[6] = 2, 2
	binary.BigEndian.PutUint16(f[12:], testEtherType)
	for i := pmd.EthernetLen; i < n; i++ {
		f[i] = byte(i * 7)
	}
	return f
}

func isTest(frame []byte) bool {
	return len(frame) > pmd.EthernetLen && binary.BigEndian.Uint16(frame[12:]) == testEtherType
}

func TestRxBoundaries(t *testing.T) {
	enterNetns(t)
	p, pool, q := open(t, Config{Name: "rrx"})
	packets := packetSocket(t, p.Name())
	for _, n := range []int{60, 1514} {
		must(unix.Write(packets, testFrame(n)))(t)
		poll(t, pool, q, func(frame []byte) bool {
			if !isTest(frame) {
				return false
			}
			require.Equal(t, testFrame(n), frame)
			return true
		})
	}
	// Somebody raises the MTU of the kernel's side.
	sock := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(sock)
	require.NoError(t, control(sock, unix.SIOCSIFMTU, p.Name(), func(r *unix.Ifreq) {
		r.SetUint32(4000)
	}))
	for _, n := range []int{1522, 1523, 4000, 61} {
		must(unix.Write(packets, testFrame(n)))(t)
	}
	var lengths []int
	poll(t, pool, q, func(frame []byte) bool {
		if isTest(frame) {
			lengths = append(lengths, len(frame))
		}
		return len(lengths) == 2
	})
	require.Equal(t, []int{1522, 61}, lengths)
	require.EqualValues(t, 2, q.Counters().RxTooLong)
	require.Equal(t, pool.Size(), pool.Available())
}

func TestEmptyPoolLeavesFramesInTheKernel(t *testing.T) {
	enterNetns(t)
	p, pool, q := open(t, Config{Name: "rpool"})
	bufs := make([]mem.Buf, pool.Size())
	require.Equal(t, pool.Size(), pool.AllocN(bufs))
	must(unix.Write(packetSocket(t, p.Name()), testFrame(100)))(t)
	in := make([]mem.Buf, 4)
	require.Zero(t, q.Rx(in))
	require.EqualValues(t, 1, q.Counters().RxNoBuf)
	pool.FreeN(bufs)
	poll(t, pool, q, isTest)
}

func TestClosedDescriptorIsCounted(t *testing.T) {
	pool := newPool(t, 4, 1500)
	q := &queue{fd: -1, pool: pool, rxMax: 1522, txMax: 1522}
	require.Zero(t, q.Rx(make([]mem.Buf, 4)))
	require.EqualValues(t, 1, q.Counters().RxErrors)
	require.Equal(t, 1, send(t, pool, q, testFrame(60)))
	require.EqualValues(t, 1, q.Counters().TxErrors)
	require.Equal(t, pool.Size(), pool.Available())
}

func TestNoAllocation(t *testing.T) {
	enterNetns(t)
	p, pool, q := open(t, Config{Name: "ralloc"})
	packets := packetSocket(t, p.Name())
	f := testFrame(1514)
	out := pool.Alloc()
	pool.Desc(out).Len = 60
	bufs, in := []mem.Buf{out}, make([]mem.Buf, 8)
	var queue pmd.Queue = q
	got := 0
	allocs := testing.AllocsPerRun(100, func() {
		if _, err := unix.Write(packets, f); err != nil && !errors.Is(err, unix.ENOBUFS) {
			panic(err)
		}
		n := queue.Rx(in)
		got += n
		pool.FreeN(in[:n])
		queue.Tx(bufs)
	})
	require.Zero(t, allocs)
	require.GreaterOrEqual(t, got, 100)
}

// must is v, if there was no error.
func must[V any](v V, err error) func(require.TestingT) V {
	return func(t require.TestingT) V {
		require.NoError(t, err)
		return v
	}
}

// errOf is the error of a call whose other result does not matter.
func errOf[V any](_ V, err error) error { return err }
