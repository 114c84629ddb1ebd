package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/netlab"
)

// verbsRun is a program with its two ends on a memif, and the figure that its client prints: a
// column of the line that begins with the size.
type verbsRun struct {
	name, unit     string
	server, client []string // after rnicd
	size           string
	column         int
	factor         float64
}

// Figures of perftest, and of ours, which prints as it does.
const (
	columnRate    = 4 // MsgRate[Mpps]
	columnTypical = 4 // t_typical[usec]
)

func preloaded(name, unit string, column int, factor float64, size string,
	args ...string) verbsRun {
	args = append(args, "-R", "-F", "-s", size)
	return verbsRun{
		name, unit, append([]string{"run", "--verbose"}, verbsServer...),
		append([]string{"run"}, verbsClient...), size, column, factor,
	}.with(args...)
}

var (
	verbsServer = []string{"--pmd", "memif", "--no-dad", "--role", "server", "--addr",
		verbsAddr + "/24", "--idle", "interrupt"}
	verbsClient = []string{"--pmd", "memif", "--no-dad", "--addr", "10.9.0.2/24", "--idle",
		"interrupt"}
)

const verbsAddr = "10.9.0.1"

func (r verbsRun) with(args ...string) verbsRun {
	r.server = append(append(r.server, "--"), args...)
	r.client = append(append(append(r.client, "--"), args...), verbsAddr)
	return r
}

func perfRun(name, unit string, column int, factor float64, size string, args ...string) verbsRun {
	return verbsRun{
		name, unit, append([]string{"perf", "server"}, verbsServer...),
		append(append(append([]string{"perf"}, args...), "-s", size, verbsAddr), verbsClient...), size,
		column, factor,
	}
}

// verbsPart is Debian's perftest on the libraries of verbs beside our own measurements, on the
// same cable: each run a pair of processes, in turns. The libraries stand beside the program
// rnicd.
func verbsPart(y *yardstick) {
	const (
		latency = "ib_write_lat over verbs, above rnicd perf write lat"
		goodput = "ib_write_bw over verbs to rnicd perf write bw"
		sends   = "ib_send_bw of 64 octets over verbs"
	)
	n := func(full string, quick string) string {
		if y.full {
			return full
		}
		return quick
	}
	runs := []verbsRun{
		perfRun("rnicd perf write lat", "us", columnTypical, 1, "2", "write", "lat", "-n",
			n("20000", "5000")),
		preloaded("ib_write_lat, verbs", "us", columnTypical, 1, "2", "ib_write_lat", "-n",
			n("20000", "5000")),
		perfRun("rnicd perf write bw", "octets/s", columnRate, 65536e6, "65536", "write", "bw", "-n",
			n("60000", "20000")),
		preloaded("ib_write_bw, verbs", "octets/s", columnRate, 65536e6, "65536", "ib_write_bw", "-n",
			n("60000", "20000")),
		preloaded("ib_send_bw of 64 octets, verbs", "messages/s", columnRate, 1e6, "64", "ib_send_bw",
			"-n", n("1000000", "200000")),
	}
	missing := func(why string) {
		y.missing("us", atMost(1), why, latency)
		y.missing("x", atLeast(0.9), why, goodput)
		y.missing("messages/s", atLeast(1e6), why, sends)
	}
	if why := verbsMissing(y); why != "" {
		missing(why)
		return
	}
	series := make([]*yard.Series, len(runs))
	for i := range runs {
		series[i] = &yard.Series{Name: runs[i].name, Unit: runs[i].unit}
	}
	for range y.runs() {
		for i := range runs {
			apart := y.crew.Apart()
			v, err := runs[i].run(y)
			if err != nil {
				missing(err.Error())
				return
			}
			series[i].AddRun(v, apart)
		}
	}
	y.report.Add(nil, series)
	var above []float64
	for i, v := range series[1].Rates {
		above = append(above, v-series[0].Rates[i])
	}
	const note = "two pairs of processes on one memif, whole runs"
	y.row(latency, "us", atMost(1), yard.Samples(above), note)
	y.row(goodput, "x", atLeast(0.9), yard.Ratio(series[3], series[2]), note)
	y.row(sends, "messages/s", atLeast(1e6), yard.Rate(series[4], 1), note)
	for i, r := range runs[:4] {
		if r.unit == "us" {
			y.row(r.name, "us", yard.Goal{}, yard.Samples(series[i].Rates), "")
		} else {
			y.row(r.name, "Gbit/s", yard.Goal{}, yard.Rate(series[i], 8e-9), "")
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
	if _, err := exec.LookPath("ib_write_lat"); err != nil {
		return "no perftest: apt-get install perftest"
	}
	return ""
}

// run is one pair of processes. Both ends must end well; a server of ours is ended.
func (r *verbsRun) run(y *yardstick) (float64, error) {
	ctx, cancel := context.WithTimeout(y.Context(), patience)
	defer cancel()
	socket := filepath.Join(y.TempDir(), "memif")
	with := func(args []string) *exec.Cmd {
		last := len(args)
		for i, a := range args {
			if a == "--" {
				last = i
				break
			}
		}
		all := append(append(append([]string(nil), args[:last]...), "--socket", socket), args[last:]...)
		return exec.CommandContext(ctx, *yardRnicd, all...)
	}
	server := netlab.Start(y, with(r.server))
	if _, ok := server.Await(y, 1, "^ready |^rnicd: listening at "); !ok {
		return 0, fmt.Errorf("%s: no server:\n%s", r.name, server)
	}
	out, err := with(r.client).CombinedOutput()
	if err != nil {
		return 0, fmt.Errorf("%s: %w:\n%s\nserver:\n%s", r.name, err, out, server)
	}
	if r.server[0] == "perf" {
		server.Signal(y, syscall.SIGTERM)
	}
	if code := server.Wait(y); code != 0 {
		return 0, fmt.Errorf("%s: server: %d:\n%s", r.name, code, server)
	}
	v, err := perftestFigure(string(out), r.size, r.column)
	return v * r.factor, err
}

// perftestFigure is a column of the only line that begins with the size.
func perftestFigure(out, size string, column int) (float64, error) {
	for line := range strings.Lines(out) {
		if words := strings.Fields(line); len(words) > column && words[0] == size {
			return strconv.ParseFloat(words[column], 64)
		}
	}
	return 0, errors.New("no line with the figures:\n" + out)
}
