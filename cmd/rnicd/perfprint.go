package main

import (
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/rnicd/rnicd/internal/tools/perf"
)

// mebi is perftest's MB.
const mebi = 1 << 20

// perfHeader is the heading of perftest's tables.
func perfHeader(w io.Writer, latency bool) {
	if latency {
		fmt.Fprintln(w, " #bytes     #iterations  t_min[usec]  t_max[usec]  t_typical[usec]  "+
			"t_avg[usec]  t_stdev[usec]  99% percentile[usec]  99.9% percentile[usec]")
		return
	}
	fmt.Fprintln(w, " #bytes     #iterations  BW peak[MB/sec]  BW average[MB/sec]  MsgRate[Mpps]")
}

func printPerf(w io.Writer, r *perf.Result, asJSON bool) {
	switch {
	case asJSON:
		_ = json.NewEncoder(w).Encode(perfRecordOf(r)) // numbers and a string: cannot fail except for w
	case r.Latency:
		t := &r.Times
		fmt.Fprintf(w, " %-10d %-12d %-12.2f %-12.2f %-16.2f %-12.2f %-14.2f %-21.2f %-.2f\n", r.Size,
			r.Iterations,
			micros(t.Min), micros(t.Max), micros(t.Median), micros(t.Average), micros(t.Stdev),
			micros(t.P99), micros(t.P999))
	default:
		peak := "-"
		if r.Peak > 0 {
			peak = fmt.Sprintf("%.2f", r.Peak/mebi)
		}
		fmt.Fprintf(w, " %-10d %-12d %-16s %-19.2f %-.6f\n", r.Size, r.Iterations, peak, r.Bandwidth/mebi,
			r.MessageRate/1e6)
	}
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// perfRecord is a line of --json.
type perfRecord struct {
	Test           string         `json:"test"` // as write_bw
	SizeOctets     int            `json:"size_octets"`
	Iterations     uint64         `json:"iterations"`
	ElapsedSeconds float64        `json:"elapsed_seconds"`
	Bandwidth      *perfBandwidth `json:"bandwidth,omitempty"`
	Latency        *perfLatency   `json:"latency_ns,omitempty"`
}

type perfBandwidth struct {
	Average  float64  `json:"average_octets_per_second"`
	Peak     *float64 `json:"peak_octets_per_second"` // null: was not looked for
	Messages float64  `json:"messages_per_second"`
}

type perfLatency struct {
	Min     int64 `json:"min"`
	Median  int64 `json:"median"`
	Average int64 `json:"average"`
	Stdev   int64 `json:"stdev"`
	P99     int64 `json:"p99"`
	P999    int64 `json:"p99_9"`
	Max     int64 `json:"max"`
}

func perfRecordOf(r *perf.Result) perfRecord {
	rec := perfRecord{
		Test: r.Op.String() + "_bw", SizeOctets: r.Size, Iterations: r.Iterations,
		ElapsedSeconds: r.Elapsed.Seconds(),
	}
	if r.Latency {
		t := &r.Times
		rec.Test = r.Op.String() + "_lat"
		rec.Latency = &perfLatency{int64(t.Min), int64(t.Median), int64(t.Average), int64(t.Stdev),
			int64(t.P99), int64(t.P999), int64(t.Max)}
		return rec
	}
	rec.Bandwidth = &perfBandwidth{Average: r.Bandwidth, Messages: r.MessageRate}
	if r.Peak > 0 {
		rec.Bandwidth.Peak = &r.Peak
	}
	return rec
}
