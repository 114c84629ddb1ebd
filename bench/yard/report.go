package yard

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/rnicd/rnicd/bench/plot"
)

// Goal is what a row is held against. The zero value is none.
type Goal struct {
	Want   float64
	AtMost bool // otherwise at least
}

// Row is a named figure.
type Row struct {
	Name  string
	Unit  string // "x" of ratios
	Goal  Goal
	Value Value
	Note  string // what there is to know; of a row without a value, why
}

// States of a Row.
const (
	Met     = "met"
	AtBest  = "met at its best" // not by the median
	Short   = "short"
	Missing = "not measured"
	Context = "" // there is no goal
)

// reached says whether v does what g wants.
func (g Goal) reached(v float64) bool {
	if g.AtMost {
		return v <= g.Want
	}
	return v >= g.Want
}

// State says whether the goal is met. It is no test: the machine has its say in it.
func (r Row) State() string {
	switch {
	case r.Value.Best == 0 || math.IsNaN(r.Value.Best) || math.IsInf(r.Value.Best, 0):
		return Missing
	case r.Goal == Goal{}:
		return Context
	case r.Goal.reached(r.Value.Best) && r.Goal.reached(r.Value.Median):
		return Met
	case r.Goal.reached(r.Value.Best):
		return AtBest
	}
	return Short
}

// Machine is where it was measured.
type Machine struct {
	CPU, Kernel, Go string
	Cores           int
	MemoryGiB       int
	Load            string // average of the last minute, before
}

// Report is one run.
type Report struct {
	Date    string
	Commit  string
	Quick   bool
	Machine Machine
	Stolen  float64 // part of the machine's time that its host gave to others
	Rows    []Row
	Series  []*Series
}

// NewReport begins one.
func NewReport(quick bool) *Report {
	commit, err := exec.Command("git", "describe", "--always", "--dirty").Output()
	if err != nil {
		commit = []byte("unknown")
	}
	return &Report{
		Date: time.Now().UTC().Format("2006-01-02 15:04"), Commit: strings.TrimSpace(string(commit)),
		Quick: quick,
		Machine: Machine{
			CPU: field("/proc/cpuinfo", "model name"), Kernel: firstLine("/proc/sys/kernel/osrelease"),
			Go: runtime.Version(), Cores: runtime.NumCPU(),
			MemoryGiB: kib(field("/proc/meminfo", "MemTotal")) >> 20,
			Load:      firstWord(firstLine("/proc/loadavg")),
		},
	}
}

func firstLine(path string) string {
	b, _ := os.ReadFile(path) // without it the fact is missing
	line, _, _ := strings.Cut(string(b), "\n")
	return line
}

func firstWord(s string) string {
	word, _, _ := strings.Cut(s, " ")
	return word
}

