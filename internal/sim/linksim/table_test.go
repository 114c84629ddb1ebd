package linksim

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/rnicd/rnicd/internal/cc"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/sim/ccmodel"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

var (
	all = flag.Bool("links.all", false,
		"compare every cell of the table with what is measured now, not the cheap ones only")
	update = flag.Bool("links.update", false, "measure every cell again and write the table")
	match  = flag.String("links.match", "",
		"with -links.update: only the cells whose `names` match this regular expression")
	before = flag.String("links.before", "",
		"a `file` with an earlier table: how this one compares with it")
)

const golden = "testdata/links.golden"

const (
	bitsPerSecond = 10_000_000_000
	overhead      = 90      // of a segment: Ethernet with its gap 38, IPv4 20, TCP with timestamps 32
	sentMax       = 1 << 18 // segments: a window of 380 MB with 1448 octets in each
	rangesMax     = 1 << 17 // what slow start loses of 125 MB leaves so many gaps
	lateShare     = 0.02    // of the segments are late, by up to a quarter of the round trip
	runLength     = 8       // segments that are lost in a row, in the mean, where losses come in runs
)

// seconds of a transfer by round-trip time, for losses of 0, 0.01, 0.1 and 1 %: several hundred
// losses each.
var (
	losses   = [4]float64{0, 0.01, 0.1, 1}
	duration = []struct {
		rttMs   float64
		seconds [4]float64
	}{{0.1, [4]float64{1, 8, 1, 5}}, {10, [4]float64{5, 300, 100, 50}},
		{100, [4]float64{20, 3000, 1000, 400}}}
)

// cell of the table.
type cell struct {
	name    string // of the algorithm
	rttMs   float64
	loss    float64 // percent
	late    bool
	smss    int
	seconds float64
	more    string // "runs": losses come in runs; "rate": a policer drops what is beyond its rate
}

// kinds are the paths of the table: what is late, by how losses come.
var kinds = map[string][2]string{"": {"-", "late"}, "runs": {"runs", "both"},
	"rate": {"rate", "r+lt"}}

func (c cell) String() string {
	kind := kinds[c.more][0]
	if c.late {
		kind = kinds[c.more][1]
	}
	return fmt.Sprintf("%-5s %5g %4g %4s %4d %4g", c.name, c.rttMs, c.loss, kind, c.smss, c.seconds)
}

// cells in the order of the table.
func cells() (all []cell) {
	for _, smss := range []int{1448, 8948} {
		for _, name := range []string{"reno", "cubic", "dctcp"} {
			for _, d := range duration {
				for i, loss := range losses {
					for _, late := range []bool{false, true} {
						if !late || smss == 1448 {
							all = append(all, cell{name: name, rttMs: d.rttMs, loss: loss, late: late, smss: smss,
								seconds: d.seconds[i]})
						}
					}
				}
			}
		}
	}
	return append(append(all, runCells()...), policedCells()...)
}

// runCells are those whose losses come in runs: as many losses as in the others of their row, an
// eighth as often, so that they take the time of cells with fewer.
func runCells() (all []cell) {
	for _, name := range []string{"reno", "cubic"} {
		for _, d := range duration {
			for i := 2; i < len(losses); i++ {
				for _, late := range []bool{false, true} {
					all = append(all, cell{name, d.rttMs, losses[i], late, 1448, d.seconds[i-1], "runs"})
				}
			}
		}
	}
	return all
}

// policed are the cells with a policer: by round-trip time its rate, and seconds for some dozens of
// sawteeth.
var policed = []struct {
	rttMs         float64
	bitsPerSecond int64
	seconds       float64
}{{0.1, 1e9, 5}, {10, 1e9, 60}, {100, 1e8, 600}}

// policedCells lose nothing but what their policer drops: whatever is beyond its rate and its
// bucket, at once and whole flights of it (RFC 9937 section 4).
func policedCells() (all []cell) {
	for _, name := range []string{"reno", "cubic"} {
		for _, p := range policed {
			for _, late := range []bool{false, true} {
				all = append(all, cell{name, p.rttMs, 0, late, 1448, p.seconds, "rate"})
			}
		}
	}
	return all
}

