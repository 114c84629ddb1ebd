package stack

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// What leaves in runs is, octet for octet, what leaves one by one, in the same Turns: with units
// that end in the middle, small and large windows, losses, a link that takes less than it is
// offered, few Bufs.
func TestRunsLeaveTheSameFrames(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	ran := 0
	for i := range uint64(20) {
		one, _ := framesOf(t, seed+i, nil)
		many, n := framesOf(t, seed+i, func(n int) int { return n })
		require.True(t, slices.EqualFunc(one, many, bytes.Equal), "seed %d: %d and %d frames", seed+i, len(one), len(many))
		ran += n
	}
	require.Greater(t, ran, 1000, "seed %d", seed)
}

// framesOf is what a's end of a connection puts on the link, as seed has it, and how many of them
// in runs.
func framesOf(t *testing.T, seed uint64, runs func(int) int) (frames [][]byte, ran int) {
	r := rand.New(rand.NewPCG(seed, 1))
	window, vlan, unit, loss, spare := 20_000+r.IntN(2_000_000), uint16(r.IntN(2)*5), uint64(1+r.IntN(60_000)), r.IntN(3), 10+r.IntN(300)
	l := offloaded(t, func(i int, cfg *Config) {
		cfg.TCP.ReceiveWindow, cfg.VLAN, cfg.Secret = window, vlan, [16]byte{byte(i + 1)}
		cfg.TCP.NoTimestamps = seed%2 == 0
		if seed%3 == 0 {
			cfg.BurstMax, cfg.PendingMax = 8, 24
		}
		if seed%5 == 0 {
			cfg.BufShare = 1
		}
	})
	l.runs = runs
	u, v := l.open()
	u.unit = unit
	var kept []mem.Buf
	if seed%4 == 3 { // few Bufs
		kept = make([]mem.Buf, max(0, l.a.pool.Available()-l.a.Reserve()-l.a.budget.Proven-spare))
		l.a.pool.AllocN(kept)
	}
	l.a.nic.lose = func(f []byte) bool {
		frames = append(frames, bytes.Clone(f))
		return r.IntN(100) < loss
	}
	for range 6 {
		l.a.nic.txMax = []int{-1, -1, -1, 3, 20}[r.IntN(5)]
		if r.IntN(3) == 0 {
			l.a.neighbours.Clear() // the next hop has to be asked for
		}
		u.send(r.IntN(300_000))
		l.until(fmt.Sprint("seed ", seed), func() bool { return v.edge == u.toSend })
	}
	l.a.nic.lose = nil
	l.a.pool.FreeN(kept)
	l.stop()
	return frames, u.ran
}

// A run is no longer than what its connection may send in this Turn. (That what the Upper does not
// fill comes back to the Pool is looked at when the lab stops.)
func TestRunsKeepToTheShareOfATurn(t *testing.T) {
	for _, share := range []int{2, 7, 40} {
		l := offloaded(t, func(i int, cfg *Config) { cfg.SegmentsMax, cfg.TCP.InitialWindow = share, 60 })
		l.runs = func(n int) int { return (n + 1) / 2 }
		u, _ := l.open()
		l.a.Turn()
		before := l.a.counters().Segments
		u.send(100 * 1448)
		l.a.Turn()
		require.EqualValues(t, share, l.a.counters().Segments-before)
		require.Equal(t, share > 2, u.ran > 0)
		l.stop()
	}
}
