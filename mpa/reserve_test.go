package mpa

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// With the pool short, octets in order are held down to Low, and until all Receivers together hold
// as many Bufs of them as Partial says. What waits beyond a gap is refused before that, also when
// the left edge stands inside a frame.
func TestReserveForOctetsInOrder(t *testing.T) {
	const low, partial = 3, 2
	reserve := &Reserve{Spare: spareBufs, Low: low, Partial: partial}
	s := streamOf(withCRC, 300, 300, 300)
	second := int(s.frames[1].start)
	rigs := make([]*shortage, partial+1)
	for i := range rigs {
		cfg := rigConfig{Mode: withCRC, Reserve: reserve, PoolExtra: spareBufs}
		rigs[i] = &shortage{rig: newRig(t, cfg, s)}
	}
	for i, r := range rigs {
		r.leave(low - 1)
		r.send(0, 100).is(Refused)
		r.leave(low)
		r.send(second, len(s.octets)).is(Refused)
		if i == partial {
			r.send(0, 100).is(Refused)
			break
		}
		r.send(0, 100).is(Kept)
		r.leave(low)
		r.send(101, 200).is(Refused)
		if i < partial-1 {
			r.send(100, 200) // what continues them
		}
	}
	require.Equal(t, partial, reserve.partial)

	// One that gets its frame whole, or ends, makes room for others.
	first, last := rigs[0], rigs[partial]
	first.send(200, second).is(Done)
	require.Equal(t, partial-1, reserve.partial)
	last.leave(low)
	last.send(0, 100).is(Kept)
	require.Equal(t, partial, reserve.partial)
	rigs[1].recv.Close()
	require.Equal(t, partial-1, reserve.partial)
	s.octets[150] ^= 1
	last.leave(low)
	last.send(100, second)
	last.end()
	last.failed(ErrCRC)
	require.Zero(t, reserve.partial)
	for _, r := range rigs {
		r.end()
	}
}
