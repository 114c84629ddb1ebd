package stack

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

var (
	kernelAddr = netip.MustParsePrefix("10.77.0.1/24")
	ourAddr    = netip.MustParsePrefix("10.77.0.2/24")
)

// kernelLab is a Poller whose peer is the Linux kernel: a TAP device in a network namespace that
// only this test's thread is in. Kernel sockets must be made on the test's goroutine.
type kernelLab struct {
	t *testing.T
	introducer
	pool *mem.Pool
}

func newKernelLab(t *testing.T) *kernelLab { return tunedKernelLab(t, nil) }

// tunedKernelLab lets tune change the Config and set the kernel's side up: dev is its device.
func tunedKernelLab(t *testing.T, tune func(cfg *Config, dev string)) *kernelLab {
	netlab.Enter(t)
	port, err := tap.New(tap.Config{Name: "stack%d", Addr: kernelAddr})
	if err != nil {
		skip.Missing(t, "no TAP device here: %v", err)
	}
	t.Cleanup(func() { _ = port.Close() })
	pool := newPool(t, labBufs)
	q, err := port.Open(0, pool)
	require.NoError(t, err)
	cfg := Config{
		Name: "kernel", Queue: q, Pool: pool, Caps: port.Caps(), MAC: port.MAC(), Addr: ourAddr, Core: -1,
		NoDAD:    true,
		ConnsMax: 16, TCP: tcp.Config{NoDelay: true, SentMax: 512, TimeWaitNs: second},
	}
	if tune != nil {
		tune(&cfg, port.Name())
	}
	p, err := New(cfg)
	require.NoError(t, err)
	var run sync.WaitGroup
	run.Go(func() { require.NoError(t, p.Run(context.Background())) })
	t.Cleanup(func() {
		p.Stop()
		run.Wait()
		_ = port.Close() // gives back what it took in advance
		require.Equal(t, pool.Size(), pool.Available(), "Bufs lost")
		if t.Failed() {
			t.Logf("%+v", p.last)
		}
	})
	return &kernelLab{t: t, introducer: introducer{p}, pool: pool}
}

// do runs fn on the Poller's goroutine and waits for it.
func (k *kernelLab) do(fn func()) {
	done := make(chan struct{})
	require.NoError(k.t, k.Submit(func() { fn(); close(done) }))
	k.wait(done)
}

func (k *kernelLab) wait(done <-chan struct{}) {
	k.t.Helper()
	select {
	case <-done:
	case <-time.After(30 * time.Second):
		k.t.Fatal("waited in vain")
	}
}

// mirror is a peer that closes its half when the other end has; ended is closed with its last call.
type mirror struct {
	peer
	ended chan struct{}
}

func newMirror(t *testing.T, send int) *mirror {
	m := &mirror{peer: *newPeer(t, 1), ended: make(chan struct{})}
	m.toSend = uint64(send)
	m.onClosed = func() { close(m.ended) }
	return m
}

func (m *mirror) PeerClosed() {
	m.peer.PeerClosed()
	m.closeSend()
}

// octets is what a peer with a salt sends.
func octets(salt byte, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = pattern(salt, uint64(i))
	}
	return b
}

// exchange writes send, closes that half, and reads to the end, at once.
func (k *kernelLab) exchange(c *net.TCPConn, send []byte, wantSum [32]byte) {
	require.NoError(k.t, c.SetDeadline(time.Now().Add(30*time.Second)))
	var writing sync.WaitGroup
	writing.Go(func() {
		_, err := c.Write(send)
		require.NoError(k.t, err)
		require.NoError(k.t, c.CloseWrite())
	})
	h := sha256.New()
	_, err := io.Copy(h, c)
	require.NoError(k.t, err)
	writing.Wait()
	require.Equal(k.t, wantSum, [32]byte(h.Sum(nil)))
}

const kernelOctets = 10 << 20

// req: C02-3.2-3, D01-1.2-3
func TestKernelClientSendsToUs(t *testing.T) {
	k := newKernelLab(t)
	m := newMirror(t, kernelOctets)
	k.do(func() { require.NoError(t, k.Listen(7, 4, func(*Conn) Upper { return m })) })
	c, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: ourAddr.Addr().AsSlice(), Port: 7})
	require.NoError(t, err)
	defer c.Close()
	start := time.Now()
	k.exchange(c, octets(2, kernelOctets), sha256.Sum256(octets(1, kernelOctets)))
	t.Logf("10 MiB each way at once in %v", time.Since(start))
	k.wait(m.ended)
	k.do(func() { t.Logf("%+v", m.conn.Stats()) })
	require.NoError(t, m.err)
	require.Equal(t, uint64(kernelOctets), m.edge)
	require.Equal(t, uint64(kernelOctets), m.acked)
}

