//go:build !dpdk

package dpdk

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithoutTagEverythingSaysSo(t *testing.T) {
	_, err := Open(Config{})
	require.ErrorIs(t, err, ErrNotBuilt)
	require.ErrorIs(t, Init(nil), ErrNotBuilt)
	_, _, err = RingPair("x", 64)
	require.ErrorIs(t, err, ErrNotBuilt)
	require.ErrorContains(t, err, "apt-get install libdpdk-dev")
	require.False(t, Built)
}
