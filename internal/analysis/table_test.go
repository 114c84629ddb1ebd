package analysis

import (
	"flag"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/sample"
)

var (
	all = flag.Bool("analysis.all", false,
		"compare every cell with what is measured now, not the quick ones only")
	update = flag.Bool("analysis.update", false,
		"measure every cell again and write the golden file, the tables and the figures in docs")
)

const (
	golden   = "testdata/analysis.golden"
	document = "../../docs/results/analysis.md"
	figures  = "../../docs/results/analysis"
	title    = "# What docs/results/analysis.md and its figures are made of (tables.go says which " +
		"number is what). Written by make analysis.\n"
)

// committed is the golden file.
func committed(t *testing.T) Values {
	t.Helper()
	text, err := os.ReadFile(golden)
	require.NoError(t, err)
	v, err := Parse(string(text))
	require.NoError(t, err)
	return v
}

// measure measures cells, as many at once as there are processors.
func measure(cells []Cell) Values {
	v, mu := Values{}, sync.Mutex{}
	var wait sync.WaitGroup
	next := make(chan Cell)
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for c := range next {
				n := c.Measure()
				mu.Lock()
				v[c.Key] = n
				mu.Unlock()
			}
		})
	}
	for _, c := range cells {
		next <- c
	}
	close(next)
	wait.Wait()
	return v
}

var measured struct {
	sync.Once
	values Values
}

// quickMin is how many of the quick cells a short run measures.
const quickMin = 15

// quick are the cells that every run of the tests measures, once; a short one some of them.
func quick(t *testing.T) Values {
	t.Helper()
	measured.Do(func() {
		var chosen []Cell
		for _, c := range Cells() {
			if c.Quick {
				chosen = append(chosen, c)
			}
		}
		measured.values = measure(sample.Of(t, quickMin, chosen))
	})
	return measured.values
}

// current is what was measured just now, and of the other cells what is committed.
func current(t *testing.T) Values {
	t.Helper()
	v := committed(t)
	for key, values := range quick(t) {
		v[key] = values
	}
	return v
}

// What is committed is what is measured, to the last digit: the quick cells in every run, all with
// -analysis.all.
func TestGolden(t *testing.T) {
	cells := Cells()
	if *update {
		writeAll(t, cells, measure(cells))
	}
	v := committed(t)
	require.Len(t, v, len(cells))
	now := quick(t)
	if *all && !*update {
		now = measure(cells)
	}
	require.GreaterOrEqual(t, len(now), sample.Count(quickMin, len(cells)/3))
	for _, c := range cells {
		if n, ok := now[c.Key]; ok && !*update && Line(c.Key, n) != Line(c.Key, v[c.Key]) {
			t.Errorf("committed is, and is measured:\n%s\n%s", Line(c.Key, v[c.Key]), Line(c.Key, n))
		}
	}
}

func writeAll(t *testing.T, cells []Cell, v Values) {
	var b strings.Builder
	b.WriteString(title)
	for _, c := range cells {
		b.WriteString(Line(c.Key, v[c.Key]) + "\n")
	}
	require.NoError(t, os.MkdirAll("testdata", 0o755))
	require.NoError(t, os.WriteFile(golden, []byte(b.String()), 0o644))
	require.NoError(t, os.MkdirAll(figures, 0o755))
	for name, text := range files(v) {
		require.NoError(t, os.WriteFile(filepath.Join(figures, name), []byte(text), 0o644))
	}
}

// files are the tables and figures in docs, by name.
func files(v Values) map[string]string {
	all := Figures(v)
	for name, table := range Tables(v) {
		all[name+".tsv"] = table
	}
	return all
}

// The tables and figures in docs are what the golden file says.
func TestDocument(t *testing.T) {
	v := committed(t)
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	for name, want := range files(v) {
		file, err := os.ReadFile(filepath.Join(figures, name))
		require.NoError(t, err)
		require.Equal(t, want, string(file), "docs/results/analysis/%s", name)
		require.Contains(t, string(text), "(analysis/"+name+")")
	}
}