func TestWeDialAKernelListener(t *testing.T) {
	k := newKernelLab(t)
	l, err := net.ListenTCP("tcp4", &net.TCPAddr{IP: kernelAddr.Addr().AsSlice()})
	require.NoError(t, err)
	defer l.Close()
	require.NoError(t, l.SetDeadline(time.Now().Add(30*time.Second)))
	m := newMirror(t, kernelOctets)
	var conn *Conn
	k.do(func() {
		conn, err = k.Dial(l.Addr().(*net.TCPAddr).AddrPort(), m)
		require.NoError(t, err)
	})
	c, err := l.AcceptTCP()
	require.NoError(t, err)
	defer c.Close()
	require.Equal(t, ourAddr.Addr(), c.RemoteAddr().(*net.TCPAddr).AddrPort().Addr().Unmap())
	k.exchange(c, octets(2, kernelOctets), sha256.Sum256(octets(1, kernelOctets)))
	k.wait(m.ended)
	require.NoError(t, m.err)
	require.Equal(t, uint64(kernelOctets), m.edge)
	k.do(func() { t.Logf("%+v", conn.Stats()) })
}

func TestKernelRefusesAndResets(t *testing.T) {
	k := newKernelLab(t)
	m := newMirror(t, 0)
	k.do(func() {
		_, err := k.Dial(netip.AddrPortFrom(kernelAddr.Addr(), 9), m)
		require.NoError(t, err)
	})
	k.wait(m.ended)
	require.ErrorIs(t, m.err, ErrRefused)

	_, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: ourAddr.Addr().AsSlice(), Port: 9})
	require.ErrorIs(t, err, syscall.ECONNREFUSED)

	// SO_LINGER 0: the kernel closes with a RST.
	m = newMirror(t, 0)
	next := m // the Poller's: what accept returns
	k.do(func() { require.NoError(t, k.Listen(7, 4, func(*Conn) Upper { return next })) })
	c, err := net.DialTCP("tcp4", nil, &net.TCPAddr{IP: ourAddr.Addr().AsSlice(), Port: 7})
	require.NoError(t, err)
	require.NoError(t, c.SetLinger(0))
	require.NoError(t, c.Close())
	k.wait(m.ended)
	require.ErrorIs(t, m.err, ErrReset)

	// Ours, seen by the kernel.
	m = newMirror(t, 0)
	k.do(func() { next = m })
	c, err = net.DialTCP("tcp4", nil, &net.TCPAddr{IP: ourAddr.Addr().AsSlice(), Port: 7})
	require.NoError(t, err)
	defer c.Close()
	opened := false
	for !opened {
		k.do(func() {
			if opened = m.opened; opened {
				m.conn.Abort()
			}
		})
	}
	require.NoError(t, c.SetDeadline(time.Now().Add(30*time.Second)))
	_, err = c.Read(make([]byte, 1))
	require.ErrorIs(t, err, syscall.ECONNRESET)
	k.wait(m.ended)
	require.ErrorIs(t, m.err, ErrAborted)
}

func TestKernelPingsUs(t *testing.T) {
	newKernelLab(t)
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	require.NoError(t, err)
	defer unix.Close(fd)
	require.NoError(t, unix.SetsockoptTimeval(fd, unix.SOL_SOCKET, unix.SO_RCVTIMEO,
		&unix.Timeval{Sec: 10}))
	to := &unix.SockaddrInet4{Addr: ourAddr.Addr().As4()}
	for seq := range 5 {
		ping := append([]byte{inet.ICMPEcho, 0, 0, 0, 0x12, 0x34, 0, byte(seq)}, octets(1, 200*seq)...)
		binary.BigEndian.PutUint16(ping[2:], inet.Checksum(ping, 0))
		require.NoError(t, unix.Sendto(fd, ping, 0, to))
		b := make([]byte, 2000)
		n, _, err := unix.Recvfrom(fd, b, 0)
		require.NoError(t, err)
		_, pong, d := inet.ParseIPv4(b[:n], false)
		require.Equal(t, inet.DropNone, d)
		require.Equal(t, []byte{inet.ICMPEchoReply, 0}, pong[:2])
		require.Equal(t, ping[4:], pong[4:])
	}
}
