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
	const now = 1_000_000
	s := newSecret([16]byte{1, 2, 3})
	first := s.initialSeq(now, &testID)
	require.Equal(t, first+1000, s.initialSeq(now+4000*1000, &testID), "one per 4 microseconds")

	// Every part of the tuple, and the secret, changes F.
	seen := map[tcp.Seq]bool{first: true}
	for i, change := range []func(*tcp.ID){
		func(id *tcp.ID) { id.Local = inet.AddrFrom4([4]byte{10, 0, 0, 3}) },
		func(id *tcp.ID) { id.Remote = inet.AddrFrom4([4]byte{10, 0, 0, 3}) },
		func(id *tcp.ID) { id.LocalPort++ }, func(id *tcp.ID) { id.RemotePort++ },
	} {
		id := testID
		change(&id)
		seq := s.initialSeq(now, &id)
		require.False(t, seen[seq], "change %d", i)
		seen[seq] = true
	}
	s = newSecret([16]byte{1, 2, 4})
	require.False(t, seen[s.initialSeq(now, &testID)], "another secret")
}

// req: 7323-7-1
func TestTimestampOffsetIsPerTupleAndConstant(t *testing.T) {
	s := newSecret([16]byte{1})
	a := s.timestampOffset(&testID)
	require.Equal(t, a, s.timestampOffset(&testID))
	id := testID
	id.RemotePort++
	require.NotEqual(t, a, s.timestampOffset(&id))
	require.NotEqual(t, uint32(s.tuple(useISN, &testID)), a, "one use tells nothing of the other")
}
