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
	Iterations uint64 // measured: messages, or rounds of a latency test
	Bytes      uint64 // Size times Iterations, one way
	// from the first posting to the last completion, or to the end of End.Flush
	Elapsed time.Duration

	// Of a bandwidth test. Peak is over the best run of messages, from posting to completion, and 0
	// when it was not looked for (PeakMax, Duration). A completion says that TCP has the octets in
	// custody, not that the peer has them: a peak over few messages may be as fast as they can be
	// copied.
	Bandwidth   float64 // octets/s on average
	Peak        float64 // octets/s
	MessageRate float64 // messages/s

	Times Latencies // of a latency test
}

// Latencies of one way (Write, Send: half of a round trip) or of a round trip (Read, Atomic).
// Quantiles are exact to a part in a thousand.
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
	return Result{Op: t.Op, Latency: t.Latency, Size: t.Size, Iterations: n, Bytes: n * uint64(t.Size),
		Elapsed: elapsed}
}

// histogram of durations in ns, of bounded size whatever comes. Its cells are a thousandth wide;
// the ends and the sum are kept as they came, so that of few values none is outside the others.
type histogram struct {
	h                *hdrhistogram.Histogram
	least, most, sum int64
}

const (
	slowest = int64(time.Minute)
	digits  = 3
)

func newHistogram() *histogram {
	return &histogram{h: hdrhistogram.New(1, slowest, digits), least: slowest}
}

// record counts whatever is beyond its range at the end of it.
func (h *histogram) record(ns int64) {
	ns = min(max(ns, 1), slowest)
	_ = h.h.RecordValue(ns) // cannot fail: it is in range
	h.least, h.most, h.sum = min(h.least, ns), max(h.most, ns), h.sum+ns
}

// latencies are those of a part-th of what was recorded.
func (h *histogram) latencies(part int64) Latencies {
	n := h.h.TotalCount()
	if n == 0 {
		return Latencies{}
	}
	of := func(ns int64) time.Duration { return time.Duration(ns / part) }
	// the upper end of a cell
	quantile := func(q float64) time.Duration { return of(min(h.h.ValueAtQuantile(q), h.most)) }
	return Latencies{
		Min: of(h.least), Median: quantile(50), P99: quantile(99), P999: quantile(99.9), Max: of(h.most),
		Average: of(h.sum / n), Stdev: time.Duration(h.h.StdDev() / float64(part)),
	}
}
