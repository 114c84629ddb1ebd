//go:build !purego

package crc32c

import (
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/cpu"
)

// What is asked for here and by cpu is one bit.
func TestHasVPCLMULQDQ(t *testing.T) {
	if cpu.X86.HasAVX512 {
		require.Equal(t, cpu.X86.HasAVX512VPCLMULQDQ, hasVPCLMULQDQ())
	} else if !cpu.X86.HasAVX2 {
		require.False(t, hasVPCLMULQDQ())
	}
}
