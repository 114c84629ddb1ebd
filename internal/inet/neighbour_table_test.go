package inet

import (
	"math"
	"testing"

	"github.com/stretchr/testify/require"
)

// checkTable verifies what neighbourTable promises of itself.
func checkTable(t testing.TB, table *neighbourTable) {
	t.Helper()
	live := 0
	for s, i := range table.slots {
		if i == 0 {
			continue
		}
		live++
		e := &table.entries[i-1]
		require.Equal(t, int32(i-1), table.find(&e.ip), "slot %d: not found", s)
		require.Equal(t, int32(i-1), table.timers[e.timer].entry)
	}
	require.Len(t, table.timers, live)
	require.Len(t, table.free, len(table.entries)-live)
	for k := 1; k < len(table.timers); k++ {
		require.LessOrEqual(t, table.timers[(k-1)/2].at, table.timers[k].at, "heap order")
	}
}

// Insert, remove, find and timers against a map, once with the hash that is used and once with one
// so bad that everything collides and probes wrap around the end.
func TestNeighbourTableOracle(t *testing.T) {
	r := dice(t)
	for _, colliding := range []bool{false, true} {
		const entriesMax = 24
		var table neighbourTable
		table.init(entriesMax)
		if colliding {
			table.key = [2]uint64{0, 0} // high is 0 for IPv4: every product is 0
		}
		type oracle struct {
			i  int32
			at int64
		}
		oracles := map[Addr]oracle{}
		for range 20000 {
			ip := ip4(10, 0, 0, byte(r.IntN(48)))
			at := int64(r.IntN(1000))
			o, have := oracles[ip]
			switch i := table.find(&ip); {
			case have:
				require.Equal(t, o.i, i)
				if r.IntN(2) == 0 {
					table.remove(i)
					delete(oracles, ip)
				} else {
					table.setTimer(i, at)
					oracles[ip] = oracle{i, at}
				}
			default:
				require.Equal(t, int32(-1), i)
				if len(oracles) < entriesMax {
					i = table.insert(ip)
					table.setTimer(i, at)
					oracles[ip] = oracle{i, at}
				}
			}
			want := int64(math.MaxInt64)
			for _, o := range oracles {
				want = min(want, o.at)
			}
			require.Equal(t, want, table.deadline())
		}
		checkTable(t, &table)
		require.Equal(t, colliding, table.hash(&Addr{15: 1}) == table.hash(&Addr{15: 2}))
	}
}

// Addresses in a row, as a subnet's are, spread: no long walks.
func TestNeighbourTableSpread(t *testing.T) {
	var table neighbourTable
	table.init(1024)
	for k := range 1024 {
		table.setTimer(table.insert(ip4(10, 0, byte(k>>8), byte(k))), 0)
	}
	worst := uint32(0)
	for s, i := range table.slots {
		if i != 0 {
			worst = max(worst, (uint32(s)-table.entries[i-1].hash)&table.mask)
		}
	}
	require.Less(t, worst, uint32(100))
}
