// Package sample lets a test do less with go test -short, as make test has it, and all of it
// without, as make test-all has it, and CI. What is left out of a short run differs from run to
// run: a sample is drawn again each time, and the log names it. Nothing is skipped: of every list
// of cases some are run.
//
// It is imported by tests only, of any layer, and so imports nothing of ours.
package sample

import (
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
)

// Count is whole, and short with -short: of seeds, rounds and the like.
func Count(short, whole int) int {
	if testing.Short() {
		return short
	}
	return whole
}

// Of returns all cases; with -short n of them, or all if there are fewer, in their order. Goroutine
// of the test.
func Of[T any](t testing.TB, n int, cases []T) []T {
	t.Helper()
	if !testing.Short() || n >= len(cases) {
		return cases
	}
	at := rand.Perm(len(cases))[:n]
	slices.Sort(at)
	drawn := make([]T, n)
	for i, j := range at {
		drawn[i] = cases[j]
	}
	t.Logf("-short: cases %d of 0 to %d", at, len(cases)-1)
	return drawn
}

// Map likewise returns all entries of cases, or n of them.
func Map[K comparable, V any](t testing.TB, n int, cases map[K]V) map[K]V {
	t.Helper()
	if !testing.Short() || n >= len(cases) {
		return cases
	}
	keys := slices.Collect(maps.Keys(cases))
	rand.Shuffle(len(keys), func(i, j int) { keys[i], keys[j] = keys[j], keys[i] })
	drawn := make(map[K]V, n)
	for _, k := range keys[:n] {
		drawn[k] = cases[k]
		t.Logf("-short: case %v, one of %d of %d", k, n, len(cases))
	}
	return drawn
}
