package bench

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

const message = 1 << 20

// BenchmarkWrite is RDMA Write of 1 MiB messages between two Pollers on two cores over pmd/wire, CRC32C on.
// The first marks: 10 Gbit/s at MTU 1500, 25 Gbit/s at MTU 9000.
func BenchmarkWrite(b *testing.B) {
	for _, mtu := range []int{1500, 9000} {
		for _, markers := range []bool{false, true} {
			for _, offload := range []bool{false, true} {
				b.Run(fmt.Sprintf("mtu=%d/markers=%v/offload=%v", mtu, markers, offload), func(b *testing.B) {
					server, client := rig(b, mtu, offload)
					s, c := connect(b, server, client, 16*message, rnic.QPOptions{NoMarkers: !markers, SendDepth: 64})
					benchWrite(b, s, c)
				})
			}
		}
	}
}

func benchWrite(b *testing.B, s, c *end) {
	const outstanding = 16
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	post := func(i int) {
		off := i % 16 * message
		require.NoError(b, c.qp.PostWrite(rnic.WorkRequest{
			ID: uint64(i), Local: c.region.Slice(off, message), Signaled: true,
			RemoteSTag: s.region.STag(), RemoteOffset: uint64(off),
		}))
	}
	require.NoError(b, s.qp.PostRecv(rnic.WorkRequest{Local: s.region.Slice(0, 1)}))
	b.SetBytes(message)
	b.ResetTimer()
	for i := range b.N {
		if i >= outstanding {
			c.reap(ctx, b, 1)
		}
		post(i)
	}
	c.reap(ctx, b, min(b.N, outstanding))
	// The clock stops when the peer has everything, not when TCP does.
	require.NoError(b, c.qp.PostSend(rnic.WorkRequest{Local: c.region.Slice(0, 1), Signaled: true}))
	s.reap(ctx, b, 1)
	b.StopTimer()
	b.ReportMetric(float64(b.N)*message*8/b.Elapsed().Seconds()/1e9, "Gbit/s")
	st, err := s.qp.Stats(ctx)
	require.NoError(b, err)
	b.ReportMetric(float64(st.TCP.SegmentsIn)/float64(b.N), "segs/op")
}
