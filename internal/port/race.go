//go:build race

package port

// raceEnabled: the race detector does not see mapped memory, so rings lie on the heap under it.
const raceEnabled = true
