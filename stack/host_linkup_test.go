package stack

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// When the link comes up, addresses are probed while they are used, and announced then; connections
// notice nothing.
// req: 5227-2.1-3
func TestLinkUp(t *testing.T) {
	l := newLab(t, func(i int, cfg *Config) {
		sixes(i, cfg)
		claiming(i, cfg)
	})
	l.pass(20 * second)
	u, v := l.open()
	l.pass(second)
	all := l.listenTo(l.b)
	require.NoError(t, l.b.LinkUp())
	l.b.Turn()
	for i := range uint64(8) {
		u.send(1000)
		l.until("there", func() bool { return v.edge == 1000*(i+1) })
		l.pass(second)
	}
	l.pass(20 * second)
	words, at := of(*all, "10.0.0.2")
	require.Equal(t, strings.Fields("probe probe probe announce announce"), words)
	require.GreaterOrEqual(t, at[3], 4*second)
	words, _ = of(*all, "fd00::2")
	require.Equal(t, strings.Fields("probe announce announce announce"), words)
	require.Zero(t, l.b.counters().AddrDuplicate)
	l.b.nic.onSend = nil
	l.stop()
}

// A link that comes and goes is not answered each time.
func TestLinkUpsAreLimited(t *testing.T) {
	l := newLab(t, announcing)
	l.pass(20 * second)
	all := l.listenTo(l.b)
	for range 1000 {
		require.NoError(t, l.b.LinkUp())
		l.b.Turn()
		l.pass(10 * ms)
	}
	l.pass(60 * second)
	require.LessOrEqual(t, len(*all), 8, "ten seconds of it, two apart, and the last one")
	require.GreaterOrEqual(t, len(*all), 5)
	for i := 1; i < len(*all); i++ {
		require.GreaterOrEqual(t, (*all)[i].at-(*all)[i-1].at, 2*second)
	}
	n := l.b.counters()
	require.Equal(t, uint64(1000), n.LinkUps)
	require.Greater(t, n.Own[DropAnnounceLimited], uint64(900))
	require.Less(t, n.Own[DropAnnounceLimited], uint64(1000))
	l.b.nic.onSend = nil
	l.stop()
}

// An address that is found to be another's when the link comes up is given up, or, where a
// connection needs it, defended.
// req: 5227-2.1-3, 5227-2.4-1
func TestConflictAfterLinkUp(t *testing.T) {
	for _, used := range []bool{false, true} {
		l := newLab(t, claiming)
		l.pass(20 * second)
		var u, v *peer
		if used {
			u, v = l.open()
		}
		all := l.listenTo(l.b)
		require.NoError(t, l.b.LinkUp())
		l.until("asked", func() bool { return len(*all) == 1 })
		for range 3 {
			l.a.nic.inject(
				arpFrame(inet.ARP{Op: inet.ARPReply, SenderMAC: rivalMAC, SenderIP: theirs, TargetMAC: l.b.mac,
					TargetIP: nobodys}))
			l.b.Turn()
		}
		l.pass(30 * second)
		words, _ := of(*all, "10.0.0.2")
		l.b.nic.onSend = nil
		if !used {
			require.Equal(t, []string{"probe"}, words)
			require.Equal(t, AddrDuplicate, l.b.status("10.0.0.2").State)
			l.stop()
			continue
		}
		require.Equal(t, []string{"probe", "announce"}, words)
		require.Equal(t, AddrUsable, l.b.status("10.0.0.2").State)
		u.send(1000)
		l.until("there", func() bool { return v.edge == 1000 })
		l.stop()
	}
}

// A LinkUp while an address is checked for the first time begins the check again: what was asked
// before may have been lost.
func TestLinkUpWhileProbing(t *testing.T) {
	l := newLab(t, claiming)
	all := l.listenTo(l.b)
	l.until("asked", func() bool { return len(*all) == 2 })
	require.NoError(t, l.b.LinkUp())
	l.pass(20 * second)
	words, _ := of(*all, "10.0.0.2")
	require.Equal(t, strings.Fields("probe probe probe probe probe announce announce"), words)
	l.b.nic.onSend = nil
	l.stop()
}
