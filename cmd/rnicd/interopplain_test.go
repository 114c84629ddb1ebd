package main

import (
	"bytes"
	"crypto/sha256"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/tcp"
)

// interopEnd is a link and a family.
type interopEnd struct {
	device string
	mtu    int
	family int
}

// interopEnds are links of every kind that there is.
func interopEnds(t testing.TB) []interopEnd {
	all := []interopEnd{{deviceVeth, 1500, 6}, {devicePlain, 576, 4}, {devicePlain, 1500, 4},
		{deviceTap, 9000, 6}}
	return slices.DeleteFunc(all, func(e interopEnd) bool { return !hasDevice(t, e.device) })
}

// at is the stream port of an end, as package net wants it.
func at(p netip.Prefix) string {
	return net.JoinHostPort(p.Addr().String(), strconv.Itoa(streamPort))
}

// dial has the kernel's end connect to ours.
func (l *interopLab) dial(t testing.TB, family int) *net.TCPConn {
	t.Helper()
	var c net.Conn
	var err error
	l.theirs.Do(func() { c, err = net.DialTimeout("tcp", at(interopOurs[family]), patience) })
	require.NoError(t, err)
	t.Cleanup(func() { _ = c.Close() })
	require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
	return c.(*net.TCPConn)
}

// listen has the kernel's end listen.
func (l *interopLab) listen(t testing.TB) *net.TCPListener {
	t.Helper()
	var ln net.Listener
	var err error
	l.theirs.Do(func() { ln, err = net.Listen("tcp", ":"+strconv.Itoa(streamPort)) })
	require.NoError(t, err)
	t.Cleanup(func() { _ = ln.Close() })
	require.NoError(t, ln.(*net.TCPListener).SetDeadline(time.Now().Add(patience)))
	return ln.(*net.TCPListener)
}

func randomOctets(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(n)}).Read(b)
	return b
}

// exchange sends octets, closes that half, and wants the same octets back, and then the end.
func exchange(t testing.TB, c *net.TCPConn, octets []byte) {
	t.Helper()
	sent := make(chan error, 1)
	go func() {
		_, err := c.Write(octets)
		sent <- errors.Join(err, c.CloseWrite())
	}()
	back := must(io.ReadAll(c))(t)
	require.NoError(t, <-sent)
	require.Equal(t, sha256.Sum256(octets), sha256.Sum256(back), "%d octets sent, %d came back",
		len(octets), len(back))
}

const plainOctets = 3_000_017

// We close our half first; only then does the kernel's end send everything back.
func TestInteropWeHalfClose(t *testing.T) {
	for _, end := range sample.Of(t, 2, interopEnds(t)) {
		l := interopLink(t, end.device, end.mtu, end.family, "cubic")
		source := l.stream(t, "source", "-n", strconv.Itoa(plainOctets), "--wait", "30s", "--json",
			at(interopTheirs[end.family]))
		c := must(l.listen(t).AcceptTCP())(t)
		require.NoError(t, c.SetDeadline(time.Now().Add(patience)))
		all := must(io.ReadAll(c))(t)
		require.Len(t, all, plainOctets)
		must(c.Write(all))(t)
		require.NoError(t, c.Close())
		require.Equal(t, 0, source.Wait(t), "%s", source)
		res := jsonLine[plainResult](t, source)
		require.Equal(t, []uint64{plainOctets, plainOctets}, []uint64{res.Bytes, res.Back})
	}
}

// flood sends SYNs from addresses that answer nothing until stop is closed, floodAtOnce each
// millisecond.
func flood(t testing.TB, l *interopLab, stop <-chan struct{}) (sent int) {
	var fd int
	var err error
	l.theirs.Do(func() {
		fd, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_RAW)
	})
	if err != nil {
		t.Error(err)
		return 0
	}
	defer unix.Close(fd)
	to := inet.AddrFrom(interopOurs[4].Addr())
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-stop:
			return sent
		case <-tick.C:
		}
		for range floodAtOnce {
			from := inet.AddrFrom4([4]byte{198, 18, byte(sent >> 8), byte(sent)})
			p := synPacket(from, to, uint16(1024+sent%60000), uint32(sent)*2654435761)
			if err := unix.Sendto(fd, p, 0, &unix.SockaddrInet4{Addr: to.As4()}); err != nil &&
				err != unix.ENOBUFS {
				t.Error(err)
				return sent
			}
			sent++
		}
	}
}

const floodAtOnce = 10

// synPacket is an IPv4 packet with a SYN to the stream port.
func synPacket(from, to inet.Addr, port uint16, seq uint32) []byte {
	p := make([]byte, inet.IPv4Len+tcp.HeaderLenMin)
	ip := inet.IPv4{TTL: 64, Proto: inet.ProtoTCP, Src: from, Dst: to, TotalLen: len(p)}
	ip.Put(p)
	h := p[inet.IPv4Len:]
	copy(h, []byte{byte(port >> 8), byte(port), streamPort >> 8, streamPort & 0xff,
		byte(seq >> 24), byte(seq >> 16), byte(seq >> 8), byte(seq), 0, 0, 0, 0, 5 << 4, byte(tcp.SYN),
		0xff, 0xff})
	sum := ^inet.Fold(inet.Sum(h, inet.PseudoSum(from, to, inet.ProtoTCP, len(h))))
	h[16], h[17] = byte(sum>>8), byte(sum)
	return p
}

// While SYNs from addresses without a host fill the backlog, a transfer that is under way goes on,
// and connections are accepted.
func TestInteropSynFlood(t *testing.T) {
	if testing.Short() { // make test-all
		return
	}
	netlab.NeedTshark(t)
	l := interopLink(t, devicePlain, 1500, 4, "cubic")
	dump := l.theirs.Capture(t, "any")
	echo := l.stream(t, "echo", "--gateway", interopTheirs[4].Addr().String())
	echo.Expect(t, 1, "^ready ")
	under := l.dial(t, 4)
	stop, sent := make(chan struct{}), make(chan int, 1)
	go func() { sent <- flood(t, l, stop) }()
	octets := randomOctets(1 << 20)
	for range 12 { // the backlog is full after the first ones
		written := make(chan error, 1)
		go func() {
			_, err := under.Write(octets)
			written <- err
		}()
		back := make([]byte, len(octets))
		_, err := io.ReadFull(under, back)
		require.NoError(t, errors.Join(err, <-written))
		require.True(t, bytes.Equal(octets, back))
		exchange(t, l.dial(t, 4), octets[:50_000])
	}
	exchange(t, under, octets)
	close(stop)
	n := <-sent
	echo.Expect(t, 13, "^received ")
	path := dump.Stop(t)
	l.ours.ends(t, echo)
	require.Empty(t, echo.Lines("^failed "), "%s", echo)
	require.Greater(t, netlab.Count(t, path, "tcp.flags == 0x12 && ip.dst == 198.18.0.0/15"), 2*256,
		"of %d SYNs, answered; the backlog is 256", n)
	require.Zero(t, netlab.Count(t, path, "tcp.flags.reset == 1"))
}
