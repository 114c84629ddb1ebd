//go:build !purego

package crc32c

import (
	"testing"

	"github.com/rnicd/rnicd/internal/skip"
)

// Every processor for servers has the instructions of this kernel, and so has QEMU's. Where nothing
// may be skipped, it has been tested.
func TestHasChains(t *testing.T) {
	if !hasChains {
		skip.Missing(t, "no CRC32 or PMULL")
	}
}
