package analysis

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/rnic"
)

// The link of the drafts' example: 1 Gbit/s, an EMSS of 1500. The rest is ours: a round trip of 10
// ms, and a receiving host that looks at its queue every 50 microseconds.
const (
	exampleBits = 1_000_000_000
	exampleRTT  = 10_000_000
	exampleEMSS = 1500
	examplePoll = 50_000
	exampleNs   = 2_000_000_000 // of a run, at that rate
)

// kinds of sender and receiver, as the tables name them.
var kinds = []struct {
	name, key string
	apply     func(s *Setup)
}{
	{"aligned, markers", "aligned+markers", func(s *Setup) { s.Markers = true }},
	{"aligned, no markers", "aligned", func(*Setup) {}},
	{"unaligned, markers", "unaligned+markers", func(s *Setup) {
		s.Unaligned, s.Markers = true, true
	}},
	{"unaligned, no markers", "unaligned", func(s *Setup) { s.Unaligned = true }},
	{"plain TCP", "plain", func(s *Setup) { s.Unaligned, s.Buffered = true, true }},
}

var (
	connCounts = []int{10, 100, 1000, 10_000}
	connLosses = []float64{0, 0.1, 1}            // percent
	lossLosses = []float64{0, 0.1, 0.5, 1, 2, 5} // percent
	paths      = []path{{100, 1}, {100, 10}, {1000, 1}, {1000, 10}, {1000, 100}, {10_000, 1},
		{10_000, 10}}
	fpduSizes  = []int{96, 180, 360, 480, 484, 720, 724, 728, 732, 1000, 1444, 1448}
	writeSizes = []int{2 << 10, 4 << 10, 64 << 10, 1 << 20}
)

const lossConns = 10

type path struct {
	mbit  int64
	rttMs float64
}

func (p path) product() int { return int(float64(p.mbit) * p.rttMs * 125) }

// example is the setup of conns connections, each with its share of two bandwidth-delay products in
// flight, but at least four segments: with fewer, losses are found by timeouts only.
func example(conns int, lossPercent float64, kind string) Setup {
	window := 2 * exampleBits / 8_000 * (exampleRTT / 1_000_000) / conns
	window = max(window/exampleEMSS, 4) * exampleEMSS
	s := Setup{Conns: conns, BitsPerSecond: exampleBits, RTTNs: exampleRTT, PollNs: examplePoll,
		Loss: lossPercent / 100,
		EMSS: exampleEMSS, WindowBytes: window, Seed: 1}
	applyKind(&s, kind)
	return s
}

func applyKind(s *Setup, kind string) {
	for _, k := range kinds {
		if k.key == kind {
			k.apply(s)
			return
		}
	}
	panic("analysis: no such kind: " + kind)
}

// Cell of a table: what is measured at once.
type Cell struct {
	Key     string
	Quick   bool // measured in every run of the tests
	Measure func() []int
}

// memory is a Cell of Run.
func memory(key string, s Setup, ns int64, quick bool) Cell {
	return Cell{Key: key, Quick: quick, Measure: func() []int {
		r := Run(s, ns)
		return []int{r.Bufs, r.Hand, r.Held, r.Mean, int(r.Segments), int(r.Lost), int(r.Placed),
			int(r.Direct)}
	}}
}

// What the values of a memory cell are.
const (
	mBufs = iota
	mHand
	mHeld
	mMean
	mSegments
	mLost
	mPlaced
	mDirect
)

// Cells of all tables, in their order.
func Cells() []Cell {
	var all []Cell
	for _, n := range connCounts {
		for _, loss := range connLosses {
			for _, k := range kinds {
				quick := n <= 100 || n == 10_000 && loss == 0 && k.key != "plain" &&
					k.key != "unaligned+markers"
				all = append(all, memory(connKey(n, loss, k.key), example(n, loss, k.key), exampleNs, quick))
			}
		}
	}
	for _, loss := range lossLosses {
		for _, k := range kinds {
			all = append(all, memory(lossKey(loss, k.key), example(lossConns, loss, k.key), exampleNs,
				loss == 0.5 || loss == 5))
		}
	}
	for _, p := range paths {
		for _, kind := range []string{"aligned+markers", "plain"} {
			all = append(all, memory(pathKey(p, kind), oneLoss(p, kind), int64(8e6*p.rttMs),
				p.product() < 2<<20))
		}
	}
	for _, n := range fpduSizes {
		all = append(all, segments("fpdu", n, MessageFor(n)))
	}
	for _, n := range writeSizes {
		all = append(all, segments("write", n, n))
	}
	return all
}

func connKey(conns int, loss float64, kind string) string {
	return fmt.Sprintf("connections %d %g %s", conns, loss, kind)
}
func lossKey(loss float64, kind string) string { return fmt.Sprintf("loss %g %s", loss, kind) }
func pathKey(p path, kind string) string {
	return fmt.Sprintf("path %d %g %s", p.mbit, p.rttMs, kind)
}

// oneLoss is one connection that fills a path, from whose flow one segment is lost once it does.
func oneLoss(p path, kind string) Setup {
	window := p.product() / exampleEMSS * exampleEMSS
	n := uint64(3 * window / exampleEMSS)
	s := Setup{Conns: 1, BitsPerSecond: p.mbit * 1_000_000, RTTNs: int64(p.rttMs * 1e6),
		PollNs: examplePoll, EMSS: exampleEMSS,
		WindowBytes: window, Seed: 1, Lose: func(sent uint64) bool { return sent == n }}
	applyKind(&s, kind)
	return s
}

