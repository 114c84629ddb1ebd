// Package bench holds the benchmarks that cross packages: what docs/results/benchmarks.md quotes. Run them
// with make bench-go, or one with
//
//	go test ./bench -run '^$' -bench Write -benchtime 3s -count 5
package bench
