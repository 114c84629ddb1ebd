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

// newKernelLab is a Poller whose peer is the Linux kernel, over a TAP device in a network namespace
// that only this test's thread is in: kernel sockets must be made on the test's goroutine.
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
	// once the Poller has ended; what was armed for large frames is the port's until it closes
	t.Cleanup(func() {
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

// req: 9293-MUST-12, 9293-SHLD-3
func TestResetsBetweenUsAndTheKernel(t *testing.T) {
	p := newKernelLab(t)
	ln := must(Listen([]*stack.Poller{p}, 80, Options{}))(t)
	defer ln.Close()
	open := func() (*net.TCPConn, *Conn) {
		k := must(net.DialTCP("tcp4", nil,
			net.TCPAddrFromAddrPort(netip.AddrPortFrom(ourAddr.Addr(), 80))))(t)
		t.Cleanup(func() { _ = k.Close() })
		s := must(ln.AcceptStream())(t)
		for _, c := range []net.Conn{k, s} {
			require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		}
		return k, s
	}
	k, s := open() // theirs
	require.NoError(t, abort(k))
	require.ErrorIs(t, readOne(s), syscall.ECONNRESET)

	k, s = open() // ours
	require.NoError(t, abort(s))
	require.ErrorIs(t, readOne(k), syscall.ECONNRESET)

	k, s = open() // ours, for octets that are not read
	must(k.Write([]byte("xy")))(t)
	require.NoError(t, readOne(s))
	require.NoError(t, s.Close())
	require.ErrorIs(t, readOne(k), syscall.ECONNRESET)

	k, s = open() // none: half closed, then closed
	require.NoError(t, k.CloseWrite())
	require.Equal(t, io.EOF, readOne(s))
	must(s.Write([]byte("x")))(t)
	require.NoError(t, s.Close())
	require.NoError(t, readOne(k))
	require.Equal(t, io.EOF, readOne(k))
}

// alike says that two errors are the same to a program: the operation, the errno or sentinel, and
// whether it is a timeout.
func alike(t *testing.T, what string, kernel, ours error, errno error) {
	t.Helper()
	for _, err := range []error{kernel, ours} {
		wantOp(t, err, kernel.(*net.OpError).Op, errno)
	}
	var k, o net.Error
	require.ErrorAs(t, kernel, &k)
	require.ErrorAs(t, ours, &o)
	require.Equal(t, k.Timeout(), o.Timeout(), what)
	require.Equal(t, kernel.(*net.OpError).Addr != nil, ours.(*net.OpError).Addr != nil, what)
}

// The kernel's sockets and ours fail alike.
//
// req: 9293-MUST-46
func TestErrorsAreTheKernels(t *testing.T) {
	p := newKernelLab(t)
	ln := must(net.ListenTCP("tcp4", &net.TCPAddr{IP: kernelAddr.Addr().AsSlice()}))(t)
	defer ln.Close()
	ours := must(Listen([]*stack.Poller{p}, 80, Options{}))(t)
	defer ours.Close()
	there, here := ln.Addr().String(), netip.AddrPortFrom(ourAddr.Addr(), 80).String()
	dial := func(address string, kernel, our net.Addr) (error, error) {
		k := &net.Dialer{LocalAddr: kernel, Timeout: patience}
		o := &Dialer{Pollers: []*stack.Poller{p}, LocalAddr: our, Timeout: patience}
		to := [2]string{address, address}
		if address == "" { // each other's listener
			to = [2]string{here, there}
		}
		kc, kerr := k.Dial("tcp", to[0])
		oc, oerr := o.Dial("tcp", to[1])
		for _, c := range []net.Conn{kc, oc} {
			if v, ok := c.(interface {
				SetLinger(int) error
			}); ok && (c == kc && kerr == nil || c == oc && oerr == nil) {
				_ = v.SetLinger(0)
				_ = c.Close()
			}
		}
		return kerr, oerr
	}
	for _, c := range []struct {
		what, to string
		errno    error
	}{
		{"no way to the network", "192.0.2.1:9", syscall.ENETUNREACH},
		{"a group", "224.0.0.1:9", syscall.ENETUNREACH},
	} {
		k, o := dial(c.to, nil, nil)
		alike(t, c.what, k, o, c.errno)
	}
	_, refused := net.Dial("tcp4", netip.AddrPortFrom(ourAddr.Addr(), 9).String())
	_, refusedUs := (&Dialer{Pollers: []*stack.Poller{p}}).Dial("tcp4",
		netip.AddrPortFrom(kernelAddr.Addr(), 9).String())
	for _, err := range []error{refused, refusedUs} {
		require.ErrorIs(t, err, syscall.ECONNREFUSED)
		require.Equal(t, "tcp4", err.(*net.OpError).Net)
	}
	k, o := dial("", &net.TCPAddr{IP: net.IPv4(10, 78, 0, 99)},
		&net.TCPAddr{IP: net.IPv4(10, 78, 0, 99)})
	alike(t, "no address of ours", k, o, syscall.EADDRNOTAVAIL)
	k, o = dial("", &net.TCPAddr{Port: ln.Addr().(*net.TCPAddr).Port}, &net.TCPAddr{Port: 80})
	alike(t, "a port that is listened on", k, o, syscall.EADDRINUSE)
	k, o = dial("", &net.TCPAddr{Port: 5999}, &net.TCPAddr{Port: 5999})
	require.NoError(t, k)
	require.NoError(t, o)
}

// From FIN-WAIT-2 the kernel's socket and ours go alike when nobody reads any more; and Close waits
// for the kernel's ACK of our FIN.
func TestKernelAcknowledgesOurFIN(t *testing.T) {
	p := newKernelLab(t)
	ln := must(Listen([]*stack.Poller{p}, 80, Options{}))(t)
	defer ln.Close()
	k, err := net.DialTCP("tcp4", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(ourAddr.Addr(), 80)))
	require.NoError(t, err)
	defer k.Close()
	s := must(ln.AcceptStream())(t)
	for _, c := range []net.Conn{k, s} {
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	}
	must(s.Write([]byte("last words")))(t)
	require.NoError(t, s.SetLinger(60))
	require.NoError(t, s.Close())
	require.True(t, isDone(s.u.flush), "acknowledged, and not given up")
	got := must(io.ReadAll(k))(t)
	require.Equal(t, "last words", string(got))
	_, err = k.Write([]byte("late")) // nobody reads it: a RST, which the kernel sees in CLOSE-WAIT
	require.NoError(t, err)
	for err == nil {
		_, err = k.Write([]byte("later"))
	}
	require.ErrorIs(t, err, syscall.EPIPE)
	over := make(chan struct{})
	require.NoError(t, p.Submit(func() { close(over) })) // the Turn that sent the RST
	<-over
	require.Equal(t, uint64(1), CountersOf(p).AfterClose)
}
