//go:build race

package main

// raceEnabled: the race detector does not see mapped memory, so rings lie on the heap under it.
const raceEnabled = true
