package stack

import (
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/stretchr/testify/require"
)

// A neighbour that knew another MAC for the address sends to the new one as soon as it is
// announced; without that, to the old.
func TestNeighboursLearnFromAnnouncements(t *testing.T) {
	for _, silent := range []bool{false, true} {
		for _, six := range []bool{false, true} {
			l := newLab(t, sixes)
			to := addrPort(l.b, 7)
			if six {
				to = netip.AddrPortFrom(addr6(1), 7)
			}
			u := l.dialAt(l.a, to)
			l.until("refused", func() bool { return u.closed == 1 })

			l.b.Stop()
			l.turns()
			cfg := l.b.cfg
			cfg.MAC, cfg.NoAnnounce = inet.MAC{2, 0, 0, 0, 0, 0xbb}, silent
			p := must(New(cfg))(t)
			l.b.Poller = p
			l.pass(100 * ms)
			l.dialAt(l.a, to)
			var syn inet.MAC
			l.a.nic.onSend = func(f []byte) { syn = inet.MAC(f[:6]) }
			l.a.Turn()
			require.Equal(t, silent, syn != cfg.MAC)
			l.a.nic.onSend = nil
			l.stop()
		}
	}
}
