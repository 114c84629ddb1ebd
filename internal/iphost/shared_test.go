package iphost

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// sharing are three Hosts that share 10.0.0.2, which is in use.
func sharing(t *testing.T) []*station {
	shared := NewShared(3)
	var all []*station
	for i := range 3 {
		all = append(all, newStation(t, func(cfg *Config) { cfg.Shared, cfg.Member = shared, i }))
	}
	for _, s := range all {
		s.pass(20 * second)
	}
	return all
}

// Of several Hosts the first one speaks, and all keep its times.
func TestOneSpeaksForAll(t *testing.T) {
	all := sharing(t)
	all[0].heardSay(t, "10.0.0.2", "probe probe probe announce announce")
	for _, s := range all[1:] {
		require.Empty(t, s.frames)
		require.Zero(t, s.Tentatives())
	}
}

// An address that one Host gives up all give up, also those that have not heard of the conflict.
// Where one of them has a connection, all keep it.
func TestSharersDecideTogether(t *testing.T) {
	for _, used := range []bool{false, true} {
		all := sharing(t)
		if used {
			require.NotNil(t, all[2].Use(all[2].now, &ours))
		}
		for _, s := range all {
			s.LinkUp(s.now)
			s.until(func() bool { return s.addrs[0].step == stepProbe })
			s.told = 0
		}
		all[1].hear(arp(inet.AnnounceARP(rivalMAC, ours)))
		require.Equal(t, !used, all[0].MustHeed())
		if !used {
			require.Equal(t, AddrChanged|AddrGivenUp, all[1].told)
			require.Nil(t, all[0].Use(all[0].now, &ours), "from that moment on")
		}
		for _, s := range all {
			s.turns()
			require.Equal(t, used, s.IsLocal(&ours))
			require.False(t, s.MustHeed())
			if !used {
				require.Equal(t, rivalMAC, s.state("10.0.0.2").Rival)
			}
		}
	}
}

// An address that is removed and added again is a new one for all, in whatever order they come to
// it.
func TestSharedAddrAgain(t *testing.T) {
	all := sharing(t)
	more := prefixes("10.0.0.7/24")[0]
	added := addr("10.0.0.7")
	first, others := all[0], all[1:]
	for range 2 * sharedMax {
		require.NoError(t, first.Add(first.now, more))
		first.conflict(first.now, first.Find(&added), rivalMAC)
		first.Remove(first.now, added)
		require.NoError(t, first.Add(first.now, more)) // once more, before the others began
		for _, s := range others {
			require.NoError(t, s.Add(s.now, more))
			s.Heed(s.now)
			require.Equal(t, Duplicate, s.state("10.0.0.7").State)
			s.Remove(s.now, added)
			require.NoError(t, s.Add(s.now, more))
			s.Heed(s.now)
			require.Equal(t, Tentative, s.state("10.0.0.7").State)
		}
		for _, s := range all {
			s.Remove(s.now, added)
		}
		require.Len(t, first.cfg.Shared.addrs, 1)
	}
	for range 2 * sharedMax { // the others are never told
		require.NoError(t, first.Add(first.now, more))
		first.Remove(first.now, added)
	}
	require.LessOrEqual(t, len(first.cfg.Shared.addrs), sharedMax)
}

// Of a connection that begins and a Host that gives the address up one wins.
func TestUseOrGiveUp(t *testing.T) {
	for range 2000 {
		var a SharedAddr
		var used, gone bool
		var both sync.WaitGroup
		both.Go(func() { used = a.use() })
		both.Go(func() { gone = a.giveUp(rivalMAC) })
		both.Wait()
		require.NotEqual(t, used, gone)
		require.Equal(t, gone, a.isGone())
		if gone {
			require.Equal(t, rivalMAC, macOf(a.rival.Load()))
		}
	}
}
