package bench

import (
	"slices"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/stack"
)

// The crowd: connections that share a device which is slower than their Poller, 10 Gbit/s, over a
// path of 10 us each way, in virtual time. So the rows are the same on every machine: they say
// what waits for what, and nothing of the processor.
const (
	crowdConns  = 64
	crowdTurnNs = 500
	crowdRate   = 10_000_000_000
	crowdDelay  = 10_000
	pingOctets  = 8
)

// bulk is an end that always has something to send, once it may.
type bulk struct {
	idler
	sends   bool
	arrived int
}

func (u *bulk) Arrive(_ uint64, _ []mem.Buf, data [][]byte) (int, stack.Verdict) {
	for _, octets := range data {
		u.arrived += len(octets)
	}
	return len(data), stack.Taken
}

func (u *bulk) Pull(dst [][]byte) stack.Pulled {
	if !u.sends {
		return stack.Pulled{}
	}
	return stack.Pulled{N: len(dst), More: true}
}

// crowdPart is 8 octets there and back, alone and beside 63 connections that always send; and how
// evenly those share the device.
func crowdPart(y *yardstick) {
	f := fault.Faults{Delay: crowdDelay}
	p := newPollersOver(y, crowdConns, fault.Spec{Rx: f, Tx: fault.Faults{Rate: crowdRate}})
	ask, answer := &echo{}, &echo{server: true}
	var from, to []*bulk
	p.establish(crowdConns, func(server bool, i int) knower {
		switch {
		case i == 0 && server:
			return answer
		case i == 0:
			return ask
		}
		u := &bulk{}
		if server {
			to = append(to, u)
		} else {
			from = append(from, u)
		}
		return u
	})
	pings, shareNs := 2000, int64(50_000_000)
	if y.dry {
		pings, shareNs = 20, 2_000_000
	}
	ping := func() float64 {
		began, want := p.now, ask.got+pingOctets
		ask.owed = pingOctets
		ask.Conn.Send()
		for ask.got < want {
			p.turn(crowdTurnNs)
			require.Less(y, p.now-began, int64(1e9))
		}
		return float64(p.now-began) * usPerNs
	}
	measure := func() (all []float64) {
		for range pings {
			all = append(all, ping())
		}
		return all
	}
	idle := yard.Samples(measure())
	for _, u := range from {
		u.sends = true
		u.Conn.Send()
	}
	for began := p.now; p.now-began < shareNs/2; {
		p.turn(crowdTurnNs)
	}
	before := make([]int, len(to))
	for i, u := range to {
		before[i] = u.arrived
	}
	began := p.now
	for p.now-began < shareNs {
		p.turn(crowdTurnNs)
	}
	sum, squares := 0.0, 0.0
	for i, u := range to {
		n := float64(u.arrived - before[i])
		sum, squares = sum+n, squares+n*n
	}
	rate := sum * 8 / float64(p.now-began)
	crowded := measure()
	y.row("8 octets there and back, device idle", "us", yard.Goal{}, idle,
		"10 Gbit/s, 10 us each way, in virtual time")
	y.row("8 octets there and back beside 63 that always send", "us", yard.Goal{},
		yard.Samples(crowded), "the same")
	y.row("8 octets beside 63 that always send to an idle device, at the worst", "x", atMost(3),
		exactly(slices.Max(crowded)/idle.Median, 1), "")
	y.row("63 that always send: Jain's index of their octets", "", atLeast(0.95),
		exactly(sum*sum/(float64(len(to))*squares), 1), "1: all alike")
	y.row("63 that always send: payload", "Gbit/s", yard.Goal{}, exactly(rate, 1),
		"9.49 is all of 10 Gbit/s")
}
