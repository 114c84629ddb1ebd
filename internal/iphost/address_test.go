package iphost

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// The way decides with which address we speak: family, scope, prefix.
// req: 9293-MUST-44
func TestSource(t *testing.T) {
	s := newStation(t, func(cfg *Config) {
		unchecked(cfg)
		cfg.Addrs = prefixes("10.0.0.1/24", "fd00::1/64", "10.5.0.7/16", "fd05::7/32")
		for prefix, by := range map[string]string{
			"0.0.0.0/0": "10.0.0.9", "192.168.0.0/16": "10.5.0.9", "::/0": "fd05::9",
		} {
			cfg.Routes = append(cfg.Routes, inet.Route{
				Prefix: netip.MustParsePrefix(prefix), Gateway: netip.MustParseAddr(by),
			})
		}
	})
	for remote, want := range map[string]string{
		"10.0.0.2": "10.0.0.1", "10.5.1.2": "10.5.0.7", "192.168.1.1": "10.5.0.7",
		"8.8.8.8": "10.0.0.1", "fd00::2": "fd00::1", "fd05:0:1::2": "fd05::7",
		"2001:db8::1": "fd05::7", "fe80::99": "fe80::ff:fe00:2",
	} {
		hop, ok := s.Route(s.now, addr(remote))
		require.True(t, ok)
		got, ok := s.Source(addr(remote), hop)
		require.True(t, ok)
		require.Equal(t, want, got.String(), remote)
	}
	tentative := newStation(t, nil)
	_, ok := tentative.Source(other, other)
	require.False(t, ok, "it is not used yet")
}

// What cannot be one other host.
// req: 1122-3.2.1.3-1
func TestPossible(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); cfg.Addrs[0] = prefixes("10.0.0.2/24")[0] })
	for a, want := range map[string]bool{
		"10.0.0.9": true, "10.0.1.255": true, "fd00::9": true, "10.0.0.255": false, "0.0.0.9": false,
		"224.0.0.1": false, "255.255.255.255": false, "127.0.0.1": false, "ff02::1": false, "::": false,
	} {
		x := addr(a)
		require.Equal(t, want, s.Possible(&x), a)
	}
}

// The first address of IPv6 brings a link-local one, the first after all were removed, too, and
// routers are asked again; each takes its route along.
func TestFirstIPv6AddrAgain(t *testing.T) {
	s := newStation(t, func(cfg *Config) { unchecked(cfg); cfg.Discover = true })
	room := s.routes.Room()
	for range 2 {
		s.forget()
		require.NoError(t, s.Add(s.now, prefixes("fd00::7/64")[0]))
		require.Equal(t, inet.LinkLocal(ourMAC), s.Addrs()[2].Addr)
		require.True(t, s.HasIPv6())
		s.pass(20 * second)
		asked := 0
		for _, w := range s.words {
			if w.what == "rs" {
				asked++
			}
		}
		require.Equal(t, rsMax, asked)
		s.Remove(s.now, addr("fd00::7"))
		s.Remove(s.now, inet.LinkLocal(ourMAC))
		require.False(t, s.HasIPv6())
		require.Equal(t, room, s.routes.Room())
	}
}
