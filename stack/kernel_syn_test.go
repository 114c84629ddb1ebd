package stack

import (
	"sync"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// synTap keeps the options of every SYN that goes through a queue.
type synTap struct {
	pmd.Queue
	pool    *mem.Pool
	mu      sync.Mutex
	in, out [][]byte
}

func (q *synTap) Rx(bufs []mem.Buf) int {
	n := q.Queue.Rx(bufs)
	q.keep(bufs[:n], &q.in)
	return n
}

func (q *synTap) Tx(bufs []mem.Buf) int {
	q.keep(bufs, &q.out)
	return q.Queue.Tx(bufs)
}

func (q *synTap) keep(bufs []mem.Buf, to *[][]byte) {
	for _, b := range bufs {
		f := q.pool.Data(b)
		if s, _, ok := segmentOf(f); ok && s.Flags&(tcp.SYN|tcp.ACK) == tcp.SYN {
			q.mu.Lock()
			*to = append(*to, append([]byte(nil), f[tcpAt+tcp.HeaderLenMin:tcpAt+s.HdrLen]...))
			q.mu.Unlock()
		}
	}
}

// kinds are the option kinds in order, NOPs too.
func kinds(t *testing.T, options []byte) (k []byte) {
	for b := options; len(b) > 0; {
		k = append(k, b[0])
		if b[0] <= 1 {
			b = b[1:]
			continue
		}
		require.GreaterOrEqual(t, len(b), int(b[1]), "% x", options)
		b = b[b[1]:]
	}
	return k
}

// Our SYN's options stand in the order of the kernel's: what every middlebox has seen.
func TestSynOptionsStandAsTheKernels(t *testing.T) {
	var q *synTap
	k := tunedKernelLab(t, func(cfg *Config, _ string) {
		q = &synTap{Queue: cfg.Queue, pool: cfg.Pool}
		cfg.Queue = q
	})
	theirs := newMirror(t, 0)
	k.do(func() { require.NoError(t, k.Listen(7, 4, func(*Conn) Upper { return theirs })) })
	dialUs(t, ourAddr.Addr())
	k.dials(listenThere(t, kernelAddr.Addr()), newMirror(t, 0))
	q.mu.Lock()
	defer q.mu.Unlock()
	require.NotEmpty(t, q.in)
	require.NotEmpty(t, q.out)
	require.Equal(t, kinds(t, q.in[0]), kinds(t, q.out[0]), "kernel % x, ours % x", q.in[0], q.out[0])
	require.Len(t, q.out[0], len(q.in[0]))
}

// The kernel connects while the backlog is full of those that never answer: its last ACK brings the
// cookie back.
func TestKernelConnectsByCookie(t *testing.T) {
	k := newKernelLab(t)
	m := newMirror(t, kernelOctets)
	k.do(func() {
		require.NoError(t, k.Listen(7, 2, func(*Conn) Upper { return m }))
		for i := range 2 {
			syn := tcp.Segment{Flags: tcp.SYN}
			id := tcp.ID{Local: inet.AddrFrom(ourAddr.Addr()), Remote: inet.AddrFrom4([4]byte{10, 77, 0, 9}),
				LocalPort: 7, RemotePort: uint16(i)}
			half := tcp.NewHalf(1, 1, &syn)
			k.syns.add(k.ports.listeners[7], &id, &half, inet.MAC{2, 9, 9, 9, 9, 9})
		}
	})
	k.exchange(dialUs(t, ourAddr.Addr()), kernelOctets)
	k.wait(m.ended)
	require.NoError(t, m.err)
	require.Equal(t, uint64(kernelOctets), m.edge)
	k.do(func() {
		var n Counters
		k.Snapshot(&n)
		require.Equal(t, uint64(1), n.CookiesSent)
		require.Equal(t, uint64(1), n.CookiesGood)
		require.Equal(t, 2, n.HalfOpen)
	})
}
