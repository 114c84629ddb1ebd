//go:build race

package xfer

// raceEnabled: the detector knows nothing of what a message through the kernel orders.
const raceEnabled = true
