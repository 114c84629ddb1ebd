package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// A thread of the program that waits is told when a Turn completes nothing more, and every few
// Turns while each does. Until then the Poller is told of work, so that it does not sleep.
func TestProgressIsToldInTime(t *testing.T) {
	const turns = 4 // package waiting's
	e := &Engine{area: new(ring.Area), polled: true}
	turn := func(completes bool) (work int, told bool) {
		if completes {
			e.progress()
		}
		before := e.area.Progress
		work = e.onTurn()
		return work, e.area.Progress != before
	}
	for range 3 {
		for i := range turns - 1 {
			work, told := turn(true)
			require.False(t, told, "Turn %d", i)
			require.NotZero(t, work)
		}
		_, told := turn(true)
		require.True(t, told, "the last of %d", turns)
	}
	for range 3 {
		work, told := turn(false)
		require.False(t, told)
		require.Zero(t, work)
	}
	work, told := turn(true)
	require.False(t, told)
	require.NotZero(t, work)
	_, told = turn(false)
	require.True(t, told, "nothing more has come")
	_, told = turn(false)
	require.False(t, told, "told once")
}
