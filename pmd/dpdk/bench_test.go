//go:build dpdk

package dpdk

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
)

// benchBurst is a Poller's usual burst. Figures are per frame; a burst costs one call into C each
// way.
const benchBurst = 32

func perFrame(b *testing.B, frames uint64) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(frames), "ns/frame")
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/burst")
}

// An empty poll: the floor under every Poller turn.
func BenchmarkRxEmpty(b *testing.B) {
	s := openSide(b, Config{Vdev: "net_ring9"}, 1024, 2048)
	bufs := make([]mem.Buf, benchBurst)
	for b.Loop() {
		s.queue.Rx(bufs)
	}
}

// net_null makes frames of 64 octets without work of its own: what is left is ours.
func BenchmarkNullRx(b *testing.B) {
	s := openSide(b, Config{Vdev: "net_null9"}, 8192, 2048)
	bufs := make([]mem.Buf, benchBurst)
	frames := 0
	for b.Loop() {
		n := s.queue.Rx(bufs)
		s.pool.FreeN(bufs[:n])
		frames += n
	}
	perFrame(b, uint64(frames))
}

func BenchmarkNullTx(b *testing.B) {
	s := openSide(b, Config{Vdev: "net_null9"}, 8192, 2048)
	bufs := make([]mem.Buf, benchBurst)
	frames := 0
	for b.Loop() {
		n := s.pool.AllocN(bufs)
		for _, buf := range bufs[:n] {
			s.pool.Desc(buf).Len = 64
		}
		frames += s.queue.Tx(bufs[:n])
		s.pool.FreeN(bufs[:n])
	}
	perFrame(b, uint64(frames))
}

// There and into the peer's Buf, on one thread: Tx, Rx with a copy of the frame, and Rx that takes
// the sent back.
func BenchmarkRingPair64(b *testing.B)   { benchRing(b, 64) }
func BenchmarkRingPair1500(b *testing.B) { benchRing(b, 1514) }

func benchRing(b *testing.B, octets uint32) {
	x, y := ringSides(b, "bench", 256, 4096, 2048)
	bufs := make([]mem.Buf, benchBurst)
	got := make([]mem.Buf, benchBurst)
	frames := 0
	for b.Loop() {
		n := x.pool.AllocN(bufs)
		for _, buf := range bufs[:n] {
			x.pool.Desc(buf).Len = octets
		}
		x.queue.Tx(bufs[:n])
		x.pool.FreeN(bufs[:n])
		n = y.queue.Rx(got)
		y.pool.FreeN(got[:n])
		frames += n
		x.queue.Rx(got)
	}
	perFrame(b, uint64(frames))
}
