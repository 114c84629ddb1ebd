// Package crc32c computes CRC32C (Castagnoli), the CRC of MPA and iSCSI, with the best kernel for
// the processor. It is faster than hash/crc32 for FPDUs: tens to thousands of octets
// (docs/adr/0011-own-crc32c.md).
//
// Copy and CopyMarked copy octets and compute their CRC, in one pass with AVX-512, in two
// elsewhere; CopyMarked inserts MPA's markers.
//
// A kernel is chosen once, at start-up. No kernel reads or writes beyond its arguments, or
// allocates. All functions may be called from any goroutine. With the build tag purego only
// hash/crc32 is used.
package crc32c

import "hash/crc32"

// Update returns the CRC of some octets followed by p. Crc is that of the octets before p, 0 when
// there are none.
func Update(crc uint32, p []byte) uint32 { return update(crc, p) }

// kernel is one way to compute the CRC. The first of kernels that the processor has is used.
type kernel struct {
	name   string
	has    bool
	update func(crc uint32, p []byte) uint32
}

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// updateLibrary is the kernel of processors that have no other.
func updateLibrary(crc uint32, p []byte) uint32 { return crc32.Update(crc, castagnoli, p) }
