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
//	go test ./internal/crc32c -run '^$' -bench . -benchtime 300000x -count 5
func BenchmarkUpdate(b *testing.B) {
	for _, n := range []int{18, 64, 128, 256, 508, 1024, 1444, 4096, 8960, 65536} {
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

// BenchmarkCopy takes turns at a copy, a copy and then the CRC, both in one pass, and the latter
// two with a marker every 512 octets. The source is taken from a region one message after the
// other: it fits into the first-level cache, or into the second-level cache at best. It reports
// medians over the turns.
func BenchmarkCopy(b *testing.B) {
	ways := []struct {
		name string
		copy func(dst, src []byte) uint32
	}{
		{"copy", func(dst, src []byte) uint32 { return uint32(copy(dst, src)) }},
		{"then", func(dst, src []byte) uint32 { return copyThenUpdate(0, dst[:len(src)], src) }},
		{"Copy", func(dst, src []byte) uint32 { return Copy(0, dst, src) }},
		{"marked-then", func(dst, src []byte) uint32 {
			return copyThenMark(0, dst[:len(src)+(len(src)-1)/between*markerLen+markerLen], src, 0, 0)
		}},
		{"CopyMarked", func(dst, src []byte) uint32 {
			crc, _ := CopyMarked(0, dst, src, 0, 0)
			return crc
		}},
	}
	for _, region := range []int{16 << 10, 1 << 20} {
		for _, n := range []int{64, 128, 256, 508, 1432, 8896} {
			b.Run(strconv.Itoa(region>>10)+"KiB/"+strconv.Itoa(n), func(b *testing.B) {
				const calls = 64
				src, dst, at := noise(region), make([]byte, 10000)[70:], 0
				times := make([][]float64, len(ways))
				for turn := range b.N/calls + 1 {
					for i := range ways {
						i = (i + turn) % len(ways)
						begin := time.Now()
						for range calls {
							ways[i].copy(dst, src[at:at+n])
							if at += n; at > region-n {
								at = 0
							}
						}
						times[i] = append(times[i], float64(time.Since(begin).Nanoseconds())/calls)
					}
				}
				b.ReportMetric(0, "ns/op")
				for i, way := range ways {
					slices.Sort(times[i])
					b.ReportMetric(times[i][len(times[i])/2], way.name+"-ns")
				}
			})
		}
	}
}
