package tap

import (
	"bytes"
	"encoding/binary"
	"math/bits"
	"net"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// datagram is what fills a frame of 1514 octets.
var datagram = someOctets[:1472]

// ofKernel says whether a frame is one that the kernel sends of its own accord: ARP, IPv6.
func ofKernel(frame []byte) bool {
	typ := binary.BigEndian.Uint16(frame[12:])
	return typ == unix.ETH_P_ARP || typ == unix.ETH_P_IPV6
}

// untimed has a benchmark look at what it received, and leaves that time out of its results.
type untimed struct{ spent time.Duration }

func (u *untimed) do(f func()) {
	start := time.Now()
	f()
	u.spent += time.Since(start)
}

// report gives the results of frames of size octets.
func (u *untimed) report(b *testing.B, size int) {
	s := (b.Elapsed() - u.spent).Seconds()
	b.ReportMetric(s*1e9/float64(b.N), "ns/op")
	b.ReportMetric(float64(b.N)*float64(size)/s/1e6, "MB/s")
	b.ReportMetric(float64(b.N)/s, "frames/s")
}

// kernelSender has a kernel socket send UDP datagrams of one MTU each through the device, many per
// system call (UDP_SEGMENT), from a goroutine of its own until the benchmark ends.
func kernelSender(b *testing.B, pool *mem.Pool, q *queue, mac [6]byte) {
	sock := must(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(b)
	require.NoError(b, unix.SetsockoptInt(sock, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1472))
	require.NoError(b, unix.Connect(sock, &unix.SockaddrInet4{Addr: ourIP, Port: 9}))
	payload := bytes.Repeat(datagram, 44)
	_, err := unix.Write(sock, payload)
	require.NoError(b, err)
	poll(b, pool, q, func(frame []byte) bool {
		if answer(frame, mac) {
			require.Equal(b, 1, send(b, pool, q, frame))
		}
		return len(frame) == 1514
	})
	var stop atomic.Bool
	done := make(chan struct{})
	go func() {
		defer close(done)
		for !stop.Load() {
			_, _ = unix.Write(sock, payload)
		}
	}()
	b.Cleanup(func() {
		stop.Store(true)
		<-done
		_ = unix.Close(sock)
	})
}

func modes(b *testing.B, f func(b *testing.B, cfg Config)) {
	for _, no := range []bool{true, false} {
		b.Run(map[bool]string{true: "plain", false: "offload"}[no], func(b *testing.B) {
			enterNetns(b)
			f(b, Config{Name: "rbench", Addr: kernelIP, NoOffload: no})
		})
	}
}

// One op is one frame of 1514 octets from a kernel socket into a Buf; the sender has the other
// core.
func BenchmarkRxFromKernel(b *testing.B) { modes(b, benchRxFromKernel) }

func benchRxFromKernel(b *testing.B, cfg Config) {
	p, pool, q := open(b, cfg)
	kernelSender(b, pool, q, p.MAC())
	bufs := make([]mem.Buf, 32)
	var checks untimed
	b.ReportAllocs()
	b.ResetTimer()
	idle := 0
	for got := 0; got < b.N; {
		n := q.Rx(bufs)
		checks.do(func() {
			for _, buf := range bufs[:n] {
				f := pool.Data(buf)
				if ofKernel(f) {
					continue
				}
				if len(f) != 1514 || !bytes.Equal(f[1514-len(datagram):], datagram) {
					b.Fatalf("frame of %d octets is not what was sent: % x", len(f), f)
				}
				got++
			}
		})
		pool.FreeN(bufs[:n])
		if n == 0 {
			idle++
			runtime.Gosched()
		}
	}
	checks.report(b, 1514)
	b.ReportMetric(float64(idle)/float64(b.N), "idle-polls/frame")
}

// What Rx alone costs: frames already wait in the device when it is polled, and nothing else runs.
// One op is one frame; rx-ns/frame leaves out the kernel's work of sending it.
func BenchmarkRxDrain(b *testing.B) {
	for _, size := range []int{64, 1514} {
		b.Run(strconv.Itoa(size), func(b *testing.B) {
			modes(b, func(b *testing.B, cfg Config) { benchRxDrain(b, cfg, size) })
		})
	}
}

func benchRxDrain(b *testing.B, cfg Config, size int) {
	p, pool, q := open(b, cfg)
	packets, f := packetSocket(b, p.Name()), testFrame(size)
	bufs := make([]mem.Buf, 32)
	var spent time.Duration
	var checks untimed
	sent, got := 0, 0
	for got < b.N {
		for range 256 {
			n, err := unix.Write(packets, f)
			if n != len(f) {
				b.Fatal(err)
			}
			sent++
		}
		start := time.Now()
		for n := len(bufs); n == len(bufs); {
			n = q.Rx(bufs)
			checks.do(func() {
				for _, buf := range bufs[:n] {
					switch {
					case bytes.Equal(pool.Data(buf), f):
						got++
					case !ofKernel(pool.Data(buf)):
						b.Fatalf("not the frame that was sent: % x", pool.Data(buf))
					}
				}
			})
			pool.FreeN(bufs[:n])
		}
		spent += time.Since(start)
		if got != sent {
			b.Fatalf("%d of %d frames came", got, sent)
		}
	}
	b.ReportMetric(float64((spent-checks.spent).Nanoseconds())/float64(got), "rx-ns/frame")
}

// One op is one segment of a TCP flow into the kernel, in bursts of 32; it is for nobody there.
// What the kernel was given is looked at afterwards: a socket that sees the frames would take the
// kernel as long as the rest.
func BenchmarkTxToKernel(b *testing.B) {
	for _, size := range []int{10, 1448} {
		b.Run(strconv.Itoa(54+size), func(b *testing.B) {
			modes(b, func(b *testing.B, cfg Config) { benchTxToKernel(b, cfg, size) })
		})
	}
}

func benchTxToKernel(b *testing.B, cfg Config, size int) {
	p, pool, q := open(b, cfg)
	octets := someOctets[:32*size]
	var bufs []mem.Buf
	for _, part := range (spec{flags: flagACK, payload: octets}).segments(size) {
		buf, _ := part.asked(pool)
		if cfg.NoOffload {
			pool.Desc(buf).Flags = 0
		}
		bufs = append(bufs, buf)
	}
	b.SetBytes(int64(54 + size))
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		n += q.Tx(bufs)
	}
	b.StopTimer()
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")

	sock, err := unix.Socket(unix.AF_PACKET, unix.SOCK_RAW|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	require.NoError(b, err)
	defer unix.Close(sock)
	ifi := must(net.InterfaceByName(p.Name()))(b)
	ipv4 := bits.ReverseBytes16(unix.ETH_P_IP) // as it is on the wire
	require.NoError(b, unix.Bind(sock, &unix.SockaddrLinklayer{Protocol: ipv4, Ifindex: ifi.Index}))
	require.Equal(b, len(bufs), q.Tx(bufs))
	var got []byte
	frame := make([]byte, 1<<17)
	for poll := []unix.PollFd{{Fd: int32(sock), Events: unix.POLLIN}}; len(got) < len(octets); {
		n := must(unix.Poll(poll, 5000))(b)
		require.Positive(b, n, "%d of %d octets came", len(got), len(octets))
		n, _, err = unix.Recvfrom(sock, frame, 0)
		require.NoError(b, err)
		require.Greater(b, n, 54)
		got = append(got, frame[54:n]...)
	}
	require.True(b, bytes.Equal(octets, got), "the kernel was given other octets")
}

// What a poll of an idle device costs: one read that finds nothing.
func BenchmarkIdlePoll(b *testing.B) {
	modes(b, func(b *testing.B, cfg Config) {
		_, _, q := open(b, cfg)
		bufs := make([]mem.Buf, 32)
		for range b.N {
			q.pool.FreeN(bufs[:q.Rx(bufs)])
		}
	})
}