// link has a queue of one bandwidth-delay product, 1 ms at least; DCTCP's marks from 65 segments or
// a sixth of that product on (M. Alizadeh et al., Data Center TCP, 2010, section 3.4, wants more
// than 0.17 of it).
func (c cell) link() Link {
	rttNs := int64(c.rttMs * 1e6)
	product := int(rttNs * (bitsPerSecond / 8_000_000) / 1000)
	l := Link{BitsPerSecond: bitsPerSecond, RTTNs: rttNs, Loss: c.loss / 100, Overhead: overhead,
		QueueMax: max(product, bitsPerSecond/8000), Seed: 1}
	if c.late {
		l.Late, l.LateMaxNs = lateShare, rttNs/4
	}
	switch c.more {
	case "runs":
		l.Loss, l.LossRun = l.Loss/runLength, runLength
	case "rate":
		for _, p := range policed {
			if p.rttMs == c.rttMs {
				l.PolicedBits = p.bitsPerSecond
				l.PolicedBurst = max(int(rttNs*(p.bitsPerSecond/8_000_000)/1000), 10*(1448+overhead))
			}
		}
	}
	if c.name == "dctcp" {
		l.MarkAt = max(65*(1448+overhead), product/6)
	}
	return l
}

func (c cell) config() tcp.Config {
	alg, err := cc.ByName(c.name)
	if err != nil {
		panic(err)
	}
	return tcp.Config{MSS: c.smss + 12, ReceiveWindow: 1<<30 - 1, SentMax: sentMax,
		RangesMax: rangesMax, NoDelay: true,
		InitialWindow: 10, Congestion: alg}
}

// measured is the row of c without the model's part.
func (c cell) measured() (mbit float64, counts string) {
	ns := int64(c.seconds * 1e9)
	r := Transfer(c.link(), c.config(), c.config(), ns)
	s := &r.Sender
	return r.Goodput(ns), fmt.Sprintf("%8d %5d %6d %6d %5d %4d %5d", r.Link.Sent, r.Link.Lost,
		r.Link.Overflowed,
		s.Retransmits, s.FastRetransmits, s.Timeouts, s.Undone)
}

// path is what the model takes c for; it knows nothing of late segments.
func (c cell) path() ccmodel.Path {
	l := c.link()
	p := ccmodel.Path{BitsPerSecond: bitsPerSecond, RTT: c.rttMs / 1000, Loss: l.Loss, SMSS: c.smss,
		Overhead: overhead,
		QueueMax: l.QueueMax, MarkAt: l.MarkAt, WindowMax: min((sentMax-4)*c.smss, 65535<<14)}
	if l.PolicedBits != 0 {
		p.BitsPerSecond, p.QueueMax = float64(l.PolicedBits), l.PolicedBurst
	}
	return p
}

func (c cell) modelled() float64 { return ccmodel.Goodput(c.name, c.path(), c.seconds) / 1e6 }

const header = `# Goodput over simulated links of 10 Gbit/s, Mbit/s; docs/results/congestion.md explains it. Written by make links ARGS=-links.update.
# name  RTT loss late SMSS    s measured modelled ratio |    sent  lost overfl resent  fast  RTO undone
`

func row(c cell, mbit, modelled float64, counts string) string {
	return fmt.Sprintf("%v %8s %8.4g %5.3f | %s", c, digits(mbit), modelled, mbit/modelled, counts)
}

// digits are enough to tell differences of a fraction of a percent.
func digits(mbit float64) string {
	if mbit < 100 {
		return fmt.Sprintf("%.4f", mbit)
	}
	return fmt.Sprintf("%.2f", mbit)
}

// parsed is what a row of the table says.
type parsed struct {
	text               string
	measured, modelled float64
	sent               uint64
}

func readTable(t *testing.T, name string) map[string]parsed {
	t.Helper()
	f, err := os.Open(name)
	require.NoError(t, err)
	defer f.Close()
	rows := map[string]parsed{}
	keyLen := len(cell{}.String())
	for sc := bufio.NewScanner(f); sc.Scan(); {
		text := sc.Text()
		if strings.HasPrefix(text, "#") {
			continue
		}
		p := parsed{text: text}
		var ratio float64
		if _, err := fmt.Sscanf(text[keyLen:], "%g %g %g | %d", &p.measured, &p.modelled, &ratio,
			&p.sent); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		rows[text[:keyLen]] = p
	}
	return rows
}

