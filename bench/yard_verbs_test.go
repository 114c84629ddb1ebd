package bench

import (
	"os"
	"path/filepath"

	"github.com/rnicd/rnicd/bench/yard"
)

// verbsPart is Debian's perftest on the libraries of verbs beside our own measurements, on the
// same cable: each run a pair of processes, in turns. The libraries stand beside the program
// rnicd.
func verbsPart(y *yardstick) {
	const (
		latency = "ib_write_lat over verbs, above rnicd perf write lat"
		goodput = "ib_write_bw over verbs to rnicd perf write bw"
		sends   = "ib_send_bw of 64 octets over verbs"
	)
	missing := func(why string) {
		y.missing("us", atMost(1), why, latency)
		y.missing("x", atLeast(0.9), why, goodput)
		y.missing("messages/s", atLeast(1e6), why, sends)
	}
	if why := verbsMissing(y); why != "" {
		missing(why)
		return
	}
	memif := onMemif(filepath.Join(y.TempDir(), "memif"))
	lat, bw := y.count(20_000, 5000), y.count(60_000, 20_000)
	runs := []*pair{
		memif.perf(figures{2, lat, typical}, "write", "lat"),
		memif.perftest(figures{2, lat, typical}, "ib_write_lat"),
		memif.perf(figures{65536, bw, messages}, "write", "bw"),
		memif.perftest(figures{65536, bw, messages}, "ib_write_bw"),
		memif.perftest(figures{64, y.count(1_000_000, 200_000), messages}, "ib_send_bw"),
	}
	var series []*yard.Series
	for i, s := range y.rounds(place{}, runs...) {
		if runs[i].missing != "" {
			missing(runs[i].missing)
			return
		}
		series = append(series, s[0])
	}
	var above []float64
	for i, v := range series[1].Rates {
		above = append(above, v-series[0].Rates[i])
	}
	const note = "two pairs of processes on one memif, whole runs"
	y.row(latency, "us", atMost(1), yard.Samples(above), note)
	y.row(goodput, "x", atLeast(0.9), yard.Ratio(series[3], series[2]), note)
	y.row(sends, "messages/s", atLeast(1e6), yard.Rate(series[4], 1), note)
	for i, r := range runs[:4] {
		if i < 2 {
			y.row(r.name, "us", yard.Goal{}, yard.Samples(series[i].Rates), "")
		} else {
			y.row(r.name, "Gbit/s", yard.Goal{}, yard.Rate(series[i], 65536*8e-9), "")
		}
	}
}

// verbsMissing says what is not there.
func verbsMissing(y *yardstick) string {
	if y.dry {
		return "not in a test"
	}
	if *yardRnicd == "" {
		return "-yard.rnicd says not where the program is"
	}
	if _, err := os.Stat(filepath.Join(filepath.Dir(*yardRnicd), "librnicd_engine.so")); err != nil {
		return "no libraries beside rnicd: make verbs"
	}
	return noProgram("ib_write_lat", "perftest")
}
