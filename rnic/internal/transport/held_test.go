package transport

import (
	"net"
	"net/netip"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

// A held port is the holder's until Close: others get EADDRINUSE, sharers only beside sharers.
func TestHoldSocket(t *testing.T) {
	for _, at := range []string{"127.0.0.1:0", "[::1]:0"} {
		own := netip.MustParseAddrPort(at)
		s, port, err := HoldSocket(own, false, false)
		require.NoError(t, err)
		defer s.Close()
		require.NotZero(t, port)
		own = netip.AddrPortFrom(own.Addr(), port)
		for _, shared := range []bool{false, true} {
			_, _, err = HoldSocket(own, false, shared)
			require.ErrorIs(t, err, syscall.EADDRINUSE)
		}
		require.NoError(t, s.Share())
		// bound without, then with SO_REUSEADDR: a sharer is no bar
		_, _, err = HoldSocket(own, false, false)
		require.NoError(t, err)
		s.Close()
		s.Close()
		require.NoError(t, s.Share(), "closed: nothing to share")
	}
}

// Sharers hold one port together; a listener and a dialler of the holder's may use it.
func TestHoldSocketShared(t *testing.T) {
	any4 := netip.MustParseAddrPort("127.0.0.1:0")
	a, port, err := HoldSocket(any4, false, true)
	require.NoError(t, err)
	defer a.Close()
	at := netip.AddrPortFrom(any4.Addr(), port)
	b, same, err := HoldSocket(at, false, true)
	require.NoError(t, err)
	defer b.Close()
	require.Equal(t, port, same)

	l, err := net.Listen("tcp4", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	d := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(at)}
	_, err = d.DialContext(t.Context(), "tcp4", l.Addr().String())
	require.ErrorIs(t, err, syscall.EADDRINUSE)
	d.Control = ReuseAddr
	nc := must(d.DialContext(t.Context(), "tcp4", l.Addr().String()))(t)
	defer nc.Close()
	require.Equal(t, at, AddrPort(nc.LocalAddr()))
}

// :: is the host's IPv4 too, except with v6Only.
func TestHoldSocketBothFamilies(t *testing.T) {
	for _, v6Only := range []bool{false, true} {
		s, port, err := HoldSocket(netip.AddrPort{}, v6Only, false)
		require.NoError(t, err)
		four, _, err := HoldSocket(netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port),
			false, false)
		s.Close()
		if v6Only {
			require.NoError(t, err)
			four.Close()
		} else {
			require.ErrorIs(t, err, syscall.EADDRINUSE)
		}
	}
}

// The kernel's route says from which address.
func TestSourceFor(t *testing.T) {
	for _, a := range []string{"127.0.0.1", "::1"} {
		src := must(SourceFor(netip.MustParseAddr(a)))(t)
		require.Equal(t, a, src.String())
	}
	_, err := SourceFor(netip.MustParseAddr("fe80::1")) // of no link
	require.Error(t, err)
	require.Equal(t, netip.AddrPort{}, AddrPort(&net.UDPAddr{IP: net.IPv4(1, 2, 3, 4), Port: 5}))
}
