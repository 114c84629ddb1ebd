package mem

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Numbers of one read and of the next differ, have all their bits, and are forgotten once drawn.
//
// req: 5042-6.1.1-4
func TestDraws(t *testing.T) {
	var d draws
	seen, ones, zeros := map[uint32]bool{}, uint32(0), uint32(0)
	for i := range 4 * drawsMax {
		n := d.next()
		seen[n], ones, zeros = true, ones|n, zeros|^n
		left := drawsMax - 1 - i%drawsMax
		require.Equal(t, 4*left, d.left)
		for _, b := range d.octets[:len(d.octets)-d.left] {
			require.Zero(t, b)
		}
	}
	require.GreaterOrEqual(t, len(seen), 4*drawsMax-2, "as good as none came twice")
	require.Equal(t, ^uint32(0), ones&zeros)
}
