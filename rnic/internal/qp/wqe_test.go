package qp

import (
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Ring entries are fixed and free of pointers, so that they may lie in shared memory.
func TestRingEntries64(t *testing.T) {
	require.Equal(t, uintptr(64), unsafe.Sizeof(WQE{}))
	require.Equal(t, uintptr(64), unsafe.Sizeof(rangesEntry{}))
	require.Equal(t, uintptr(64), unsafe.Sizeof(octetsEntry{}))
}
