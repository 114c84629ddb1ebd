package stack

import (
	"context"
	"crypto/sha256"
	"io"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd/tap"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
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
	q := must(port.Open(0, pool))(t)
	cfg := Config{
		Name: "kernel", Queue: q, Pool: pool, Caps: port.Caps(), MAC: port.MAC(), Addr: ourAddr, Core: -1,
		NoDAD:    true,
		ConnsMax: 16, TCP: tcp.Config{NoDelay: true, SentMax: 512, TimeWaitNs: second},
	}
	if tune != nil {
		tune(&cfg, port.Name())
	}
	p := must(New(cfg))(t)
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

// exchange writes n octets of the pattern, closes that half, and reads as many to the end, at once.
func (k *kernelLab) exchange(c *net.TCPConn, n int) {
	require.NoError(k.t, c.SetDeadline(time.Now().Add(30*time.Second)))
	var writing sync.WaitGroup
	writing.Go(func() {
		must(c.Write(octets(2, n)))(k.t)
		require.NoError(k.t, c.CloseWrite())
	})
	h := sha256.New()
	must(io.Copy(h, c))(k.t)
	writing.Wait()
	require.Equal(k.t, sha256.Sum256(octets(1, n)), [32]byte(h.Sum(nil)))
}

// dialUs is a connection that the kernel opens to port 7 of a.
func dialUs(t *testing.T, a netip.Addr) *net.TCPConn {
	t.Helper()
	c := must(net.DialTCP("tcp", nil, net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 7))))(t)
	t.Cleanup(func() { _ = c.Close() })
	return c
}

// listenThere is a listener of the kernel's at a.
func listenThere(t *testing.T, a netip.Addr) *net.TCPListener {
	t.Helper()
	l := must(net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(a, 0))))(t)
	t.Cleanup(func() { _ = l.Close() })
	require.NoError(t, l.SetDeadline(time.Now().Add(30*time.Second)))
	return l
}

// dials has the Poller dial l, and returns the kernel's end.
func (k *kernelLab) dials(l *net.TCPListener, u Upper) *net.TCPConn {
	k.t.Helper()
	k.do(func() {
		must(k.Dial(l.Addr().(*net.TCPAddr).AddrPort(), u))(k.t)
	})
	c := must(l.AcceptTCP())(k.t)
	k.t.Cleanup(func() { _ = c.Close() })
	return c
}

const kernelOctets = 10 << 20
