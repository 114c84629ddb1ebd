package engine

import (
	"math"
	"time"

	"golang.org/x/sys/unix"
)

// began is a moment, and beganAt what CLOCK_MONOTONIC said then: Go reads that clock without a
// system call, but does not say what it read.
var began, beganAt = calibrate()

// monotonic is CLOCK_MONOTONIC in nanoseconds, as the C library reads it.
func monotonic() uint64 { return beganAt + uint64(time.Since(began)) }

// calibrate reads both, of several times that which took least.
func calibrate() (moment time.Time, at uint64) {
	least := time.Duration(math.MaxInt64)
	for range 16 {
		var t unix.Timespec
		before := time.Now()
		_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &t) // there is such a clock
		if took := time.Since(before); took < least {
			moment, at, least = before.Add(took/2), uint64(t.Nano()), took
		}
	}
	return moment, at
}
