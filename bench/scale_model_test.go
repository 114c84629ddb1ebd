package bench

import (
	"flag"
	"fmt"
	"math"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/testhost"
)

// The model of docs/results/scale.md: what hosts need whose processes are all connected, from what
// connections cost here.

const (
	scaleFile     = resultsDir + "/scale.tsv"
	scaleDocument = resultsDir + "/scale.md"
)

var scaleUpdate = flag.Bool("scale.update", false,
	"write the tables of docs/results/scale.md that scale.tsv and the model say")

// scaleTable has the measured figures, by "over conns figure": median, least, most.
type scaleTable map[string][3]float64

func scaleKey(over string, conns int, figure string) string {
	return fmt.Sprintf("%s\t%d\t%s", over, conns, figure)
}

func (t scaleTable) add(over string, conns int, figure string, v yard.Value) {
	t[scaleKey(over, conns, figure)] = [3]float64{v.Median, v.Low, v.High}
}

func (t scaleTable) String() string {
	var b strings.Builder
	b.WriteString("over\tconnections\tfigure\tmedian\tlow\thigh\n")
	for _, over := range []string{"sockets", "memif", "switch"} {
		for _, conns := range []int{0, 2, 10, 16, 1000, 10_000} {
			for _, figure := range scaleFigures {
				if v, is := t[scaleKey(over, conns, figure)]; is {
					fmt.Fprintf(&b, "%s\t%.5g\t%.5g\t%.5g\n", scaleKey(over, conns, figure), v[0], v[1], v[2])
				}
			}
		}
	}
	return b.String()
}

var scaleFigures = []string{"setup", "setup-wall", "idle", "heap", "kernel", "used", "message",
	"few", "rest", "rate", "place", "ratio", "frames"}

func readScale(text string) (scaleTable, error) {
	t := scaleTable{}
	for i, line := range strings.Split(strings.TrimSpace(text), "\n") {
		words := strings.Split(line, "\t")
		if i == 0 {
			continue
		}
		if len(words) != 6 {
			return nil, fmt.Errorf("line %d: %q", i+1, line)
		}
		var v [3]float64
		for k := range v {
			var err error
			if v[k], err = strconv.ParseFloat(words[3+k], 64); err != nil {
				return nil, fmt.Errorf("line %d: %w", i+1, err)
			}
		}
		t[strings.Join(words[:3], "\t")] = v
	}
	return t, nil
}

// of is the median of a figure for so many connections of a process. Between two measured numbers
// it is a line over the number's logarithm; beyond them it stays.
func (t scaleTable) of(over, figure string, conns int) float64 {
	at := func(n int) float64 { return t[scaleKey(over, n, figure)][0] }
	between := func(low, high int) float64 {
		part := math.Log(float64(conns)/float64(low)) / math.Log(float64(high)/float64(low))
		return at(low) + part*(at(high)-at(low))
	}
	switch {
	case conns <= 10:
		return at(10)
	case conns <= 1000:
		return between(10, 1000)
	case conns <= 10_000:
		return between(1000, 10_000)
	}
	return at(10_000)
}

// layout is hosts with so many processes each, every two of which have a connection.
type layout struct{ hosts, processes int }

// each is how many connections a process has.
func (l layout) each() int { return l.hosts*l.processes - 1 }

// ends are those on a host.
func (l layout) ends() int { return l.processes * l.each() }

// Of the model's example: depths of the queues, receive buffers of an end and of a shared queue,
// and messages that a process sends a second.
const (
	modelDepth   = 128
	modelBuffer  = 4096 // octets
	modelShared  = 4096 // buffers
	modelSendsPS = 10_000
)

// memory is what a host's ends take, in GiB, without receive buffers.
func (t scaleTable) memory(over string, l layout) float64 {
	end := t.of(over, "used", l.each()) + t.of(over, "kernel", l.each())*slabPart(over) +
		t[scaleKey(over, 0, "place")][0]*(modelDepth-seldomSlots)/1024
	return float64(l.ends()) * end / (1 << 20)
}

// slabPart is 1 where the kernel has sockets of the connections.
func slabPart(over string) float64 {
	if over == "sockets" {
		return 1
	}
	return 0
}

