package inet

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMACString(t *testing.T) {
	require.Equal(t, "02:00:5e:10:a0:f1", MAC{0x02, 0x00, 0x5e, 0x10, 0xa0, 0xf1}.String())
	require.Equal(t, "ff:ff:ff:ff:ff:ff", Broadcast.String())
	require.True(t, Broadcast.IsGroup())
	require.True(t, mac(t, "01:00:5e:00:00:01").IsGroup())
	require.False(t, mac(t, "02:00:5e:00:00:01").IsGroup())
	require.True(t, MAC{}.IsZero())
	require.False(t, mac(t, "00:00:00:00:00:01").IsZero())
}

// Neither end of an IPv4 network is a host's, unless the network has no ends.
func TestCheckStation(t *testing.T) {
	for text, want := range map[string]string{
		"10.9.0.1/24": "", "10.9.0.0/31": "", "10.9.0.255/31": "", "10.9.0.0/32": "",
		"10.9.0.254/24": "", "10.9.3.0/22": "", "fd09::/64": "", "fd09::1/64": "",
		"10.9.0.0/24": "first and the last", "10.9.0.255/24": "first and the last",
		"10.9.3.255/22": "first and the last", "224.0.0.1/4": "unicast", "127.0.0.1/8": "unicast",
		"255.255.255.255/32": "unicast", "::ffff:10.9.0.1/120": "unicast", "ff02::1/64": "unicast",
	} {
		err := CheckStation(netip.MustParsePrefix(text))
		if want == "" {
			require.NoError(t, err, text)
		} else {
			require.ErrorContains(t, err, want, text)
		}
	}
	require.ErrorContains(t, CheckStation(netip.Prefix{}), "unicast")
}

func TestAddrProperties(t *testing.T) {
	type is struct{ v4, unspecified, multicast, broadcast, loopback, station bool }
	for s, want := range map[string]is{
		"10.9.1.10":       {v4: true, station: true},
		"0.0.0.0":         {v4: true, unspecified: true},
		"0.0.0.1":         {v4: true, station: true},
		"223.255.255.255": {v4: true, station: true},
		"224.0.0.0":       {v4: true, multicast: true},
		"239.255.255.255": {v4: true, multicast: true},
		"240.0.0.1":       {v4: true, station: true},
		"255.255.255.254": {v4: true, station: true},
		"255.255.255.255": {v4: true, broadcast: true},
		"127.0.0.1":       {v4: true, loopback: true},
		"127.255.0.9":     {v4: true, loopback: true},
		"128.0.0.1":       {v4: true, station: true},
		"::":              {unspecified: true},
		"::1":             {loopback: true},
		"::2":             {station: true},
		"::10.9.1.10":     {station: true},
		"fe80::1":         {station: true},
		"2001:db8::ffff":  {station: true},
		"ff02::1":         {multicast: true},
		"feff::1":         {station: true},
	} {
		p := netip.MustParseAddr(s)
		a := AddrFrom(p)
		got := is{a.Is4(), a.IsUnspecified(), a.IsMulticast(), a.IsBroadcast(), a.IsLoopback(),
			a.IsStation()}
		require.Equal(t, want, got, s)
		require.Equal(t, p, a.Netip(), s)
		require.Equal(t, p.String(), a.String(), s)
		// netip is the oracle for what it knows.
		require.Equal(t, p.IsMulticast(), a.IsMulticast(), s)
		require.Equal(t, p.IsLoopback(), a.IsLoopback(), s)
		require.Equal(t, p.IsUnspecified(), a.IsUnspecified(), s)
	}
}

func TestAddrFrom(t *testing.T) {
	v4 := netip.MustParseAddr("10.9.1.10")
	require.Equal(t, AddrFrom(v4), AddrFrom4(v4.As4()))
	require.Equal(t, AddrFrom(v4), AddrFrom(netip.AddrFrom16(v4.As16())),
		"v4 and v4-mapped are one address")
	require.Equal(t, v4.As4(), AddrFrom(v4).As4())
	require.Equal(t, Addr{}, AddrFrom(netip.Addr{}))
	require.False(t, Addr{}.Is4())
	require.Equal(t, AddrFrom(netip.MustParseAddr("fe80::1")),
		AddrFrom(netip.MustParseAddr("fe80::1%eth0")), "zone is lost")
	require.Panics(t, func() { Addr{}.As4() })
	require.Panics(t, func() { AddrFrom(netip.MustParseAddr("fe80::1")).As4() })
}
