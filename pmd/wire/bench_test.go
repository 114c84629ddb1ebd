package wire

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

const benchBurst = 32

func report(b *testing.B, size int) {
	b.SetBytes(int64(size))
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
}

// benchHosts has host 0 hold a burst of frames of size octets for host 1.
func benchHosts(b *testing.B, size int) (h []*host, out []mem.Buf) {
	h = newHosts(b, Config{MTU: max(size-pmd.EthernetLen, MTUMin)}, 2*benchBurst)
	f := frame(h[1].port.MAC(), h[0].port.MAC(), 1, size)
	for range benchBurst {
		out = append(out, h[0].load(f))
	}
	return h, out
}

// Both ends on one core, a burst there after a burst here. One op is one frame sent and received.
func BenchmarkOneCore(b *testing.B) {
	for _, size := range []int{64, 1514, 9014} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			h, out := benchHosts(b, size)
			in := make([]mem.Buf, benchBurst)
			b.ReportAllocs()
			b.ResetTimer()
			sent, got := 0, 0
			for ; sent < b.N; sent += benchBurst {
				h[0].q.Tx(out)
				n := h[1].q.Rx(in)
				h[1].pool.FreeN(in[:n])
				got += n
			}
			report(b, size)
			b.StopTimer()
			require.Equal(b, sent, got)
			h[0].q.Tx(out[:1])
			require.Equal(b, 1, h[1].q.Rx(in[:1]))
			require.True(b, bytes.Equal(h[0].pool.Data(out[0]), h[1].pool.Data(in[0])),
				"the octets of a frame")
		})
	}
}
