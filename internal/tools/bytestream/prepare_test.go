package bytestream

import (
	"context"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/internal/tools/iperf3"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/stream"
)

// What an iperf3 client asks of connections holds for our own streams: -w, -S, -C, within bounds.
func TestPrepareOurStreams(t *testing.T) {
	link, err := wire.New(wire.Config{})
	require.NoError(t, err)
	var hosts [2]*stack.Poller
	for i := range hosts {
		hosts[i] = testhost.NewPoller(t, link.Port(i), stack.Config{
			Pool: testhost.NewPool(t, 4096, 1500),
			Addr: netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), 24),
		})
	}
	testhost.Run(t, hosts[:]...)
	ctx, cancel := context.WithTimeout(context.Background(), netlab.Patience)
	defer cancel()
	l, err := stream.Listen(hosts[1:], 80, stream.Options{})
	require.NoError(t, err)
	c, err := stream.Dial(ctx, hosts[:1], netip.MustParseAddrPort("10.0.0.2:80"), stream.Options{})
	require.NoError(t, err)
	s, err := l.AcceptStream()
	require.NoError(t, err)
	for _, x := range []*stream.Conn{c, s} {
		require.NoError(t, x.SetDeadline(time.Now().Add(netlab.Patience)))
		defer x.Close()
		defer func() { _ = x.SetLinger(0) }()
	}

	require.NoError(t, Ours{}.Prepare(s, iperf3.Params{Window: 200_000, TOS: 184, Congestion: "reno"}))
	window := func(n int) {
		t.Helper()
		for {
			i, err := s.Info(ctx)
			require.NoError(t, err)
			if i.TCP.RcvWnd == n && i.Congestion == "reno" {
				return
			}
		}
	}
	window(200_000)
	require.NoError(t, Ours{}.Prepare(s, iperf3.Params{Window: 1 << 30}))
	peer, err := c.Info(ctx)
	require.NoError(t, err)
	const segment = 1460               // one more waits for its first transmission: tcp.Conn.Room
	taken := peer.TCP.RcvWnd + segment // at most, by a peer that does not read
	n, err := s.TryWrite(make([]byte, windowMost+taken+1))
	require.NoError(t, err)
	require.LessOrEqual(t, n, windowMost+taken, "no peer makes us hoard")
	require.Error(t, Ours{}.Prepare(s, iperf3.Params{Congestion: "nosuch"}))
	require.Error(t, Ours{}.Prepare(nil, iperf3.Params{}))
}

// And for the kernel's sockets, of either family.
func TestPrepareKernelSockets(t *testing.T) {
	for _, at := range []struct {
		addr       string
		level, opt int
	}{{"127.0.0.1:0", unix.IPPROTO_IP, unix.IP_TOS},
		{"[::1]:0", unix.IPPROTO_IPV6, unix.IPV6_TCLASS}} {
		l, err := net.Listen("tcp", at.addr)
		if err != nil {
			skip.Missing(t, "no %s here: %v", at.addr, err)
		}
		defer l.Close()
		c, err := net.DialTimeout("tcp", l.Addr().String(), netlab.Patience)
		require.NoError(t, err)
		defer c.Close()
		require.NoError(t, Kernel{}.Prepare(c, iperf3.Params{TOS: 184}))
		require.NoError(t, onSocket(c.(*net.TCPConn), func(fd int) error {
			tos, err := unix.GetsockoptInt(fd, at.level, at.opt)
			require.Equal(t, 184, tos)
			return err
		}))
	}
}