// buffers are the receive buffers of a host in GiB: of each end, or of a shared queue a process.
func buffers(l layout, shared bool) float64 {
	if shared {
		return float64(l.processes) * modelShared * modelBuffer / (1 << 30)
	}
	return float64(l.ends()) * modelDepth * modelBuffer / (1 << 30)
}

// setUp is the processor time in s that a host needs to make its ends.
func (t scaleTable) setUp(over string, l layout) float64 {
	return float64(l.ends()) * t.of(over, "setup", l.each()) / 2 / 1e6
}

// cores are those of a host whose processes send modelSendsPS messages a second each, to all in
// turn, and receive as many.
func (t scaleTable) cores(over string, l layout) float64 {
	return float64(l.processes) * modelSendsPS * t.of(over, "message", l.each()) / 1e6
}

// frames are those that pass a host's switch a second, of messages in a frame each and an ACK for
// two.
func frames(l layout) float64 { return float64(l.processes) * modelSendsPS * 2 * 1.5 }

var modelLayouts = []layout{{2, 8}, {16, 64}, {64, 64}, {256, 64}}

// modelTable is the model's table in the document.
func (t scaleTable) modelTable() string {
	var b strings.Builder
	b.WriteString("| hosts x processes | connections of a process | ends on a host | " +
		"memory of a host, sockets; ours | set-up, s of processor, sockets; ours | " +
		"cores of a host, sockets; ours | switch, % of a core | " +
		"receive buffers of a host, each end its own; shared |\n|---|---|---|---|---|---|---|---|\n")
	for _, l := range modelLayouts {
		fmt.Fprintf(&b, "| %d x %d | %d | %d | %s; %s | %s; %s | %s; %s | %s | %s; %s |\n", l.hosts,
			l.processes, l.each(), l.ends(),
			gib(t.memory("sockets", l)), gib(t.memory("memif", l)),
			short(t.setUp("sockets", l)), short(t.setUp("memif", l)),
			short(t.cores("sockets", l)), short(t.cores("memif", l)),
			short(100*frames(l)/t[scaleKey("switch", switchModel, "frames")][0]),
			gib(buffers(l, false)), gib(buffers(l, true)))
	}
	return b.String()
}

// measuredTable is that of the measured figures: medians.
func (t scaleTable) measuredTable() string {
	names := map[string]string{
		"setup":   "set-up of a connection, both ends, us of processor",
		"idle":    "an idle end, resident, KiB",
		"kernel":  "an end, the kernel's slabs, KiB",
		"used":    "an end after messages, resident, KiB",
		"message": "a message, all connections in turn, both ends, us of processor",
		"few":     "a message, 10 of them, the others rest, us of processor",
		"rest":    "a second without messages, us of processor",
		"rate":    "as fast as they go, messages a second",
	}
	var b strings.Builder
	b.WriteString("| connections | sockets, 10 | 1,000 | 10,000 | memif, 10 | 1,000 | 10,000 |\n" +
		"|---|---|---|---|---|---|---|\n")
	for _, figure := range scaleFigures {
		if names[figure] == "" {
			continue
		}
		fmt.Fprintf(&b, "| %s |", names[figure])
		for _, over := range []string{"sockets", "memif"} {
			for _, n := range []int{10, 1000, 10_000} {
				if figure == "kernel" && (over == "memif" || n < 1000) { // none, or lost in the rest
					b.WriteString(" |")
					continue
				}
				fmt.Fprintf(&b, " %s |", short(t[scaleKey(over, n, figure)][0]))
			}
		}
		b.WriteString("\n")
	}
	return b.String()
}

