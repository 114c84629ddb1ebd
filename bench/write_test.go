package bench

import (
	"context"
	"fmt"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/rnic"
)

const (
	message     = 1 << 20
	slots       = 16  // places for messages in a region
	round       = 128 // messages between two comparisons
	outstanding = 16
	lastLen     = 8 // octets of the Send after a round
	writeRegion = slots*message + lastLen
)

// BenchmarkWrite is RDMA Write of 1 MiB messages between two Pollers on two cores over pmd/wire,
// CRC32C on. The first marks: 10 Gbit/s at MTU 1500, 25 Gbit/s at MTU 9000.
func BenchmarkWrite(b *testing.B) {
	for _, mtu := range []int{1500, 9000} {
		for _, markers := range []bool{false, true} {
			for _, offload := range []bool{false, true} {
				opt := opts{rnic.QPOptions{SendDepth: 64}, rnic.ConnParam{NoMarkers: !markers}}
				var once sync.Once
				b.Run(fmt.Sprintf("mtu=%d/markers=%v/offload=%v", mtu, markers, offload), func(b *testing.B) {
					once.Do(func() { requireCRC(b, mtu, opt) })
					server, client := rig(b, mtu, offload)
					s, c := connect(b, server, client, writeRegion, opt)
					benchWrite(b, s, c)
				})
			}
		}
	}
}

// benchWrite writes from c's region into s's, round by round. A round is timed from its first post
// until s has received a Send that was posted last: then all Writes before it have been placed.
// Before a round the source gets new octets, after it all of s's region is compared, both untimed.
// A place is written several times in a round, each time from another place of the source; only the
// last shows in the comparison, the others in the receiver's counts.
func benchWrite(b *testing.B, s, c *end) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	fresh := newNoise(b)
	last := rnic.WorkRequest{Local: s.region.Slice(slots*message, lastLen)}
	b.SetBytes(message)
	b.ResetTimer()
	b.StopTimer()
	rounds := 0
	for left := b.N; left > 0; left -= round {
		n := min(left, round)
		rounds++
		fresh.fill(c.region.Bytes())
		require.NoError(b, errOf(s.qp.PostRecv(last)))
		b.StartTimer()
		writeRound(ctx, b, s, c, n)
		b.StopTimer()
		requireRound(b, c.region.Bytes(), s.region.Bytes(), n)
	}
	b.ReportMetric(float64(b.N)*message*8/b.Elapsed().Seconds()/1e9, "Gbit/s")
	st := must(s.qp.Stats(ctx))(b)
	b.ReportMetric(float64(st.TCP.SegmentsIn)/float64(b.N), "segs/op")
	require.EqualValues(b, b.N, st.WritesRecvd)
	require.EqualValues(b, b.N*message+rounds*lastLen, st.Placed.Direct+st.Placed.Reassembled)
}

// from is the place of the source that the i-th message of a round comes from; it goes to place
// i%slots.
func from(i int) int { return (i + i/slots) % slots }

// writeRound writes n messages, then sends one, and returns when s has received it.
func writeRound(ctx context.Context, b *testing.B, s, c *end, n int) {
	for i := range n {
		if i >= outstanding {
			c.reap(ctx, b, 1)
		}
		require.NoError(b, errOf(c.qp.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, ID: uint64(i),
			Local: c.region.Slice(from(i)*message, message), Signaled: true, RemoteSTag: s.region.STag(),
			RemoteOffset: s.region.Base() + uint64(i%slots*message)})))
	}
	require.NoError(b, errOf(c.qp.PostSend(rnic.WorkRequest{Op: rnic.OpSend,
		Local: c.region.Slice(slots*message, lastLen), Signaled: true})))
	s.reap(ctx, b, 1)
	c.reap(ctx, b, min(n, outstanding)+1) // they are there, or the Send would not be
}

// requireRound compares all that n messages and the Send left.
func requireRound(b *testing.B, sent, arrived []byte, n int) {
	b.Helper()
	for i := max(0, n-slots); i < n; i++ {
		requireSame(b, sent[from(i)*message:][:message], arrived[i%slots*message:][:message])
	}
	requireSame(b, sent[slots*message:], arrived[slots*message:])
}
