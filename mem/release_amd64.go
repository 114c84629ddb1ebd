//go:build !race && !purego

package mem

import "sync/atomic"

// StoreRelease stores v after all stores before it, for another goroutine that loads it, and waits
// for none of them: an ordinary store, which on amd64 is in order (Intel's manual, volume 3,
// section 9.2.2), where atomic.Uint64.Store is an exchange that lets nothing pass, some 20 cycles.
// A load after it may be done before it.
//
//go:noescape
func StoreRelease(p *atomic.Uint64, v uint64)
