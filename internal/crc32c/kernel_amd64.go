//go:build !purego

package crc32c

import "golang.org/x/sys/cpu"

var (
	hasChains    = cpu.X86.HasSSE42 && cpu.X86.HasPCLMULQDQ
	hasBeside128 = hasChains && cpu.X86.HasAVX
	hasBeside256 = hasBeside128 && cpu.X86.HasAVX2 && hasVPCLMULQDQ()
	hasAVX512    = hasBeside256 && cpu.X86.HasAVX512F && cpu.X86.HasAVX512BW
)

// hasVPCLMULQDQ says what cpu.X86 says of processors with AVX-512 only. A processor with AVX2 has
// what CPUID tells it in.
func hasVPCLMULQDQ() bool { return cpu.X86.HasAVX2 && extensions()&(1<<10) != 0 }

// extensions is ECX of CPUID, leaf 7.
func extensions() uint32

// update takes what is short straight to its kernel: a jump less, where that is what counts.
func update(crc uint32, p []byte) uint32 {
	switch {
	case hasAVX512 && len(p) > blockLen:
		return updateAVX512(crc, p)
	case hasBeside256 && len(p) >= beside256Min:
		return updateBeside256(crc, p)
	case hasBeside128 && len(p) >= beside128Min:
		return updateBeside128(crc, p)
	case hasChains:
		return updateChains(crc, p)
	}
	return updateLibrary(crc, p)
}

var kernels = []kernel{
	{"avx512", hasAVX512, updateAVX512},
	{"beside256", hasBeside256, updateBeside256},
	{"beside128", hasBeside128, updateBeside128},
	{"chains", hasChains, updateChains},
	{"library", true, updateLibrary},
}

// updateAVX512 folds blocks of 64 octets: AVX-512 F and BW, VPCLMULQDQ. What is not longer than a
// block goes to updateChains.
//
//go:noescape
func updateAVX512(crc uint32, p []byte) uint32

// updateBeside256 has four YMM registers beside chains: AVX2, VPCLMULQDQ.
//
//go:noescape
func updateBeside256(crc uint32, p []byte) uint32

// updateBeside128 has four XMM registers beside chains: AVX, PCLMULQDQ.
//
//go:noescape
func updateBeside128(crc uint32, p []byte) uint32

// What is shorter goes to updateChains, as fast there: the fewest octets that YMM registers and a
// round beside them take, and what was measured for XMM registers.
const (
	beside256Min = 128 + 248
	beside128Min = 640
)

// updateChains cuts p in three, goes through the parts with the CRC32 instruction side by side and
// joins their CRCs: SSE4.2, PCLMULQDQ.
//
//go:noescape
func updateChains(crc uint32, p []byte) uint32
