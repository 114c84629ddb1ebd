//go:build !race && !purego

package ddp

import "golang.org/x/sys/cpu"

// hasCopyString says that the processor moves strings fast, short ones too: one with ERMS has the
// leaf of CPUID that says FSRM.
var hasCopyString = cpu.X86.HasERMS && fastStrings()

// stringMin is how many octets are copied by one instruction. A copy from an address that is no
// multiple of 32, as most in a stream are, takes twice as long by AVX as by that, and 1.3 times as
// long where the destination is beyond L2: BenchmarkCopyOctets, on one processor, an Intel with
// AVX-512. The number itself was chosen, not measured.
const stringMin = 4096

// copyOctets is copy, of octets that do not overlap.
func copyOctets(dst, src []byte) int {
	n := min(len(dst), len(src))
	if n < stringMin || !hasCopyString {
		return copy(dst, src)
	}
	copyString(&dst[0], &src[0], n)
	return n
}

//go:noescape
func copyString(dst, src *byte, n int)

func fastStrings() bool
