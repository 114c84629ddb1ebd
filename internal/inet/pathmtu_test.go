package inet

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const minute = 60 * scriptSecond

// What a report leads to: the plateaus for routers that say 0, a floor, and nothing for what IPv6
// forbids.
// req: 1191-3-3, 1191-3-2
func TestBelieved(t *testing.T) {
	for _, c := range []struct {
		mtu   uint32
		total int
		want  int
	}{
		{1400, 1500, 1400}, {1, 1500, 552}, {68, 1500, 552}, {551, 1500, 552}, {9000, 1500, 9000},
		{0, 65535, 32000}, {0, 32000, 17914}, {0, 9000, 8166}, {0, 8166, 4352}, {0, 4352, 2002},
		{0, 1500, 1492},
		{0, 1492, 1006}, {0, 1006, 552}, {0, 552, 552}, {0, 28, 552},
	} {
		e := ICMPError{Type: ICMPUnreachable, Code: ICMPFragNeeded, MTU: c.mtu, TotalLen: c.total,
			Src: ip4(10, 0, 0, 1)}
		require.Equal(t, c.want, e.Believed(), "%+v", c)
		e.Code = 3
		require.Zero(t, e.Believed())
	}
	for mtu, want := range map[uint32]int{0: 0, 68: 0, 1279: 0, 1280: 1280, 1400: 1400, 1 << 20: 0} {
		e := ICMPError{Type: ICMP6TooBig, MTU: mtu, TotalLen: 1500, Src: six1}
		require.Equal(t, want, e.Believed(), mtu)
	}
}

// Lowered, never raised, forgotten after ten minutes; bounded, the oldest giving way.
// req: 1191-3-2, 1191-3-4, 8899-3-1
func TestPathMTU(t *testing.T) {
	c := NewPathMTU(PathMTUConfig{})
	a, b := ip4(10, 0, 0, 1), six1
	require.Equal(t, 1500, c.Get(a, 1500))
	require.True(t, c.Lower(0, a, 1400, 1500))
	require.Equal(t, 1400, c.Get(a, 1500))
	require.Equal(t, 1300, c.Get(a, 1300), "never above the link's")
	require.Equal(t, 1500, c.Get(b, 1500))
	require.False(t, c.Lower(1, a, 1400, 1500))
	require.False(t, c.Lower(1, a, 1450, 1500), "never raised by a report")
	require.False(t, c.Lower(1, b, 1500, 1500))
	require.True(t, c.Lower(5*minute, a, 1300, 1500))
	_, ok := c.Expire(15*minute - 1)
	require.False(t, ok)
	require.Equal(t, int64(15*minute), c.Deadline())
	dst, ok := c.Expire(15 * minute)
	require.True(t, ok)
	require.Equal(t, a, dst)
	_, ok = c.Expire(15 * minute)
	require.False(t, ok)
	require.Equal(t, 1500, c.Get(a, 1500))
	require.Equal(t, int64(math.MaxInt64), c.Deadline())
	require.Panics(t, func() { NewPathMTU(PathMTUConfig{AgeNs: 4 * minute}) })
}

func TestPathMTUIsBounded(t *testing.T) {
	c := NewPathMTU(PathMTUConfig{EntriesMax: 16})
	for i := range 1000 {
		dst := ip4(10, 1, byte(i>>8), byte(i))
		require.True(t, c.Lower(int64(i), dst, 1000, 1500))
		require.Equal(t, 1000, c.Get(dst, 1500), "the newest is there")
	}
	require.LessOrEqual(t, c.n, 16)
	n := 0
	for {
		if _, ok := c.Expire(math.MaxInt64 - 1); !ok {
			break
		}
		n++
	}
	require.LessOrEqual(t, n, 16)
	require.Zero(t, c.n)
	dst := ip4(1, 2, 3, 4)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		c.Lower(0, dst, 1000, 1500)
		c.Get(dst, 1500)
		c.Expire(math.MaxInt64 - 1)
	}))
}

// However many estimates a peer has made, from however many addresses and at whatever times, they
// end for a walk over the table once a second at most.
func TestPathMTUsEndTogether(t *testing.T) {
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 1))
	for _, entries := range []int{256, 1024} {
		c := NewPathMTU(PathMTUConfig{EntriesMax: entries})
		now, ended, walks := int64(0), 0, 0
		for i := range 4 * entries {
			now += rng.Int64N(2_000_000_000) / int64(entries) // all within some four seconds
			c.Lower(now, Addr{0: 0x20, 14: byte(i >> 8), 15: byte(i)}, 1300, 1500)
		}
		held := c.n
		for c.Deadline() != math.MaxInt64 {
			require.Greater(t, c.Deadline(), now, "it would be due again at once")
			now = c.Deadline()
			walks++
			for _, ok := c.Expire(now); ok; _, ok = c.Expire(now) {
				ended++
			}
		}
		require.Equal(t, held, ended)
		require.Zero(t, c.n)
		require.LessOrEqual(t, walks, 6)
		require.LessOrEqual(t, c.looked, uint64(walks*entries))
	}
}
