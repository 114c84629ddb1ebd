package waiting

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A program is told when half of the most that it has had under way is left, and of each completion
// from there on. What asks for no completion does not count.
func TestUnderway(t *testing.T) {
	var u Underway
	for range 10 {
		u.Take(true)
	}
	for i := range 4 {
		require.True(t, u.Complete(), "%d are left", 9-i)
	}
	require.False(t, u.Complete(), "5 of 10 are left")
	for range 5 {
		u.Take(true)
		u.Take(false)
	}
	for range 4 {
		require.True(t, u.Complete(), "it has posted more")
	}
	require.False(t, u.None())
	for range 10 {
		require.False(t, u.Complete(), "few or none are left, also of more than were asked for")
	}
	require.True(t, u.None())
	for range 3 {
		u.Take(true)
		require.False(t, u.Complete(), "one at a time")
	}
	u = Underway{}
	u.Take(true)
	for range 100 {
		u.Take(false)
	}
	require.False(t, u.Complete(), "no other completion will come")
}

// A program is told when a Turn completes nothing more, and every few Turns while each does.
func TestTelling(t *testing.T) {
	var x Telling
	for range 3 {
		for range tellTurns - 1 {
			require.False(t, x.Turned(true))
			require.True(t, x.Owes())
		}
		require.True(t, x.Turned(true))
		require.False(t, x.Owes())
	}
	require.False(t, x.Turned(false))
	require.False(t, x.Turned(true))
	require.True(t, x.Turned(false), "nothing more has come")
	require.False(t, x.Turned(false), "told once")
}
