// Package yard compares speeds on a machine that other programs use too. Contenders take turns on
// two pinned cores, in slices of about 20 ms, so that other programs disturb all of them alike.
// The results are ratios of one run: of the best deciles (what the code can do) and of the
// medians (what it did here), with the spread of the ratios of neighbouring slices.
package yard

import (
	"math"
	"slices"
)

// Series is what one Contender did in its slices.
type Series struct {
	Name  string
	Unit  string
	Rates []float64 // a second, by turn; 0: nothing was done
	Apart []float64 // what Crew.Apart said before each; none: it was not asked
	Lost  int       // slices in which a thread lost its core
}

// Quantile is the value below which the part q of values lies; of none it is not a number.
func Quantile(values []float64, q float64) float64 {
	if len(values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(values))
	at := q * float64(len(sorted)-1)
	i := int(at)
	if i+1 == len(sorted) {
		return sorted[i]
	}
	return sorted[i] + (at-float64(i))*(sorted[i+1]-sorted[i])
}

// Best is the best decile, Median the median.
func (s *Series) Best() float64   { return Quantile(s.Rates, 0.9) }
func (s *Series) Median() float64 { return Quantile(s.Rates, 0.5) }

// Value is a figure with its spread.
type Value struct {
	Best, Median float64
	Low, High    float64 // quartiles
	Slices, Lost int
}

// Rate is what s does times factor: a unit, or a part for a core.
func Rate(s *Series, factor float64) Value {
	return Value{s.Best() * factor, s.Median() * factor, Quantile(s.Rates, 0.25) * factor,
		Quantile(s.Rates, 0.75) * factor, len(s.Rates), s.Lost}
}

// Cost is the time that one unit of work takes, times factor: the best is the least.
func Cost(s *Series, factor float64) Value {
	v := Rate(s, 1)
	return Value{factor / v.Best, factor / v.Median, factor / v.High, factor / v.Low, v.Slices, v.Lost}
}

// Ratio is a to b. The quartiles are those of slices with the same turn.
func Ratio(a, b *Series) Value {
	var pairs []float64
	for i := range min(len(a.Rates), len(b.Rates)) {
		if b.Rates[i] > 0 {
			pairs = append(pairs, a.Rates[i]/b.Rates[i])
		}
	}
	return Value{
		Best: a.Best() / b.Best(), Median: a.Median() / b.Median(), Low: Quantile(pairs, 0.25),
		High:   Quantile(pairs, 0.75),
		Slices: len(pairs), Lost: a.Lost + b.Lost,
	}
}

// Samples is a Value of figures that are not rates: the best is the least.
func Samples(values []float64) Value {
	return Value{Quantile(values, 0.1), Quantile(values, 0.5), Quantile(values, 0.25),
		Quantile(values, 0.75), len(values), 0}
}
