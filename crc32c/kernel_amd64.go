//go:build !purego

package crc32c

import "golang.org/x/sys/cpu"

var (
	hasChains = cpu.X86.HasSSE42 && cpu.X86.HasPCLMULQDQ
	hasAVX512 = hasChains && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW && cpu.X86.HasAVX512VPCLMULQDQ
)

// update takes what is short straight to its kernel: a jump less, where that is what counts.
func update(crc uint32, p []byte) uint32 {
	switch {
	case hasAVX512 && len(p) > blockLen:
		return updateAVX512(crc, p)
	case hasChains:
		return updateChains(crc, p)
	}
	return updateLibrary(crc, p)
}

var kernels = []kernel{
	{"avx512", hasAVX512, updateAVX512},
	{"chains", hasChains, updateChains},
	{"library", true, updateLibrary},
}

// updateAVX512 folds blocks of 64 octets: AVX-512 F and BW, VPCLMULQDQ. What is not longer than a
// block goes to updateChains.
//
//go:noescape
func updateAVX512(crc uint32, p []byte) uint32

// updateChains cuts p in three, goes through the parts with the CRC32 instruction side by side and
// joins their CRCs: SSE4.2, PCLMULQDQ.
//
//go:noescape
func updateChains(crc uint32, p []byte) uint32
