package stack

import (
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

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
