package bench

import (
	"fmt"
	"maps"
	"os"
	"os/exec"
	"runtime/pprof"
	"slices"
	"strings"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/yard"
)

// budgetFile is where make profile writes; what stood there before becomes the columns before.
const budgetFile = resultsDir + "/budget.tsv"

// budgetPart is where the time of a full segment goes, by stage, at the sender and at the receiver:
// bulk Write at MTU 1500 over pmd/wire, both cores busy.
func budgetPart(y *yardstick) {
	if *yardProfile == "" {
		return
	}
	const mtu = 1500
	y.turns, y.length = 60, 100*time.Millisecond // a profile has 100 samples a second
	f := must(os.Create(*yardProfile))(y)
	c := writing(y, "Write, profiled", cable{mtu: mtu}, false)
	require.NoError(y, pprof.StartCPUProfile(f))
	s := y.take(c)[0]
	pprof.StopCPUProfile()
	require.NoError(y, f.Close())
	segmentNs := 1e9 / (s.Median() / float64(payloads[mtu]))
	var sides [2]map[string]float64
	for i, side := range []string{"left", "right"} {
		out, err := exec.CommandContext(y.Context(), "go", "tool", "pprof", "-traces", "-tagfocus",
			yard.SideLabel+"="+side, *yardProfile).Output()
		require.NoError(y, err)
		spent := stages(string(out))
		all := time.Duration(0)
		for _, d := range spent {
			all += d
		}
		sides[i] = map[string]float64{}
		for stage, d := range spent {
			sides[i][stage] = float64(d) / float64(all) * segmentNs
		}
	}
	before, err := os.ReadFile(budgetFile)
	if err != nil {
		before = nil // the first
	}
	table := budgetTable(parseBudget(string(before)), sides)
	fmt.Printf("A segment of MTU %d takes %.1f ns (median of %d slices): ns at each stage\n\n%s\n",
		mtu, segmentNs, len(s.Rates), table)
	require.NoError(y, os.WriteFile(budgetFile, []byte(table), 0o644))
}

// stages sums the time of the samples of go tool pprof -traces by the stage that they fall into.
func stages(traces string) map[string]time.Duration {
	spent := map[string]time.Duration{}
	for _, block := range strings.Split(traces, "-----------+")[1:] {
		var stack []string
		var d time.Duration
		for _, line := range strings.Split(block, "\n")[1:] {
			words := strings.Fields(line)
			switch {
			case len(words) == 0 || strings.HasSuffix(words[0], ":"): // a label
			case len(stack) == 0 && len(words) > 1:
				parsed, err := time.ParseDuration(words[0])
				if err != nil {
					continue
				}
				d, stack = parsed, append(stack, words[1])
			default:
				stack = append(stack, words[0])
			}
		}
		if len(stack) > 0 {
			spent[stage(stack)] += d
		}
	}
	return spent
}

// stage of a stack, its leaf first: the package of ours that the time is spent in or for; copies
// apart.
func stage(stack []string) string {
	const module = "github.com/rnicd/rnicd/"
	for _, frame := range stack {
		path, ours := strings.CutPrefix(frame, module)
		if !ours {
			continue
		}
		folder, name := "", path
		if i := strings.LastIndexByte(path, '/'); i >= 0 {
			folder, name = path[:i+1], path[i+1:]
		}
		pkg, _, _ := strings.Cut(name, ".")
		if strings.HasPrefix(stack[0], "runtime.memmove") {
			return "copy in " + folder + pkg
		}
		return folder + pkg
	}
	return "runtime"
}

// parseBudget reads the columns of a table that say what is now.
func parseBudget(text string) (sides [2]map[string]string) {
	sides = [2]map[string]string{{}, {}}
	for line := range strings.Lines(text) {
		if w := strings.Split(strings.TrimSuffix(line, "\n"), "\t"); len(w) == 5 {
			sides[0][w[0]], sides[1][w[0]] = w[2], w[4]
		}
	}
	return sides
}

// budgetTable has a row for each stage, the most expensive first.
func budgetTable(before [2]map[string]string, now [2]map[string]float64) string {
	var names []string
	for name := range maps.Keys(now[0]) {
		names = append(names, name)
	}
	for name := range maps.Keys(now[1]) {
		if _, both := now[0][name]; !both {
			names = append(names, name)
		}
	}
	sum := func(name string) float64 { return now[0][name] + now[1][name] }
	slices.SortFunc(names, func(a, b string) int {
		if sum(a) != sum(b) {
			return int(1e6 * (sum(b) - sum(a)))
		}
		return strings.Compare(a, b)
	})
	var b strings.Builder
	b.WriteString("stage\tsender before, ns\tsender\treceiver before, ns\treceiver\n")
	for _, name := range names {
		fmt.Fprintf(&b, "%s\t%s\t%.1f\t%s\t%.1f\n", name, before[0][name], now[0][name], before[1][name],
			now[1][name])
	}
	return b.String()
}
