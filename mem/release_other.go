//go:build !amd64 || race || purego

package mem

import "sync/atomic"

// storeRelease stores v behind all stores before it, for another goroutine that loads it.
func storeRelease(p *atomic.Uint64, v uint64) { p.Store(v) }
