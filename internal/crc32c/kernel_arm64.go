//go:build !purego

package crc32c

import "golang.org/x/sys/cpu"

var hasChains = cpu.ARM64.HasCRC32 && cpu.ARM64.HasPMULL

func update(crc uint32, p []byte) uint32 {
	if hasChains {
		return updateChains(crc, p)
	}
	return updateLibrary(crc, p)
}

var kernels = []kernel{
	{"chains", hasChains, updateChains},
	{"library", true, updateLibrary},
}

// updateChains cuts p in three, goes through the parts with CRC32CX side by side and joins their
// CRCs with PMULL.
//
//go:noescape
func updateChains(crc uint32, p []byte) uint32

var chains *chainConstants //lint:ignore U1000 read in assembly

func init() { chains = newChains(newPowers()) }