// every runs f for all cells, as many at once as there are processors.
func every(list []cell, f func(i int, c cell)) {
	var wait sync.WaitGroup
	next := make(chan int)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for i := range next {
				f(i, list[i])
			}
		})
	}
	for i := range list {
		next <- i
	}
	close(next)
	wait.Wait()
}

// cheapMax is how many segments a cell may send to be measured in every run of the tests.
const cheapMax = 900_000

// updateGolden measures the cells of list that match, and writes the table.
func updateGolden(t *testing.T, list []cell) {
	old := readTable(t, golden)
	chosen := regexp.MustCompile(*match)
	rows := make([]string, len(list))
	every(list, func(i int, c cell) {
		if rows[i] = old[c.String()].text; rows[i] == "" || chosen.MatchString(c.String()) {
			mbit, counts := c.measured()
			rows[i] = row(c, mbit, c.modelled(), counts)
		}
		rows[i] += "\n"
	})
	require.NoError(t, os.WriteFile(golden, []byte(header+strings.Join(rows, "")), 0o644))
}

// What is committed is what is measured, to the last digit: the cheap cells in every run, all with
// -links.all.
func TestGolden(t *testing.T) {
	list := cells()
	if *update {
		updateGolden(t, list)
	}
	rows := readTable(t, golden)
	require.Len(t, rows, len(list))
	var chosen []cell
	for _, c := range list {
		require.Contains(t, rows, c.String())
		p := rows[c.String()]
		if *all || p.sent < cheapMax && (c.smss == 1448 || c.loss == 0) {
			chosen = append(chosen, c)
		}
	}
	t.Logf("%d of %d cells", len(chosen), len(list))
	if !*all {
		chosen = sample.Of(t, 6, chosen)
	}
	if *before != "" {
		compare(t, rows)
	}
	if *update {
		return
	}
	every(chosen, func(_ int, c cell) {
		p := rows[c.String()]
		mbit, counts := c.measured()
		_, said, _ := strings.Cut(p.text, "| ")
		if counts != said || digits(mbit) != digits(p.measured) {
			t.Errorf("the table says, and is measured:\n%s\n%s", p.text, row(c, mbit, p.modelled, counts))
		}
	})
}

// exceptions are the cells that are further than a tenth from the model, with what part of it
// they may have. Their reasons stand in docs/results/congestion.md. A cell that agrees after all
// fails the test: it does not belong here then.
var exceptions = map[cell][2]float64{
	{"reno", 100, 0, true, 1448, 20, ""}: {0.75, 0.9},

	// Of DCTCP's, the part is of what the model says for other beginnings of slow start.
	{"dctcp", 10, 0, true, 1448, 5, ""}:    {0.9, 1.1},
	{"dctcp", 100, 0, true, 1448, 20, ""}:  {0.8, 0.9},
	{"dctcp", 10, 0, false, 8948, 5, ""}:   {0.9, 1.1},
	{"dctcp", 100, 0, false, 8948, 20, ""}: {0.9, 1.1},
}

// dctcpExceptions are those of exceptions that are DCTCP's.
func dctcpExceptions(yield func(cell) bool) {
	for c := range exceptions {
		if c.name == "dctcp" && !yield(c) {
			return
		}
	}
}

// Every cell is within a tenth of the model of its algorithm, or stands in exceptions.
func TestTableAgreesWithModel(t *testing.T) {
	rows := readTable(t, golden)
	started := map[cell]bool{} // whose exception is computed: tens of transfers of the model each
	for _, c := range sample.Of(t, 1, slices.Collect(dctcpExceptions)) {
		started[c] = true
	}
	for _, c := range cells() {
		if c.more == "rate" {
			continue // the model knows no policer: its part is of a queue as long as the bucket
		}
		p := rows[c.String()]
		ratio := p.measured / p.modelled
		part, excepted := exceptions[c]
		if !excepted {
			part = [2]float64{0.9, 1.1}
		} else if ratio >= 0.9 && ratio <= 1.1 {
			t.Errorf("%s: no exception any more", p.text)
		}
		low, high := p.modelled, p.modelled
		if excepted && c.name == "dctcp" {
			if !started[c] {
				continue
			}
			low, high = startsOfSlowStart(c)
		}
		if p.measured < part[0]*low || p.measured > part[1]*high {
			t.Errorf("%s: not within %v of %.0f to %.0f", p.text, part, low, high)
		}
	}
}

