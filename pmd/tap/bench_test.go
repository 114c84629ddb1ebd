package tap

import (
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// kernelSender has a kernel socket send UDP datagrams of one MTU each through the device, many per system call
// (UDP_SEGMENT), from a goroutine of its own until the benchmark ends.
func kernelSender(b *testing.B, pool *mem.Pool, q *Queue, mac [6]byte) {
	sock, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	require.NoError(b, err)
	require.NoError(b, unix.SetsockoptInt(sock, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 1472))
	require.NoError(b, unix.Connect(sock, &unix.SockaddrInet4{Addr: ourIP, Port: 9}))
	payload := make([]byte, 44*1472)
	_, err = unix.Write(sock, payload)
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

// One op is one frame of 1514 octets from a kernel socket into a Buf; the sender has the other core.
func BenchmarkRxFromKernel(b *testing.B) { modes(b, benchRxFromKernel) }

func benchRxFromKernel(b *testing.B, cfg Config) {
	p, pool, q := open(b, cfg)
	kernelSender(b, pool, q, p.MAC())
	bufs := make([]mem.Buf, 32)
	b.SetBytes(1514)
	b.ReportAllocs()
	b.ResetTimer()
	idle := 0
	for got := 0; got < b.N; {
		n := q.Rx(bufs)
		pool.FreeN(bufs[:n])
		got += n
		if n == 0 {
			idle++
			runtime.Gosched()
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
	b.ReportMetric(float64(idle)/float64(b.N), "idle-polls/frame")
}

// What Rx alone costs: frames already wait in the device when it is polled, and nobody else runs. One op is one
// frame; rx-ns/frame leaves out the kernel's work of sending it.
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
	for got := 0; got < b.N; {
		for range 256 {
			_, _ = unix.Write(packets, f)
		}
		start := time.Now()
		for n := len(bufs); n == len(bufs); got += n {
			n = q.Rx(bufs)
			pool.FreeN(bufs[:n])
		}
		spent += time.Since(start)
	}
	b.ReportMetric(float64(spent.Nanoseconds())/float64(b.N), "rx-ns/frame")
}

// One op is one segment of a TCP flow into the kernel, in bursts of 32; it is for nobody there.
func BenchmarkTxToKernel(b *testing.B) {
	for _, size := range []int{10, 1448} {
		b.Run(strconv.Itoa(54+size), func(b *testing.B) {
			modes(b, func(b *testing.B, cfg Config) { benchTxToKernel(b, cfg, size) })
		})
	}
}

func benchTxToKernel(b *testing.B, cfg Config, size int) {
	_, pool, q := open(b, cfg)
	var bufs []mem.Buf
	for _, part := range (spec{flags: flagACK, payload: someOctets[:32*size]}).segments(size) {
		buf := pool.Alloc()
		frame, start, offset := part.build()
		*pool.Desc(buf) = mem.Desc{Off: 100, Len: uint32(len(frame))}
		if !cfg.NoOffload {
			pool.Desc(buf).Flags, pool.Desc(buf).CsumStart, pool.Desc(buf).CsumOffset = mem.TxChecksum, start, offset
		}
		copy(pool.Data(buf), frame)
		bufs = append(bufs, buf)
	}
	b.SetBytes(int64(54 + size))
	b.ReportAllocs()
	b.ResetTimer()
	for n := 0; n < b.N; {
		n += q.Tx(bufs)
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
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
