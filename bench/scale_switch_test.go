package bench

import (
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// What a switch carries, by the number of its programs: each sends bursts of short frames to the
// next, in turns on one core, which is that of all programs as well.

const (
	switchFrame = 66 // octets: a segment of TCP without payload, with timestamps
	switchBurst = 32
	switchModel = 16 // programs of the switch in the model
)

var switchPrograms = []int{2, switchModel}

// switchFrames is how many frames a second pass a switch.
func switchFrames(t testing.TB, programs, frames int) float64 {
	ports, pools, cfg, turn := switched(t, programs, 1500)
	queues := make([]pmd.Queue, programs)
	bufs := make([][]mem.Buf, programs)
	for i := range programs {
		var err error
		queues[i], err = ports[i].Open(0, pools[i])
		require.NoError(t, err)
		to := (i + 1) % programs
		for range switchBurst {
			b := pools[i].Alloc()
			pools[i].Desc(b).Len = switchFrame
			octets := pools[i].Data(b)[:switchFrame]
			(&inet.Ethernet{Dst: cfg.Programs[to].MAC, Src: cfg.Programs[i].MAC,
				Type: inet.EtherTypeIPv4}).Put(octets)
			(&inet.IPv4{TTL: 64, Proto: inet.ProtoTCP, TotalLen: switchFrame - inet.EthernetLen,
				Src: switchAddr(i), Dst: switchAddr(to)}).Put(octets[inet.EthernetLen:])
			octets[inet.EthernetLen+inet.IPv4Len+12] = 8 << 4 // words of TCP's header
			bufs[i] = append(bufs[i], b)
		}
	}
	var in [switchBurst]mem.Buf
	pass := func(frames int) (got int) {
		for sent := 0; sent < frames; sent += programs * switchBurst {
			for i, q := range queues {
				require.Equal(t, switchBurst, q.Tx(bufs[i]))
			}
			turn()
			for i, q := range queues {
				n := q.Rx(in[:])
				pools[i].FreeN(in[:n])
				got += n
			}
		}
		return got
	}
	pass(frames / 10) // the first connect rings, and find stations
	began := time.Now()
	got := pass(frames)
	took := time.Since(began)
	require.GreaterOrEqual(t, got, frames*9/10)
	return float64(got) / took.Seconds()
}

func switchAddr(i int) inet.Addr {
	return inet.AddrFrom(netip.AddrFrom4([4]byte{10, 9, 0, byte(i + 1)}))
}

// switchRows measures and adds the switch's rows.
func switchRows(y *yardstick, table scaleTable, runs int) {
	frames := y.count(4_000_000, 1_000_000)
	if y.dry {
		frames = 2000
	}
	all := map[int][]float64{}
	for range runs {
		for _, n := range switchPrograms {
			all[n] = append(all[n], switchFrames(y, n, frames))
		}
	}
	for _, n := range switchPrograms {
		scaleRow(y, table, "switch", n, "frames", "frames of 66 octets, on one core with its programs",
			"frames/s", all[n])
	}
}