// field is the value of the first "name: value" of a file of /proc.
func field(path, name string) string {
	b, _ := os.ReadFile(path)
	for line := range strings.Lines(string(b)) {
		if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func kib(s string) int {
	n, _ := strconv.Atoi(firstWord(s))
	return n
}

// Times are the machine's, in ticks since it started.
type Times struct{ Stolen, All uint64 }

// Now reads Times.
func Now() Times {
	t, _ := parseTimes(firstLine("/proc/stat"))
	return t
}

// parseTimes reads the first line of /proc/stat (proc_stat(5)): user, nice, system, idle, iowait,
// irq, softirq, steal; what guests had is in user already.
func parseTimes(line string) (t Times, err error) {
	words := strings.Fields(line)
	if len(words) < 9 || words[0] != "cpu" {
		return t, errors.New("yard: the first line of /proc/stat is not that of all CPUs")
	}
	for i, word := range words[1:9] {
		n, err := strconv.ParseUint(word, 10, 64)
		if err != nil {
			return Times{}, err
		}
		t.All += n
		if i == 7 {
			t.Stolen = n
		}
	}
	return t, nil
}

// Since is the part of the machine's time since t that its host gave to others.
func (t Times) Since() float64 {
	now := Now()
	if now.All == t.All {
		return 0
	}
	return float64(now.Stolen-t.Stolen) / float64(now.All-t.All)
}

// Add takes series into the report, once each.
func (r *Report) Add(rows []Row, series []*Series) {
	r.Rows, r.Series = append(r.Rows, rows...), append(r.Series, series...)
}

// lost counts slices.
func (r *Report) lost() (lost, all int) {
	for _, s := range r.Series {
		lost, all = lost+s.Lost, all+len(s.Rates)
	}
	return lost, all
}

// goalText is a goal as the table has it.
func goalText(r Row) string {
	switch {
	case r.Goal == Goal{}:
		return ""
	case r.Goal.AtMost:
		return "at most " + number(r.Goal.Want)
	}
	return "at least " + number(r.Goal.Want)
}

func number(v float64) string {
	switch {
	case math.IsNaN(v) || math.IsInf(v, 0):
		return ""
	case math.Abs(v) >= 1000:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// Table writes the report in Markdown.
func (r *Report) Table(w io.Writer) {
	m := r.Machine
	length := "full"
	if r.Quick {
		length = "quick"
	}
	lost, all := r.lost()
	fmt.Fprintf(w, "%s, commit %s, %s run: %d cores of %s, %d GiB, Linux %s, %s, load %s before.\n",
		r.Date, r.Commit, length, m.Cores, m.CPU, m.MemoryGiB, m.Kernel, m.Go, m.Load)
	fmt.Fprintf(w, "The host took %.1f %% of the machine's time (steal); %d of %d slices lost a "+
		"core for more than %.0f %% of their time.\n",
		r.Stolen*100, lost, all, lostPart*100)
	r.tableApart(w)
	fmt.Fprintln(w, "| | unit | goal | best decile | median | quartiles | slices | "+
		"|\n|---|---|---|---|---|---|---|---|")
	for _, row := range r.Rows {
		v := row.Value
		state := row.State()
		if row.Note != "" {
			state = strings.TrimPrefix(state+": "+row.Note, ": ")
		}
		if row.State() == Missing {
			fmt.Fprintf(w, "| %s | %s | %s | | | | | %s |\n", row.Name, row.Unit, goalText(row), state)
			continue
		}
		fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s to %s | %d | %s |\n",
			row.Name, row.Unit, goalText(row), number(v.Best), number(v.Median), number(v.Low),
			number(v.High), v.Slices, state)
	}
}

// tableApart says how far apart the cores were.
func (r *Report) tableApart(w io.Writer) {
	var all []float64
	for _, s := range r.Series {
		all = append(all, s.Apart...)
	}
	median, far := Quantile(all, 0.5), 0
	for _, apart := range all {
		if apart > 2*median || apart < median/2 {
			far++
		}
	}
	if len(all) > 0 {
		fmt.Fprintf(w, "A line of cache took %.0f ns from core to core and back (median; %.0f to "+
			"%.0f); more than twice that, or less than half, before %d of %d slices.\n",
			median, Quantile(all, 0), Quantile(all, 1), far, len(all))
	}
	fmt.Fprintln(w)
}

// finite is v, which JSON has to be able to say.
func finite(v float64) float64 {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return 0
	}
	return v
}

// JSON is the report with every slice.
func (r *Report) JSON() ([]byte, error) {
	type row struct {
		Row
		State string
	}
	out := struct {
		*Report
		Rows []row
	}{Report: r}
	for _, x := range r.Rows {
		v := &x.Value
		v.Best, v.Median, v.Low, v.High = finite(v.Best), finite(v.Median), finite(v.Low), finite(v.High)
		out.Rows = append(out.Rows, row{x, x.State()})
	}
	return json.MarshalIndent(out, "", "\t")
}

// Save writes the report to dir, under its date and commit, and returns the file's name.
func (r *Report) Save(dir string) (string, error) {
	b, err := r.JSON()
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	name := filepath.Join(dir, strings.NewReplacer(" ", "T", ":", "").Replace(r.Date)+"-"+
		r.Commit+".json")
	return name, os.WriteFile(name, append(b, '\n'), 0o644)
}

// Figure is the rows that have a goal, each as a part of it: what is at most, the other way round.
func (r *Report) Figure() *plot.Bars {
	p := &plot.Bars{Title: fmt.Sprintf(
		"Best deciles as parts of their goals (black: quartiles); %s, %s, quick: %v", r.Date,
		r.Commit, r.Quick)}
	for _, row := range r.Rows {
		state := row.State()
		if row.Goal.Want == 0 || state == Missing {
			continue
		}
		part := func(v float64) float64 {
			if row.Goal.AtMost {
				return row.Goal.Want / v
			}
			return v / row.Goal.Want
		}
		low, high := part(row.Value.Low), part(row.Value.High)
		p.Rows = append(p.Rows, plot.Bar{
			Name: row.Name, Value: part(row.Value.Best), Low: finite(min(low, high)),
			High: finite(max(low, high)),
			Text: fmt.Sprintf("%s %s (%s)", number(row.Value.Best), row.Unit, number(row.Goal.Want)),
			Met:  state != Short,
		})
	}
	return p
}
