//go:build !purego

package wire

import "unsafe"

// prefetchW has the cache line at p fetched to be written, and waits for nothing. Where the
// processor does not know it, it does nothing (AMD's manual, volume 3; Intel's CPUID PREFETCHW).
//
//go:noescape
func prefetchW(p unsafe.Pointer)
