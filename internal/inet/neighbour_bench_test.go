package inet

import (
	"fmt"
	"testing"
)

func BenchmarkNeighbourLookup(b *testing.B) {
	for _, entries := range []int{1, 100, 1000} {
		b.Run(fmt.Sprint(entries), func(b *testing.B) {
			n := NewNeighbours[uint32](NeighbourConfig{})
			var ips []Addr
			for k := range entries {
				ips = append(ips, ip4(10, 0, byte(k>>8), byte(k+1)))
				n.Learn(0, ips[k], MAC{2, 4: byte(k >> 8), 5: byte(k)}, true)
			}
			k := 0
			for b.Loop() {
				if _, known, _, _ := n.Lookup(1, ips[k], 0); !known {
					b.Fatal("lost")
				}
				if k++; k == len(ips) {
					k = 0
				}
			}
		})
	}
}

// A flood into a full table: what one packet of it costs.
func BenchmarkNeighbourFlood(b *testing.B) {
	for name, used := range map[string]bool{"evicts": false, "refused": true} {
		b.Run(name, func(b *testing.B) {
			n := NewNeighbours[uint32](NeighbourConfig{})
			for k := range 1024 {
				n.Learn(0, ip4(10, 1, byte(k>>8), byte(k)), MAC{2}, true)
				if used {
					n.Lookup(0, ip4(10, 1, byte(k>>8), byte(k)), 0)
				}
			}
			k := 0
			for b.Loop() {
				k++
				n.Learn(1, ip4(10, byte(2+k>>16&63), byte(k>>8), byte(k)), MAC{2}, true)
			}
		})
	}
}
