package memif

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
)

const benchBurst = 32

// benchSide is one end of any port.
type benchSide struct {
	pool *mem.Pool
	q    pmd.Queue
}

func benchPool(b *testing.B, size int, memfd bool) (*hugepages.Arena, *mem.Pool) {
	cfg := mem.PoolConfig{Bufs: 2048, Stride: (mem.Headroom + size + 64 + 63) &^ 63}
	a, err := hugepages.New(hugepages.Config{Bytes: int64(cfg.Bytes()) + 4096, Node: hugepages.AnyNode,
		Memfd: memfd})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, a.Close()) })
	p := must(mem.NewPool(a, cfg))(b)
	return a, p
}

// benchPorts are a client, first, and a server, or both ends of a wire.
func benchPorts(b *testing.B, kind string, size int) (s [2]benchSide) {
	mtu := max(size-pmd.EthernetLen, 1500)
	a, clientPool := benchPool(b, mtu+22, kind == "zero")
	_, serverPool := benchPool(b, mtu+22, false)
	s[0].pool, s[1].pool = clientPool, serverPool
	var ports [2]pmd.Port
	if kind == "wire" {
		link := must(wire.New(wire.Config{MTU: mtu}))(b)
		ports = [2]pmd.Port{link.Port(0), link.Port(1)}
	} else {
		l := must(Listen(ListenConfig{Socket: socketPath(b)}))(b)
		b.Cleanup(func() { require.NoError(b, l.Close()) })
		server := must(l.Bind(BindConfig{MTU: mtu}))(b)
		cfg := Config{Socket: l.cfg.Socket, MTU: mtu}
		if kind == "zero" {
			cfg.Arena = a
		}
		client := must(Dial(cfg))(b)
		require.NoError(b, client.AwaitLink(within(b), true))
		ports = [2]pmd.Port{client, server}
	}
	for i, p := range ports {
		b.Cleanup(func() { require.NoError(b, p.Close()) })
		s[i].q = must(p.Open(0, s[i].pool))(b)
		require.Zero(b, s[i].q.Rx(make([]mem.Buf, 1)))
	}
	return s
}

// Both ends on one core, a burst there after a burst here. One op is one frame sent and received.
// wire is the package of that name; up is from client to server.
func BenchmarkOneCore(b *testing.B) {
	for _, size := range []int{64, 1514, 9014} {
		for _, way := range []struct {
			name, kind string
			from       int
		}{{"wire", "wire", 0}, {"copy/up", "copy", 0}, {"copy/down", "copy", 1}, {"zero/up", "zero", 0},
			{"zero/down", "zero", 1}} {
			b.Run(fmt.Sprintf("%d/%s", size, way.name), func(b *testing.B) {
				s := benchPorts(b, way.kind, size)
				from, to := s[way.from], s[1-way.from]
				var out []mem.Buf
				for range benchBurst {
					buf := from.pool.Alloc()
					from.pool.Desc(buf).Len = uint32(size)
					copy(from.pool.Data(buf), bytes.Repeat([]byte{2, 7}, size/2))
					out = append(out, buf)
				}
				in := make([]mem.Buf, benchBurst)
				b.SetBytes(int64(size))
				b.ReportAllocs()
				b.ResetTimer()
				sent, got := 0, 0
				for ; sent < b.N; sent += benchBurst {
					from.q.Tx(out)
					n := to.q.Rx(in)
					to.pool.FreeN(in[:n])
					got += n
				}
				b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "frames/s")
				b.StopTimer()
				require.Equal(b, sent, got)
				from.q.Tx(out[:1])
				require.Equal(b, 1, to.q.Rx(in[:1]))
				require.True(b, bytes.Equal(from.pool.Data(out[0]), to.pool.Data(in[0])),
					"the octets of a frame")
			})
		}
	}
}
