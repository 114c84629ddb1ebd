package stream

import (
	"io"
	"net"
	"net/netip"
	"os"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/tcp"
)

var (
	kernelAddr = netip.MustParsePrefix("10.78.0.1/24")
	ourAddr    = netip.MustParsePrefix("10.78.0.2/24")
)

// newKernelLab is a Poller whose peer is the Linux kernel, over a TAP device in a network namespace that only this test's
// thread is in: kernel sockets must be made on the test's goroutine.
func newKernelLab(t *testing.T) *stack.Poller {
	if os.Geteuid() != 0 {
		skip.Missing(t, "needs root: makes a network namespace and a TAP device")
	}
	runtime.LockOSThread() // for good: the thread, and the namespace, end with the test's goroutine
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		skip.Missing(t, "no network namespace here: %v", err)
	}
	port, err := tap.New(tap.Config{Name: "stream%d", Addr: kernelAddr})
	if err != nil {
		skip.Missing(t, "no TAP device here: %v", err)
	}
	pool := newPool(t, bufs)
	t.Cleanup(func() { // once the Poller has ended; what was armed for large frames is the port's until it closes
		require.NoError(t, port.Close())
		require.Equal(t, pool.Size(), pool.Available(), "Bufs lost")
	})
	p := testhost.NewPoller(t, port, stack.Config{
		Name: "kernel", Pool: pool, Addr: ourAddr, ConnsMax: 16,
		TCP: tcp.Config{SentMax: 512, TimeWaitNs: int64(10 * time.Millisecond)},
	})
	testhost.Run(t, p)
	return p
}

const kernelOctets = 8 << 20

func TestKernelDialsUs(t *testing.T) {
	p := newKernelLab(t)
	ln, err := Listen([]*stack.Poller{p}, 80, Options{})
	require.NoError(t, err)
	k, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(ourAddr.Addr(), 80)))
	require.NoError(t, err)
	defer k.Close()
	s, err := ln.Accept()
	require.NoError(t, err)
	require.Equal(t, k.LocalAddr().String(), s.RemoteAddr().String())
	for _, c := range []net.Conn{k, s} {
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	}
	exchange(t, k, s, kernelOctets)
	require.NoError(t, s.Close())
	require.NoError(t, ln.Close())
}

func TestWeDialTheKernel(t *testing.T) {
	p := newKernelLab(t)
	ln, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: kernelAddr.Addr().AsSlice()})
	require.NoError(t, err)
	defer ln.Close()
	d := &Dialer{Pollers: []*stack.Poller{p}, Timeout: patience}
	c, err := d.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	k, err := ln.Accept()
	require.NoError(t, err)
	defer k.Close()
	for _, x := range []net.Conn{k, c} {
		require.NoError(t, x.SetDeadline(time.Now().Add(patience)))
	}
	exchange(t, k, c, kernelOctets)
	require.NoError(t, c.Close())
	_, err = d.Dial("tcp", netip.AddrPortFrom(kernelAddr.Addr(), 9).String())
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// req: 9293-MUST-12, 9293-SHLD-3
func TestResetsBetweenUsAndTheKernel(t *testing.T) {
	p := newKernelLab(t)
	ln, err := Listen([]*stack.Poller{p}, 80, Options{})
	require.NoError(t, err)
	defer ln.Close()
	open := func() (*net.TCPConn, *Conn) {
		k, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(ourAddr.Addr(), 80)))
		require.NoError(t, err)
		t.Cleanup(func() { _ = k.Close() })
		s, err := ln.AcceptStream()
		require.NoError(t, err)
		for _, c := range []net.Conn{k, s} {
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		}
		return k, s
	}
	k, s := open() // theirs
	require.NoError(t, k.SetLinger(0))
	require.NoError(t, k.Close())
	require.ErrorIs(t, readOne(s), syscall.ECONNRESET)

	k, s = open() // ours
	require.NoError(t, s.SetLinger(0))
	require.NoError(t, s.Close())
	require.ErrorIs(t, readOne(k), syscall.ECONNRESET)

	k, s = open() // ours, for octets that nobody reads
	_, err = k.Write([]byte("xy"))
	require.NoError(t, err)
	require.NoError(t, readOne(s))
	require.NoError(t, s.Close())
	require.ErrorIs(t, readOne(k), syscall.ECONNRESET)

	k, s = open() // none: half closed, then closed
	require.NoError(t, k.CloseWrite())
	require.Equal(t, io.EOF, readOne(s))
	_, err = s.Write([]byte("x"))
	require.NoError(t, err)
	require.NoError(t, s.Close())
	require.NoError(t, readOne(k))
	require.Equal(t, io.EOF, readOne(k))
}
