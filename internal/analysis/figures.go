package analysis

import (
	"fmt"

	"github.com/rnicd/rnicd/bench/plot"
)

// Figures of the document, by their file's name.
func Figures(v Values) map[string]string {
	return map[string]string{
		"connections.svg": connectionsFigure(v).SVG(),
		"loss.svg":        lossFigure(v).SVG(),
		"segments.svg":    segmentsFigure(v).SVG(),
	}
}

func connectionsFigure(v Values) *plot.Plot {
	p := &plot.Plot{
		Title: "Packet buffers in use at 1 Gbit/s",
		X:     plot.Axis{Label: "connections", Log: true},
		Y: plot.Axis{Label: "buffers of one segment each, at the peak", Log: true, Ticks: []plot.Tick{
			{At: 1, Name: "1"}, {At: 10, Name: "10"}, {At: 100, Name: "100"}, {At: 1000, Name: "1,000"},
			{At: 10_000, Name: "10,000"}, {At: 100_000, Name: "100,000"}}},
	}
	for _, n := range connCounts {
		p.X.Ticks = append(p.X.Ticks, plot.Tick{At: float64(n), Name: fmt.Sprint(n)})
	}
	add := func(name string, loss float64, kind string) {
		s := plot.Series{Name: fmt.Sprintf("%s, %g %%", name, loss)}
		for _, n := range connCounts {
			s.Points = append(s.Points, [2]float64{float64(n), float64(v[connKey(n, loss, kind)][mBufs])})
		}
		p.Series = append(p.Series, s)
	}
	add("aligned, markers", 1, "aligned+markers")
	add("aligned, no markers", 1, "aligned")
	add("unaligned, no markers", 0, "unaligned")
	add("unaligned, markers", 1, "unaligned+markers")
	add("plain TCP", 1, "plain")
	naf := plot.Series{Name: "one EMSS per connection", Dashed: true}
	for _, n := range connCounts {
		naf.Points = append(naf.Points, [2]float64{float64(n), float64(n)})
	}
	p.Series = append(p.Series, naf)
	return p
}

func lossFigure(v Values) *plot.Plot {
	p := &plot.Plot{
		Title: fmt.Sprintf("Octets held by %d connections with 2.5 MB in flight", lossConns),
		X:     plot.Axis{Label: "segments lost, percent", Log: true},
		Y: plot.Axis{Label: "octets held, on average", Log: true, Ticks: []plot.Tick{
			{At: 100, Name: "0"}, {At: 1000, Name: "1 kB"}, {At: 10_000, Name: "10 kB"},
			{At: 100_000, Name: "100 kB"}, {At: 1_000_000, Name: "1 MB"}, {At: 10_000_000, Name: "10 MB"}}},
	}
	for _, loss := range lossLosses {
		if loss > 0 {
			p.X.Ticks = append(p.X.Ticks, plot.Tick{At: loss, Name: fmt.Sprint(loss)})
		}
	}
	for _, k := range kinds {
		s := plot.Series{Name: k.name}
		for _, t := range p.X.Ticks {
			s.Points = append(s.Points, [2]float64{t.At, float64(v[lossKey(t.At, k.key)][mMean])})
		}
		p.Series = append(p.Series, s)
	}
	return p
}

func segmentsFigure(v Values) *plot.Plot {
	p := &plot.Plot{
		Title: "Segments for a backlog of messages of one FPDU each",
		X: plot.Axis{Label: "octets of the FPDU (EMSS is 1448)",
			Ticks: []plot.Tick{{At: 0, Name: "0"}, {At: 362, Name: "362"}, {At: 724, Name: "724"},
				{At: 1086, Name: "1086"}, {At: 1448, Name: "1448"}}},
		Y: plot.Axis{Label: "segments, of what a TCP without FPDUs needs (3: or more)",
			Ticks: []plot.Tick{{At: 1, Name: "1"}, {At: 1.5, Name: "1.5"}, {At: 2, Name: "2"},
				{At: 2.5, Name: "2.5"}, {At: 3, Name: "3"}}},
	}
	for _, c := range []struct {
		name  string
		value int
		least int
	}{{"packed", sNow, sMinimum}, {"packed, markers", sMarkersNow, sMarkersMinimum},
		{"cut to fill segments", sFull, sMinimum}, {"one FPDU per segment", sAlone, sMinimum}} {
		s := plot.Series{Name: c.name}
		for _, n := range fpduSizes {
			cell := v[fmt.Sprintf("fpdu %d", n)]
			s.Points = append(s.Points,
				[2]float64{float64(n), float64(cell[c.value]) / float64(cell[c.least])})
		}
		p.Series = append(p.Series, s)
	}
	return p
}
