// Package crc32c computes CRC32C (Castagnoli), the CRC of MPA and iSCSI, with the best kernel that
// the processor has. It is hash/crc32 again, for what an FPDU is: some tens to some thousands of
// octets. docs/adr/0011-own-crc32c.md says why that is worth a package.
//
// A caller that has to copy octets anyway gets their CRC with it, and MPA's markers (Copy, CopyMarked): in one
// pass where there is AVX-512, in two elsewhere.
//
// A kernel is chosen once, at start-up. All of them read the octets they are given and no others,
// write what they copy and no more, allocate nothing, and may be called from any goroutine. The
// build tag purego leaves hash/crc32 alone.
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
