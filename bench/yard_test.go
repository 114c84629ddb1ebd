package bench

import (
	"flag"
	"os"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/yard"
)

var (
	yardRun = flag.String("yard", "",
		"full or quick: measure, print a table, write bench/results, and goals.svg in docs/results")
	yardOnly  = flag.String("yard.only", "", "parts to measure, with commas between; all if empty")
	yardPeers = flag.String("yard.peers", "",
		"directory with the ends of bench/peers, for gVisor; none if empty")
	yardProfile = flag.String("yard.profile", "",
		"measure the budget of an octet's way: write the CPU profile to this file, and the table to "+
			"budget.tsv in docs/results")
	yardRnicd = flag.String("yard.rnicd", "", "the program rnicd, for its demo; none if empty")
)

// resultsDir is where tables and figures of the documents are.
const resultsDir = "../docs/results"

// yardstick is one run over all parts.
type yardstick struct {
	*testing.T
	crew   *yard.Crew
	report *yard.Report
	turns  int           // slices of each Contender
	length time.Duration // of a slice
	full   bool          // everything, however long it takes
	dry    bool          // a test of the parts: figures mean nothing
	write  map[int]*yard.Series
}

// part measures some rows.
type part struct {
	name string
	run  func(*yardstick)
}

// parts in the order of the table. Others are appended by files with build tags.
var parts = []part{
	{"theft", theft}, {"write", writeParts}, {"markers", markersPart}, {"loss", lossPart},
	{"switch", switchPart}, {"queues", queuesPart}, {"latency", latencyPart}, {"turns", turnsPart},
	{"sends", sendsPart},
	{"crowd", crowdPart}, {"connections", connectionsPart}, {"scale", scalePart},
	{"startups", startupsPart},
	{"veth", vethPart}, {"tap", tapPart},
	{"demo", demoPart}, {"verbs", verbsPart}, {"kernel", kernelPart}, {"numbers", numbersPart},
	{"ucx", ucxPart}, {"gvisor", gvisorPart}, {"budget", budgetPart},
}

// TestYardsticks measures with -yard=full or -yard=quick (make bench, make bench-quick). Without,
// it lets every part that needs neither root nor other programs work for a moment and checks what
// it did.
func TestYardsticks(t *testing.T) {
	y := &yardstick{T: t, turns: 2, length: 4 * time.Millisecond, dry: true,
		write: map[int]*yard.Series{}}
	switch *yardRun {
	case "":
	case "quick":
		y.turns, y.length, y.dry = 40, 10*time.Millisecond, false
	case "full":
		y.turns, y.length, y.full, y.dry = 200, 20*time.Millisecond, true, false
	default:
		t.Fatalf("-yard=%s: want full or quick", *yardRun)
	}
	// The two threads of a Crew do not give their processors up: the timer that ends a slice needs
	// one.
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(runtime.NumCPU() + 2))
	defer debug.SetGCPercent(debug.SetGCPercent(400))
	y.report = yard.NewReport(!y.full)
	began := yard.Now()
	var err error
	y.crew, err = yard.NewCrew()
	if err != nil {
		t.Log(err) // one core: there is nothing to take turns on
		return
	}
	defer y.crew.Close()
	only := strings.FieldsFunc(*yardOnly, func(r rune) bool { return r == ',' })
	for _, p := range parts {
		if len(only) > 0 && !slices.Contains(only, p.name) {
			continue
		}
		t.Run(p.name, func(t *testing.T) {
			part := *y
			part.T = t
			p.run(&part)
		})
	}
	y.report.Stolen = began.Since()
	y.report.Table(os.Stdout)
	if !y.dry && len(only) == 0 {
		y.save()
	}
}

func (y *yardstick) save() {
	name := must(y.report.Save("results"))(y)
	y.Log(name)
	require.NoError(y, os.WriteFile(resultsDir+"/goals.svg", []byte(y.report.Figure().SVG()), 0o644))
}

// take has contenders take turns.
func (y *yardstick) take(contenders ...*yard.Contender) []*yard.Series {
	y.Helper()
	series := must(y.crew.Take(y.turns, y.length, contenders...))(y)
	y.report.Add(nil, series)
	return series
}

func (y *yardstick) row(name, unit string, goal yard.Goal, v yard.Value, note string) {
	y.report.Add([]yard.Row{{Name: name, Unit: unit, Goal: goal, Value: v, Note: note}}, nil)
}

// missing are rows that cannot be measured here.
func (y *yardstick) missing(unit string, goal yard.Goal, why string, names ...string) {
	for _, name := range names {
		y.row(name, unit, goal, yard.Value{}, why)
	}
}

// exactly is the value of one measurement over n.
func exactly(v float64, n int) yard.Value {
	return yard.Value{Best: v, Median: v, Low: v, High: v, Slices: n}
}

func atLeast(v float64) yard.Goal { return yard.Goal{Want: v} }
func atMost(v float64) yard.Goal  { return yard.Goal{Want: v, AtMost: true} }

// theft is what the machine's host and others leave of two cores that need nothing but themselves.
func theft(y *yardstick) {
	spin := func(s *yard.Slice, tell bool) {
		x := uint64(1)
		for !s.Over() {
			for range 4096 {
				x = x*6364136223846793005 + 1442695040888963407
			}
			if tell {
				s.Did(4096)
			}
		}
		runtime.KeepAlive(x)
	}
	s := y.take(&yard.Contender{
		Name: "nothing", Unit: "steps/s",
		Left: func(s *yard.Slice) { spin(s, true) }, Right: func(s *yard.Slice) { spin(s, false) },
	})
	y.row("a core that only counts: its time a step", "ns", yard.Goal{}, yard.Cost(s[0], 1e9),
		"what the spread of all rows has in it of the machine's")
}
