package stack

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/stretchr/testify/require"
)

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
