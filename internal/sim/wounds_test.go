package sim

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A connection that ended because of damage is excused for it, and only because those octets were
// damaged.
func TestDamageMustBeWhereItIsBlamed(t *testing.T) {
	for _, found := range []string{"damage-of-a-ready-to-receive-frame",
		"damage-of-culley-02s-first-marker-reported"} {
		r := ending(t, workload(t, "testdata/found/"+found))
		s := r.sessions[0]
		require.NoError(t, s.check())
		require.True(t, s.damaged(), found)
		for _, h := range r.Hosts {
			for _, stream := range h.wounds.streams {
				for i := range stream.words {
					stream.words[i] += fpduReach
				}
			}
		}
		require.False(t, s.damaged(), found)
		require.Error(t, s.check())
	}
}
