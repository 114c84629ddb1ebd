package stream

import (
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/stack"
)

// loseFirst has the first segment with octets of c, which host 0 sends, lost until the call of
// mend.
func (v *virtual) loseFirst(c *Conn) (mend func()) {
	nic, port := v.hosts[0].nic, uint16(c.LocalAddr().(*net.TCPAddr).Port)
	before, first, mended := nic.lose, uint32(0), false
	nic.lose = func(f sentFrame) bool {
		if before != nil && before(f) {
			return true
		}
		if mended || f.size == 0 || f.seg.SrcPort != port {
			return false
		}
		if first == 0 {
			first = uint32(f.seg.Seq)
		}
		return uint32(f.seg.Seq) == first
	}
	return func() { mended = true }
}

// A peer that leaves a gap, and makes us keep what is after it, is not ended while there are Bufs,
// nor while its own octets alone are refused. It is ended when those of another connection are, if
// it has had its time: the user timeout, for the other gets on without.
func TestGapIsEndedWhenOthersWantBufs(t *testing.T) {
	const giveUp = 30 * time.Second
	v := newVirtual(t, 1500, func(i int, cfg *stack.Config) {
		if i == 1 { // host 0 would end its connections itself
			cfg.TCP.UserTimeoutNs = int64(giveUp)
		}
	})
	ps := pollerStateOf(v.hosts[1].Poller)
	ps.shorten(16)
	a, b := v.pair(Options{}, Options{})
	c, d := v.pair(Options{}, Options{})
	v.loseFirst(a)
	v.write(a, strings.Repeat("x", 40_000))
	v.pass(20 * time.Second)
	require.Equal(t, ps.budget.OutOfOrder, ps.kept)
	require.Positive(t, CountersOf(v.hosts[1].Poller).RefusedPool)
	require.Zero(t, b.u.state.Load()&stateDead, "nobody else wants Bufs")

	e, f := v.pair(Options{}, Options{})
	mend := v.loseFirst(e)
	v.write(e, strings.Repeat("z", 10_000))
	v.pass(5 * time.Second)
	require.Zero(t, b.u.state.Load()&stateDead, "its time is not over")
	mend()
	v.until("all octets", func() bool { return f.Unread() == 10_000 })

	v.pass(5 * time.Second)
	mend = v.loseFirst(c)
	v.write(c, strings.Repeat("y", 10_000))
	v.until("the other is ended", func() bool { return b.u.state.Load()&stateDead != 0 })
	require.ErrorIs(t, errOf(b.TryRead(make([]byte, 1))), syscall.ETIMEDOUT)
	require.Zero(t, d.u.state.Load()&stateDead, "it has had no time yet")
	mend()
	v.until("all octets", func() bool { return d.Unread() == 10_000 })
}

// What a slow reader leaves in Bufs is not its peer's fault.
func TestSlowReaderIsNotLate(t *testing.T) {
	v := newVirtual(t, 1500, nil)
	ps := pollerStateOf(v.hosts[1].Poller)
	ps.shorten(16)
	a, b := v.pair(Options{}, Options{})
	c, d := v.pair(Options{}, Options{})
	v.write(a, strings.Repeat("x", 30_000)) // and nobody reads
	v.pass(20 * time.Second)
	mend := v.loseFirst(c)
	v.write(c, strings.Repeat("y", 10_000))
	v.pass(2 * time.Second)
	require.Positive(t, CountersOf(v.hosts[1].Poller).RefusedPool)
	require.Zero(t, b.u.state.Load()&stateDead)
	mend()
	v.until("all octets", func() bool { return d.Unread() == 10_000 })
}
