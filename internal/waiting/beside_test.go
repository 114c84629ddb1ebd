package waiting

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A loop is left to a caller who turns it in vain again and again, for longer each time; not to one
// who turns it only when there is something to do, who has begun to wait, or who stopped long ago.
func TestBeside(t *testing.T) {
	var b Beside
	require.Zero(t, b.Rest(0, 0, 0, false), "nobody polls")
	require.Zero(t, b.Rest(100, besideVain-1, 0, false), "one look")
	vain := uint64(100)
	at, last := int64(1000), int64(0)
	for _, want := range []int64{restMinNs, 2 * restMinNs, restMaxNs, restMaxNs} {
		require.Equal(t, want, b.Rest(at, vain, 0, false))
		at, last, vain = at+want, want, vain+50
	}
	require.Equal(t, int64(restMaxNs), last)
	require.Zero(t, b.Rest(at, vain, vain, false), "it waits now")
	require.EqualValues(t, restMinNs, b.Rest(at+1, vain+besideVain, vain, false), "and polls again")
	require.Zero(t, b.Rest(at+2, vain+besideVain, vain, false), "it stopped")
	require.Zero(t, b.Rest(at+int64(1e9), vain+2*besideVain, vain, false), "some looks a second")
	require.EqualValues(t, restMinNs, b.Rest(at+int64(1e9)+1, vain+2*besideVain, 0, true),
		"somebody is in a Turn")
	at, vain = at+int64(2e9), vain+2*besideVain
	require.Zero(t, b.Rest(at, vain, 0, false))
	b.Turned(at + int64(1e9))
	require.EqualValues(t, restMinNs, b.Rest(at+int64(1e9)+1, vain+besideVain, 0, false),
		"they polled all through a long Turn")
}
