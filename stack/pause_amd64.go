//go:build !purego

package stack

// pause tells the core n times, more than 0, that it is waiting: its other hardware thread may run
// meanwhile, and it takes less power.
//
//go:noescape
func pause(n int64)
