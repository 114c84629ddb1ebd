package bench

import (
	"fmt"
	"runtime"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/yard"
)

// BenchmarkWriteOneCore is RDMA Write of 1 MiB messages with both ends' Pollers turned in turns on
// one goroutine: what a full segment costs the sender (send-ns/seg) and the receiver (recv-ns/seg),
// the tenth percentile of stretches. Two cores that others use, too, disturb it little. By the
// wire's copies: none of its own (lent), or two.
func BenchmarkWriteOneCore(b *testing.B) {
	for _, c := range []cable{{mtu: 1500, zeroCopy: true}, {mtu: 1500}, {mtu: 9000, zeroCopy: true},
		{mtu: 9000}} {
		b.Run(fmt.Sprintf("mtu=%d/lent=%v", c.mtu, c.zeroCopy), func(b *testing.B) { writeOneCore(b, c) })
	}
}

// writeStretch is how many messages are timed together.
const writeStretch = 2

// writeShare is what messages cost one side, in the stretch under way and in those before.
type writeShare struct {
	ns        int64
	stretches []float64 // ns of each full segment
}

func (s *writeShare) end(segments float64) {
	s.stretches = append(s.stretches, float64(s.ns)/segments)
	s.ns = 0
}

func (s *writeShare) quiet() float64 {
	slices.Sort(s.stretches)
	return s.stretches[len(s.stretches)/10]
}

func writeOneCore(b *testing.B, c cable) {
	g := newCable(b, c)
	w, s := newWriter(b, g, false)
	b.Cleanup(func() { require.NoError(b, w.check(b, g, s)) })
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	g.clock.resume()
	w.slice, g.client.app = &yard.Slice{}, w.step
	segments := float64(writeStretch*message) / float64(payloads[c.mtu])
	var send, recv writeShare
	late := lateness(b)
	n := uint64((b.N + writeStretch - 1) / writeStretch * writeStretch)
	b.SetBytes(message)
	b.ReportAllocs()
	b.ResetTimer()
	began := time.Now()
	for next := w.done + writeStretch; n > 0 && w.failed == nil && !late.Load(); {
		g.client.poller.Turn()
		sent := time.Now()
		g.server.poller.Turn()
		received := time.Now()
		send.ns += int64(sent.Sub(began))
		recv.ns += int64(received.Sub(sent))
		if began = received; w.done >= next {
			next += writeStretch
			n -= writeStretch
			send.end(segments)
			recv.end(segments)
		}
	}
	b.StopTimer()
	require.NoError(b, w.failed)
	require.False(b, late.Load(), "not all Writes complete")
	b.ReportMetric(send.quiet(), "send-ns/seg")
	b.ReportMetric(recv.quiet(), "recv-ns/seg")
}
