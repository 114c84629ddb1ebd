package yard

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

func TestQuantiles(t *testing.T) {
	s := &Series{Rates: []float64{50, 10, 40, 20, 30}}
	require.Equal(t, 30.0, s.Median())
	require.Equal(t, 46.0, s.Best())
	require.Equal(t, 10.0, Quantile(s.Rates, 0))
	require.Equal(t, 50.0, Quantile(s.Rates, 1))
	require.True(t, math.IsNaN(Quantile(nil, 0.5)))
	require.Equal(t, []float64{50, 10, 40, 20, 30}, s.Rates, "the turns stay in order")
}

// A ratio is that of the deciles and of the medians; its spread is that of slices side by side, so
// that what slowed both down does not show.
func TestRatio(t *testing.T) {
	a, b := &Series{Lost: 1}, &Series{Lost: 2}
	for i := range 100 {
		a.Rates = append(a.Rates, float64(2*(i+1)))
		b.Rates = append(b.Rates, float64(i+1))
	}
	require.Equal(t, Value{2, 2, 2, 2, 100, 3}, Ratio(a, b))
	b.Rates[7] = 0 // nothing was done in it
	v := Ratio(a, b)
	require.Equal(t, 99, v.Slices)
	require.Equal(t, 2.0, v.High)
}

// The cores of this machine are some nanoseconds from each other. One that works alone is far
// from none.
func TestApart(t *testing.T) {
	crew, err := NewCrew()
	if err != nil {
		skip.Missing(t, "%v", err)
	}
	defer crew.Close()
	alone, beside := spinner("one core", new(int)), spinner("two", new(int))
	beside.Right = func(s *Slice) {
		for !s.Over() {
		}
	}
	taken, err := crew.Take(3, time.Millisecond, alone, beside)
	require.NoError(t, err)
	require.Empty(t, taken[0].Apart)
	require.Len(t, taken[1].Apart, 3)
	for _, apart := range taken[1].Apart {
		require.Greater(t, apart, 5.0)
		require.Less(t, apart, 1e6)
	}
}

// Of a cost the best is the least.
func TestCost(t *testing.T) {
	s := &Series{Rates: []float64{1e9, 2e9, 4e9}}
	v := Cost(s, 1e9)
	require.Equal(t, 0.5, v.Median)
	require.Less(t, v.Best, v.Median)
	require.Less(t, v.Low, v.High)
	require.Equal(t, Value{Best: 2.4, Median: 4, Low: 3, High: 5, Slices: 3},
		Samples([]float64{6, 4, 2}))
}

func TestStates(t *testing.T) {
	for want, r := range map[string]Row{
		Met:     {Goal: Goal{Want: 2}, Value: Value{Best: 3, Median: 2}},
		AtBest:  {Goal: Goal{Want: 2}, Value: Value{Best: 3, Median: 1}},
		Short:   {Goal: Goal{Want: 2, AtMost: true}, Value: Value{Best: 3, Median: 3}},
		Missing: {Goal: Goal{Want: 2}},
		Context: {Value: Value{Best: 3}},
	} {
		require.Equal(t, want, r.State())
	}
	require.Equal(t, Missing, Row{Value: Value{Best: math.NaN()}}.State())
}

func TestProcStat(t *testing.T) {
	got, err := parseTimes("cpu  1 2 3 4 5 6 7 80 9 10")
	require.NoError(t, err)
	require.Equal(t, Times{Stolen: 80, All: 108}, got)
	for _, line := range []string{"", "cpu0 1 2 3 4 5 6 7 8", "cpu 1 2 3 4 5 6 7",
		"cpu a 2 3 4 5 6 7 8"} {
		_, err := parseTimes(line)
		require.Error(t, err)
	}
}

// The table, the JSON and the figure have every row, also one that could not be measured.
func TestReport(t *testing.T) {
	r := NewReport(true)
	series := &Series{Name: "s", Unit: "octets/s", Rates: []float64{1, 2},
		Apart: []float64{100, 100, 100, 300, 40}, Lost: 1}
	r.Add([]Row{
		{Name: "fast", Unit: "x", Goal: Goal{Want: 0.7}, Value: Ratio(series, series)},
		{Name: "absent", Unit: "x", Goal: Goal{Want: 4}, Note: "it is not installed"},
		{Name: "slow", Unit: "us", Goal: Goal{Want: 1, AtMost: true},
			Value: Value{Best: 2, Median: math.Inf(1)}},
	}, []*Series{series})
	var b bytes.Buffer
	r.Table(&b)
	require.Contains(t, b.String(), "1 of 2 slices lost a core")
	require.Contains(t, b.String(),
		"took 100 ns from core to core and back (median; 40 to 300); more than twice that, or less "+
			"than half, before 2 of 5 slices.")
	require.Contains(t, b.String(), "| fast | x | at least 0.7 | 1 | 1 | 1 to 1 | 2 | met |")
	require.Contains(t, b.String(),
		"| absent | x | at least 4 | | | | | not measured: it is not installed |")
	path, err := r.Save(t.TempDir())
	require.NoError(t, err)
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	var back struct {
		Rows   []struct{ Name, State string }
		Series []Series
	}
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, []struct {
		Name, State string
	}{{"fast", Met}, {"absent", Missing}, {"slow", Short}}, back.Rows)
	require.Equal(t, *series, back.Series[0])
	require.Len(t, r.Figure().Rows, 2, "what was not measured has no bar")
	require.InDelta(t, 0.5, r.Figure().Rows[1].Value, 1e-9, "at most 1, and it is 2")
}

// spinner counts; it is over when its slice is.
func spinner(name string, n *int) *Contender {
	return &Contender{Name: name, Unit: "turns/s", Left: func(s *Slice) {
		for !s.Over() {
			*n++
			s.Did(1)
		}
	}}
}

// Contenders take turns: never two at once, each as often as asked for and once before.
func TestTurns(t *testing.T) {
	crew, err := NewCrew()
	if err != nil {
		skip.Missing(t, "%v", err)
	}
	defer crew.Close()
	var order []string
	var counts [2]int
	a, b := spinner("a", &counts[0]), spinner("b", &counts[1])
	for _, c := range []*Contender{a, b} {
		left := c.Left
		c.Left = func(s *Slice) { order = append(order, c.Name); left(s) }
		c.Right = func(s *Slice) { // the other core is let go of as well
			for !s.Over() {
			}
		}
	}
	series, err := crew.Take(3, 2*time.Millisecond, a, b)
	require.NoError(t, err)
	require.Equal(t, []string{"a", "b", "a", "b", "b", "a", "a", "b"}, order)
	for i, s := range series {
		require.Len(t, s.Rates, 3)
		require.Positive(t, counts[i])
	}
	failed := errors.New("nothing was right")
	b.Check = func() error { return failed }
	_, err = crew.Take(1, time.Millisecond, a, b)
	require.ErrorIs(t, err, failed)
}

// The first tenth of a slice does not count, and what it is not told of does not either.
func TestSliceRate(t *testing.T) {
	now := time.Now()
	s := &Slice{warm: now.Add(time.Hour)}
	s.Did(5)
	require.Zero(t, s.rate())
	s = &Slice{first: now, last: now.Add(2 * time.Second), work: 10}
	require.Equal(t, 5.0, s.rate())
	s.End()
	require.True(t, s.Over())
}