// sharedTable is that of the figures which no number of connections changes.
func (t scaleTable) sharedTable() string {
	var b strings.Builder
	b.WriteString("| | sockets | memif |\n|---|---|---|\n")
	row := func(name string, of func(over string) string) {
		fmt.Fprintf(&b, "| %s | %s | %s |\n", name, of("sockets"), of("memif"))
	}
	spread := func(over string, n int, figure string) string {
		v := t[scaleKey(over, n, figure)]
		return fmt.Sprintf("%s (%s to %s)", short(v[0]), short(v[1]), short(v[2]))
	}
	place := func(over string) float64 { return t[scaleKey(over, 0, "place")][0] }
	row("a place more of both queues, with completions, octets of heap an end",
		func(over string) string { return short(place(over)) })
	row(fmt.Sprintf("a depth of %d, the default, instead of %d, KiB of heap an end more", modelDepth,
		seldomSlots), func(over string) string {
		return short(place(over) * (modelDepth - seldomSlots) / 1024)
	})
	row("a message of 1,000 connections to one of 10, by pairs; the goal is 1.5",
		func(over string) string { return spread(over, 0, "ratio") })
	row("packet buffers of a port, however many connections, MiB", func(over string) string {
		if over == "sockets" {
			return ""
		}
		return short(float64(testhost.PoolConfig(scaleBufs, 1500).Bytes()) / (1 << 20))
	})
	b.WriteString("\n| a switch of | frames a second, of 66 octets |\n|---|---|\n")
	for _, n := range switchPrograms {
		fmt.Fprintf(&b, "| %d programs | %s |\n", n, spread("switch", n, "frames"))
	}
	return b.String()
}

// short is v with three digits at most, or as a whole number.
func short(v float64) string {
	switch {
	case math.Abs(v) >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	case math.Abs(v) >= 10:
		return strconv.FormatFloat(v, 'f', 1, 64)
	}
	return strconv.FormatFloat(v, 'f', 2, 64)
}

func gib(v float64) string {
	if v < 1 {
		return short(v*1024) + " MiB"
	}
	return short(v) + " GiB"
}

// The document's tables are what the figures of scale.tsv and the model say.
func TestScaleDocument(t *testing.T) {
	text := must(os.ReadFile(scaleFile))(t)
	table := must(readScale(string(text)))(t)
	require.Equal(t, string(text), table.String(), "%s is written by the part scale", scaleFile)
	doc := must(os.ReadFile(scaleDocument))(t)
	want := string(doc)
	for name, part := range map[string]string{"measured": table.measuredTable(),
		"shared": table.sharedTable(),
		"model":  table.modelTable()} {
		begin, end := fmt.Sprintf("<!-- %s -->\n", name), fmt.Sprintf("<!-- /%s -->\n", name)
		head, rest, ok := strings.Cut(want, begin)
		require.True(t, ok, begin)
		_, tail, ok := strings.Cut(rest, end)
		require.True(t, ok, end)
		want = head + begin + part + end + tail
	}
	if *scaleUpdate {
		require.NoError(t, os.WriteFile(scaleDocument, []byte(want), 0o644))
		return
	}
	require.Equal(t, want, string(doc), "run go test ./bench -run TestScaleDocument -scale.update")
}

// The model by hand: 3 hosts of 2 processes have 5 connections a process, 10 ends a host. Between
// measured numbers a figure lies between its neighbours.
func TestScaleModel(t *testing.T) {
	l := layout{3, 2}
	require.Equal(t, []int{5, 10}, []int{l.each(), l.ends()})
	require.Equal(t, []int{1, 1}, []int{layout{2, 1}.each(), layout{2, 1}.ends()})
	table := scaleTable{}
	for n, v := range map[int]float64{10: 10, 1000: 20, 10_000: 40} {
		for _, figure := range []string{"message", "setup", "used", "kernel"} {
			table.add("sockets", n, figure, exactly(v, 1))
		}
	}
	table.add("sockets", 0, "place", exactly(1024, 1))
	require.InDelta(t, 15, table.of("sockets", "message", 100), 1e-9)
	require.InDelta(t, 10, table.of("sockets", "message", 2), 1e-9)
	require.InDelta(t, 40, table.of("sockets", "message", 1<<20), 1e-9)
	require.InDelta(t, 10*10.0/2/1e6, table.setUp("sockets", l), 1e-12)
	require.InDelta(t, 2*modelSendsPS*10/1e6, table.cores("sockets", l), 1e-12)
	require.InDelta(t, 10*(10+10+modelDepth-seldomSlots)/float64(1<<20), table.memory("sockets", l),
		1e-12)
	require.InDelta(t, 10*modelDepth*modelBuffer/float64(1<<30), buffers(l, false), 1e-12)
	require.InDelta(t, 2*modelShared*modelBuffer/float64(1<<30), buffers(l, true), 1e-12)
	again := must(readScale(table.String()))(t)
	require.Equal(t, table, again)
}
