package stack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/stretchr/testify/require"
)

// Of a Group one member speaks, and all hear: an address is another's for all of them, or ours.
func TestGroupClaimsOnce(t *testing.T) {
	for _, claim := range []bool{false, true} {
		l := groupLabTuned(t, 3, func(cfg *Config) { cfg.NoDAD, cfg.NoAnnounce = false, false })
		all := l.listenTo(l.hosts[1:]...)
		l.until("asked", func() bool { return all["10.0.0.2"] == " probe" })
		if claim {
			l.a.nic.inject(arpFrame(inet.AnnounceARP(rivalMAC, theirs)))
		}
		l.pass(20 * second)
		want, state := " probe probe probe announce announce", AddrUsable
		if claim {
			want, state = " probe", AddrDuplicate
		}
		require.Equal(t, map[string]string{"10.0.0.2": want}, all)
		for _, h := range l.hosts[1:] {
			require.Equal(t, state, h.status("10.0.0.2").State)
		}
		for range 5 { // which each come to any of them
			l.a.nic.inject(arpFrame(inet.AnnounceARP(rivalMAC, theirs)))
			l.pass(second)
		}
		require.Equal(t, want+map[bool]string{false: " announce"}[claim], all["10.0.0.2"])
		l.stop()
	}
}

// Whichever member of a Group hears a claim on an address in use, the one that speaks answers it,
// for both families.
func TestGroupDefends(t *testing.T) {
	l := groupLabTuned(t, 3, func(cfg *Config) {
		cfg.Addrs = []netip.Prefix{netip.PrefixFrom(addr6(1), 64)}
	})
	m := unhex(t, fmt.Sprintf("88 00 0000 20000000 %x 0201 %x", addr6(1).As16(), [6]byte(rivalMAC)))
	claims := map[string][]byte{
		"10.0.0.2": arpFrame(inet.AnnounceARP(rivalMAC, theirs)),
		"fd00::2":  icmp6(rivalMAC, inet.AllNodes.GroupMAC(), addr6(1), inet.AllNodes.Netip(), 255, m),
	}
	defended := uint64(0)
	for addr, claim := range claims {
		all := l.listenTo(l.hosts[1:]...)
		for i := range 8 { // which each come to any of them
			l.a.nic.inject(claim)
			l.pass(11 * second)
			require.Equal(t, strings.Repeat(" announce", i+1), all[addr], addr)
		}
		defended += 8
		for i, h := range l.hosts[1:] { // it is counted where it was sent
			n := h.counters()
			want := map[bool]uint64{true: defended}[i == 0]
			require.Equal(t, []uint64{defended, want, want},
				[]uint64{n.AddrConflicts, n.AddrDefended, n.Announcements}, addr)
		}
	}
}
