package stack

import (
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

var testID = tcp.ID{
	Local: inet.AddrFrom4([4]byte{10, 0, 0, 1}), Remote: inet.AddrFrom4([4]byte{10, 0, 0, 2}),
	LocalPort: 50000, RemotePort: 4420,
}

// req: 9293-MUST-8, 9293-MUST-9, 9293-SHLD-1, 6528-3-1
func TestInitialSeqIsClockPlusFunctionOfTuple(t *testing.T) {
	p := &Poller{secret: newSecret([16]byte{1, 2, 3}), now: 1_000_000}
	first := p.initialSeq(&testID)
	p.now += 4000 * 1000
	require.Equal(t, first+1000, p.initialSeq(&testID), "one per 4 microseconds")

	// Every part of the tuple, and the secret, changes F.
	p.now = 1_000_000
	seen := map[tcp.Seq]bool{first: true}
	for i, change := range []func(*tcp.ID){
		func(id *tcp.ID) { id.Local = inet.AddrFrom4([4]byte{10, 0, 0, 3}) },
		func(id *tcp.ID) { id.Remote = inet.AddrFrom4([4]byte{10, 0, 0, 3}) },
		func(id *tcp.ID) { id.LocalPort++ },
		func(id *tcp.ID) { id.RemotePort++ },
	} {
		id := testID
		change(&id)
		seq := p.initialSeq(&id)
		require.False(t, seen[seq], "change %d", i)
		seen[seq] = true
	}
	p.secret = newSecret([16]byte{1, 2, 4})
	require.False(t, seen[p.initialSeq(&testID)], "another secret")
}

// req: 7323-7-1
func TestTimestampOffsetIsPerTupleAndConstant(t *testing.T) {
	p := &Poller{secret: newSecret([16]byte{1}), now: 5}
	a := p.timestampOffset(&testID)
	p.now += 1e9
	require.Equal(t, a, p.timestampOffset(&testID))
	id := testID
	id.RemotePort++
	require.NotEqual(t, a, p.timestampOffset(&id))
	require.NotEqual(t, uint32(p.secret.tuple(useISN, &testID)), a,
		"one use tells nothing of the other")
}

func TestBucket(t *testing.T) {
	b := newBucket(0, 100)
	take := func(now int64) (n int) {
		for b.take(now) {
			n++
		}
		return n
	}
	require.Equal(t, 100, take(0), "a burst of a second's worth")
	require.Equal(t, 0, take(9_999_999))
	require.Equal(t, 1, take(10_000_000), "then one per 10 ms")
	require.Equal(t, 50, take(510_000_000))
	require.Equal(t, 100, take(1e12), "never more than the burst")

	// Asked more often than a token takes to grow, it still grows them.
	b = newBucket(0, 100)
	take(0)
	got := 0
	for now := int64(0); now <= 1e9; now += 1_000_000 {
		if b.take(now) {
			got++
		}
	}
	require.InDelta(t, 100, got, 1)
}
