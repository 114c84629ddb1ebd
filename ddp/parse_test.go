package ddp

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A Header that is decoded into again and again, as a Stream does, keeps nothing of what it held
// before.
func TestParseInPlaceKeepsNothing(t *testing.T) {
	tagged := Header{Tagged: true, Last: true, Version: 3, ULP: 255, STag: 0xffffffff, TO: 1<<64 - 1}
	untagged := Header{Last: true, Version: 3, ULP: 255, ULP32: 0xffffffff, QN: 0xffffffff,
		MSN: 0xffffffff, MO: 0xffffffff}
	for _, x := range [][2]Header{{tagged, {}}, {untagged, {Tagged: true}}, {tagged, untagged},
		{untagged, tagged}} {
		h, b := x[0], make([]byte, UntaggedLen)
		x[1].Put(b)
		_, ok := h.parse(b)
		require.True(t, ok)
		require.Equal(t, x[1], h)
	}
}
