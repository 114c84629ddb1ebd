package sim

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/pmd/fault"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/tcp"
)

// What drawn seeds have found, as Workloads of their own: what a seed draws changes with Draw.
func TestFound(t *testing.T) {
	conn := func(a, b End) []Conn { return []Conn{{Dialect: rnic.RFC5044, Dialer: 1, Ends: [2]End{a, b}}} }
	for name, wl := range map[string]Workload{
		// What came beyond a gap was refused without a word, and F-RTO waited for an answer: a minute for each segment.
		"F-RTO, and a receiver that takes nothing beyond a gap": {
			Config: Config{MTU: 1500, Faults: fault.Faults{Reorder: 0.03}, TCP: tcp.Config{NoTimestamps: true}},
			Conns:  conn(End{DropBadCRC: true}, End{DropBadCRC: true, NoMarkers: true}), Messages: 43, WriteMax: 16 << 10, SendMax: 2048,
		},
		// Segments came alone and whole when they were sent again, and joined and cut otherwise: each pair was doubted once.
		"DropBadCRC behind a middlebox that joins": {
			Config: Config{
				MTU: 576, Join: 1, Faults: fault.Faults{Drop: 0.003},
				TCP: tcp.Config{NoTimestamps: true, NoSACK: true},
			},
			Conns: conn(End{DropBadCRC: true}, End{DropBadCRC: true}), Messages: 37, WriteMax: 16 << 10, SendMax: 8192,
		},
	} {
		for seed := range uint64(12) {
			wl.Seed = seed
			_, err := wl.Run()
			require.NoErrorf(t, err, "%s, %v", name, wl)
		}
	}
}