// startsOfSlowStart is the least and the most that the model gives for initial windows from one of
// c's to twice that.
func startsOfSlowStart(c cell) (low, high float64) {
	for iw := 10; iw <= 20; iw++ {
		p := c.path()
		p.InitialWindow = iw
		mbit := ccmodel.Goodput(c.name, p, c.seconds) / 1e6
		if low == 0 || mbit < low {
			low = mbit
		}
		high = max(high, mbit)
	}
	return low, high
}

// The table's model is the model's.
func TestModelOfTheTable(t *testing.T) {
	rows := readTable(t, golden)
	list := slices.DeleteFunc(cells(), func(c cell) bool {
		return c.late || rows[c.String()].sent > cheapMax && c.loss != 0 || c.rttMs == 100 && c.loss == 0
	})
	require.GreaterOrEqual(t, len(list), 20)
	for _, c := range sample.Of(t, 5, list) {
		require.InEpsilon(t, rows[c.String()].modelled, c.modelled(), 0.05, c)
	}
}

// documented is c as docs/results/links.tsv says it: Mbit/s, and what part of the model's that is.
func (p parsed) documented() string {
	return fmt.Sprintf("%.4g, %.2f", p.measured, p.measured/p.modelled)
}

// docs/results/links.tsv is what the golden file says. Failing, it prints what must stand there.
func TestDocument(t *testing.T) {
	text, err := os.ReadFile("../../../docs/results/links.tsv")
	require.NoError(t, err)
	rows := readTable(t, golden)
	var table strings.Builder
	table.WriteString("link\toctets in a segment\tRTT, ms\tloss, %\treno\treno, late\tcubic\tcubic, " +
		"late\tdctcp\tdctcp, late\n")
	for _, smss := range []int{1448, 8948} {
		for _, d := range duration {
			for i, loss := range losses {
				fmt.Fprintf(&table, "losses\t%d\t%g\t%g", smss, d.rttMs, loss)
				for _, name := range []string{"reno", "cubic", "dctcp"} {
					for _, late := range []bool{false, true} {
						table.WriteString("\t")
						if !late || smss == 1448 {
							p := rows[cell{name, d.rttMs, loss, late, smss, d.seconds[i], ""}.String()]
							table.WriteString(p.documented())
						}
					}
				}
				table.WriteString("\n")
			}
		}
	}
	table.WriteString(besides(runCells(), rows) + besides(policedCells(), rows))
	require.Equal(t, table.String(), string(text), "docs/results/links.tsv must be:\n%s", &table)
}

// besides is the table of cells that two algorithms have, each twice: nothing late, and late.
func besides(list []cell, rows map[string]parsed) string {
	var table strings.Builder
	half := len(list) / 2
	for i := 0; i < half; i += 2 {
		c := list[i]
		if c.more == "runs" {
			fmt.Fprintf(&table, "runs of 8\t1448\t%g\t%g", c.rttMs, c.loss)
		} else {
			fmt.Fprintf(&table, "policer, %d Mbit/s\t1448\t%g\t", c.link().PolicedBits/1_000_000, c.rttMs)
		}
		for _, at := range []int{i, i + 1, half + i, half + i + 1} {
			table.WriteString("\t" + rows[list[at].String()].documented())
		}
		table.WriteString("\t\t\n")
	}
	return table.String()
}

// worseMax is how much of its goodput a cell may lose from one table to the next.
const worseMax = 0.03

// compare wants that no cell has less than it had in an earlier table, except worseMax.
func compare(t *testing.T, is map[string]parsed) {
	was := readTable(t, *before)
	var list []string
	for _, c := range cells() {
		b, ok := was[c.String()]
		if !ok {
			t.Errorf("%v is not in %s", c, *before)
			continue
		}
		ratio := is[c.String()].measured / b.measured
		list = append(list, fmt.Sprintf("%.4f %v: %s, was %s", ratio, c, digits(is[c.String()].measured),
			digits(b.measured)))
		if ratio < 1-worseMax {
			t.Errorf("%v: %s Mbit/s, was %s", c, digits(is[c.String()].measured), digits(b.measured))
		}
	}
	slices.Sort(list)
	t.Logf("now part of what it was, of %d cells:\n%s", len(list), strings.Join(list, "\n"))
}
