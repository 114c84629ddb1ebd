// Package bench holds the benchmarks across packages; docs/results/benchmarks.md has their
// results. Run all with make bench-go, or one with
//
//	go test ./bench -run '^$' -bench Write -benchtime 3s -count 5
package bench
