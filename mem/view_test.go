package mem

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
)

type flat struct {
	A uint64
	B [3]uint16
	C struct{ D, E float32 }
}

func TestViewRefuses(t *testing.T) {
	b := hugepages.Heap(1 << 12).Bytes()
	size := int(unsafe.Sizeof(flat{}))
	require.Panics(t, func() { View[flat](b, len(b)/size+1) })
	require.Panics(t, func() { View[flat](b, -1) })
	require.Panics(t, func() { View[flat](b, 1<<60) })
	require.Panics(t, func() { View[flat](b[1:], 1) }, "alignment")
	require.Panics(t, func() { View[struct{}](b, 1) }, "no size")
	require.Panics(t, func() { View[*int](b, 1) })
	require.Panics(t, func() { View[string](b, 1) })
	require.Panics(t, func() { View[[]byte](b, 1) })
	require.Panics(t, func() { View[any](b, 1) })
	require.Panics(t, func() { View[func()](b, 1) })
	require.Panics(t, func() { View[map[int]int](b, 1) })
	require.Panics(t, func() { View[chan int](b, 1) })
	require.Panics(t, func() { View[unsafe.Pointer](b, 1) })
	require.Panics(t, func() { View[[2]struct{ p *int }](b, 1) })
	require.Panics(t, func() { View[MPSCSlot[*int]](b, 1) })
}
