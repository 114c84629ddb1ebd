package perf

import (
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"
)

// Result is what Run found.
type Result struct {
	Op         Op
	Latency    bool
	Size       int
	Iterations uint64        // measured: messages, or rounds of a latency test
	Bytes      uint64        // Size times Iterations, one way
	Elapsed    time.Duration // from the first posting to the last completion, or to the end of End.Flush

	// Of a bandwidth test. Peak is over the best run of messages, from posting to completion, and 0 when it was not looked for
	// (PeakMax, Duration). A completion says that TCP has the octets in custody, not that the peer has them: a peak over few messages may
	// be as fast as they can be copied.
	Bandwidth   float64 // octets/s on average
	Peak        float64 // octets/s
	MessageRate float64 // messages/s

	Times Latencies // of a latency test
}

// Latencies of one way (Write, Send: half of a round trip) or of a round trip (Read, Atomic). Quantiles are exact to a part in a thousand.
type Latencies struct {
	Min, Median, Average, Stdev, P99, P999, Max time.Duration
}

func bandwidthOf(t *Test, n uint64, elapsed time.Duration, seen *times) Result {
	res := resultOf(t, n, elapsed)
	if s := elapsed.Seconds(); s > 0 {
		res.Bandwidth, res.MessageRate = float64(res.Bytes)/s, float64(n)/s
	}
	if seen != nil {
		if ns := seen.best(); ns > 0 {
			res.Peak = float64(t.Size) * 1e9 / ns
		}
	}
	return res
}

func latencyOf(t *Test, n uint64, elapsed time.Duration, h *histogram, part int64) Result {
	res := resultOf(t, n, elapsed)
	res.Times = h.latencies(part)
	return res
}

func resultOf(t *Test, n uint64, elapsed time.Duration) Result {
	return Result{Op: t.Op, Latency: t.Latency, Size: t.Size, Iterations: n, Bytes: n * uint64(t.Size), Elapsed: elapsed}
}

// histogram of durations in ns, of bounded size whatever comes.
type histogram struct{ h *hdrhistogram.Histogram }

const (
	slowest = int64(time.Minute)
	digits  = 3
)

func newHistogram() *histogram { return &histogram{hdrhistogram.New(1, slowest, digits)} }

// record counts whatever is beyond its range at the end of it.
func (h *histogram) record(ns int64) {
	_ = h.h.RecordValue(min(max(ns, 1), slowest)) // cannot fail: it is in range
}

// latencies are those of a part-th of what was recorded.
func (h *histogram) latencies(part int64) Latencies {
	if h.h.TotalCount() == 0 {
		return Latencies{}
	}
	of := func(ns int64) time.Duration { return time.Duration(ns / part) }
	return Latencies{
		Min: of(h.h.Min()), Median: of(h.h.ValueAtQuantile(50)), Max: of(h.h.Max()),
		Average: time.Duration(h.h.Mean() / float64(part)), Stdev: time.Duration(h.h.StdDev() / float64(part)),
		P99: of(h.h.ValueAtQuantile(99)), P999: of(h.h.ValueAtQuantile(99.9)),
	}
}
