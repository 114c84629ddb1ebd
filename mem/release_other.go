//go:build !amd64 || race || purego

package mem

import "sync/atomic"

// StoreRelease stores v after all stores before it, for another goroutine that loads it.
func StoreRelease(p *atomic.Uint64, v uint64) { p.Store(v) }
