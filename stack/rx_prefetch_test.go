package stack

import (
	"testing"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// With as many connections as it takes for bursts to be looked at beforehand: nothing is different,
// whatever the frames.
func TestPreviewDecidesNothing(t *testing.T) {
	const conns = prefetchMin + 20
	l := newLab(t, func(i int, cfg *Config) { cfg.ConnsMax = conns })
	l.listen(l.b, 7, conns)
	var us []*peer
	for range conns {
		us = append(us, l.dial(l.a, l.b, 7, 2000))
		l.turns()
	}
	l.until("all", func() bool {
		for _, v := range l.accepted {
			if v.edge < 2000 {
				return false
			}
		}
		return len(l.accepted) == conns
	})
	var frame []byte
	l.a.nic.onSend = func(f []byte) { frame = append([]byte(nil), f...) }
	us[0].send(10)
	l.turns()
	l.a.nic.onSend = nil
	before := l.b.counters()
	for n := 14; n <= len(frame); n++ { // every truncation, and other things than TCP over IPv4
		l.a.nic.inject(frame[:n])
		l.b.Turn()
	}
	for _, at := range []int{12, 14, 23} {
		odd := append([]byte(nil), frame...)
		odd[at] ^= 0x11
		l.a.nic.inject(odd)
		l.b.Turn()
	}
	after := l.b.counters()
	require.Equal(t, after.RxFrames-before.RxFrames, uint64(len(frame)-14+1+3))
	require.Equal(t, uint64(1), after.TCP[tcp.DropDuplicate]-before.TCP[tcp.DropDuplicate], "the whole frame is a duplicate, the others are nothing")
	l.stop()
}

// BenchmarkPreview is what looking beforehand costs when everything is in the cache.
func BenchmarkPreview(b *testing.B) {
	l := newLab(b, func(i int, cfg *Config) { cfg.ConnsMax = 1024 })
	l.listen(l.b, 7, 1024)
	for range prefetchMin {
		l.dial(l.a, l.b, 7)
		l.turns()
	}
	burst := make([]mem.Buf, 32)
	for i := range burst {
		burst[i] = l.b.pool.Alloc()
		f := between(l.a, l.b, unknownPeer, nil)
		l.b.pool.Desc(burst[i]).Len = uint32(len(f))
		copy(l.b.pool.Data(burst[i]), f)
	}
	b.ReportAllocs()
	for b.Loop() {
		l.b.prefetchBurst(burst)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*len(burst)), "ns/frame")
}