// What the values of a cell about segments are.
const (
	sEMSS = iota
	sMinimum
	sNow // segments with rnic.PackNow
	sFull
	sAlone
	sAnswers
	sMarkersMinimum
	sMarkersNow
)

// backlog is how many octets of messages are sent, about.
const backlog = 2 << 20

func segments(table string, n, message int) Cell {
	return Cell{Key: fmt.Sprintf("%s %d", table, n), Quick: true, Measure: func() []int {
		m := Messages{Octets: message, Count: max(min(backlog/message, 2000), 8)}
		now := mustRun(m)
		m.Packing = rnic.PackFull
		full := mustRun(m)
		m.Packing, m.Alone = rnic.PackNow, true
		alone := mustRun(m)
		m.Alone, m.Markers = false, true
		marked := mustRun(m)
		return []int{now.EMSS, now.Minimum(), now.Sent, full.Sent, alone.Sent, now.Answers,
			marked.Minimum(), marked.Sent}
	}}
}

func mustRun(m Messages) Segments {
	s, err := m.Run()
	if err != nil {
		panic(err)
	}
	return s
}

// Values by the key of their cell.
type Values map[string][]int

// Line is how the golden file has a cell.
func Line(key string, values []int) string {
	s := key + ":"
	for _, v := range values {
		s += " " + strconv.Itoa(v)
	}
	return s
}

// Parse reads a golden file.
func Parse(text string) (Values, error) {
	all := Values{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		key, rest, ok := strings.Cut(line, ":")
		if !ok {
			return nil, fmt.Errorf("analysis: %q is no cell", line)
		}
		for f := range strings.FieldsSeq(rest) {
			n, err := strconv.Atoi(f)
			if err != nil {
				return nil, err
			}
			all[key] = append(all[key], n)
		}
	}
	return all, nil
}

// Tables of the document, tabs between cells, by the names of their files without the ending.
func Tables(v Values) map[string]string {
	return map[string]string{
		"connections": connectionsTable(v), "loss": lossTable(v), "paths": pathsTable(v),
		"segments": segmentsTable(v),
	}
}

// head is the first line of a table.
func head(columns ...string) string { return strings.Join(columns, "\t") + "\n" }

func kindNames() (names []string) {
	for _, k := range kinds {
		names = append(names, k.name)
	}
	return names
}

func connectionsTable(v Values) string {
	var b strings.Builder
	b.WriteString(head(append([]string{"connections", "in flight", "loss %"}, kindNames()...)...))
	for _, n := range connCounts {
		for _, loss := range connLosses {
			fmt.Fprintf(&b, "%d\t%d\t%g", n, n*example(n, loss, "plain").WindowBytes/exampleEMSS, loss)
			for _, k := range kinds {
				fmt.Fprintf(&b, "\t%d", v[connKey(n, loss, k.key)][mBufs])
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

// kilo is so many octets in kB, with three digits.
func kilo(octets int) string {
	if octets == 0 {
		return "0"
	}
	if octets < 100_000 {
		return fmt.Sprintf("%.3g", float64(octets)/1000)
	}
	return strconv.Itoa((octets + 500) / 1000)
}

func lossTable(v Values) string {
	var b strings.Builder
	b.WriteString(head(append([]string{"loss %"}, kindNames()...)...))
	for _, loss := range lossLosses {
		fmt.Fprintf(&b, "%g", loss)
		for _, k := range kinds {
			c := v[lossKey(loss, k.key)]
			fmt.Fprintf(&b, "\t%s, %s", kilo(c[mMean]), kilo(c[mHeld]))
		}
		b.WriteString("\n")
	}
	return b.String()
}

func pathsTable(v Values) string {
	var b strings.Builder
	b.WriteString(head("Mbit/s", "round trip, ms", "bandwidth x delay, kB", "plain TCP holds, kB", "K",
		"aligned, markers: holds, kB", "buffers in hand"))
	for _, p := range paths {
		plain, placing := v[pathKey(p, "plain")], v[pathKey(p, "aligned+markers")]
		fmt.Fprintf(&b, "%d\t%g\t%s\t%s\t%.2f\t%s\t%d\n", p.mbit, p.rttMs, kilo(p.product()),
			kilo(plain[mHeld]),
			float64(plain[mHeld])/float64(p.product()), kilo(placing[mHeld]), placing[mBufs])
	}
	return b.String()
}

func segmentsTable(v Values) string {
	var b strings.Builder
	b.WriteString(head("messages of", "least", "packed", "of the least", "average / EMSS",
		"with markers, of the least", "PackFull, of the least", "one at a time, of the least"))
	row := func(name, key string) {
		c := v[key]
		least := float64(c[sMinimum])
		fmt.Fprintf(&b, "%s\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.2f\n", name, c[sMinimum], c[sNow],
			float64(c[sNow])/least,
			least/float64(c[sNow]), float64(c[sMarkersNow])/float64(c[sMarkersMinimum]),
			float64(c[sFull])/least, float64(c[sAlone])/least)
	}
	for _, n := range fpduSizes {
		row(fmt.Sprintf("one FPDU of %d", n), fmt.Sprintf("fpdu %d", n))
	}
	for _, n := range writeSizes {
		row(fmt.Sprintf("%d KiB", n>>10), fmt.Sprintf("write %d", n))
	}
	return b.String()
}
