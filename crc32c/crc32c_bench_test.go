package crc32c

import (
	"slices"
	"strconv"
	"testing"
	"time"
)

// BenchmarkUpdate takes turns at each kernel, hash/crc32 ("library") among them, over the same
// octets, so that whatever else the machine does counts for all alike. It reports the median of
// each over the turns, and how many times as fast as hash/crc32 the best one is. Each CRC starts
// from the one before, as those of one FPDU's pieces do.
//
//	go test ./crc32c -run '^$' -bench . -benchtime 300000x -count 5
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{18, 64, 128, 256, 512, 1024, 1444, 4096, 8960, 65536} {
		b.Run(strconv.Itoa(n), func(b *testing.B) {
			const calls = 64
			p, crc := noise(n), uint32(0)
			times := make([][]float64, len(kernels))
			for turn := range b.N/calls + 1 {
				for i := range kernels {
					i = (i + turn) % len(kernels)
					k := &kernels[i]
					if !k.has {
						continue
					}
					crc = k.update(crc, p) // the registers it uses wake up
					begin := time.Now()
					for range calls {
						crc = k.update(crc, p)
					}
					times[i] = append(times[i], float64(time.Since(begin).Nanoseconds())/calls)
				}
			}
			b.ReportMetric(0, "ns/op")
			var best, library float64
			for i, k := range kernels {
				if !k.has {
					continue
				}
				slices.Sort(times[i])
				library = times[i][len(times[i])/2]
				if best == 0 {
					best = library
				}
				b.ReportMetric(library, k.name+"-ns")
			}
			b.ReportMetric(library/best, "faster")
		})
	}
}
