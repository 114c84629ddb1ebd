//go:build !race && !purego

package mem

import (
	"runtime"
	"sync"

	"golang.org/x/sys/unix"
)

// Commands of membarrier(2).
const (
	membarrierPrivate         = 1 << 3 // MEMBARRIER_CMD_PRIVATE_EXPEDITED
	membarrierRegisterPrivate = 1 << 4 // MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED
)

// barrierOfAll has every thread of the process do a full memory barrier before it returns; nil: the
// kernel offers none, and Readers do their own.
var barrierOfAll = sync.OnceValue(func() func() {
	if !membarrier(membarrierRegisterPrivate) {
		return nil
	}
	return func() {
		if !membarrier(membarrierPrivate) { // a filter has forbidden it since
			stopTheWorld()
		}
	}
})

// stopTheWorld brings all goroutines to a safe point, which is a barrier, too.
func stopTheWorld() {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
}

func membarrier(command uintptr) bool {
	_, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
	return errno == 0
}
