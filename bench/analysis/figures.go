package analysis

import "fmt"

// Figures of the document, by their file's name.
func Figures(v Values) map[string]string {
	return map[string]string{
		"connections.svg": connectionsFigure(v).svg(),
		"loss.svg":        lossFigure(v).svg(),
		"segments.svg":    segmentsFigure(v).svg(),
	}
}

func connectionsFigure(v Values) *plot {
	p := &plot{
		title: "Packet buffers in use at 1 Gbit/s",
		x:     axis{label: "connections", log: true},
		y: axis{label: "buffers of one segment each, at the peak", log: true, ticks: []tick{
			{1, "1"}, {10, "10"}, {100, "100"}, {1000, "1,000"}, {10_000, "10,000"}, {100_000, "100,000"}}},
	}
	for _, n := range connCounts {
		p.x.ticks = append(p.x.ticks, tick{float64(n), fmt.Sprint(n)})
	}
	add := func(name string, loss float64, kind string) {
		s := series{name: fmt.Sprintf("%s, %g %%", name, loss)}
		for _, n := range connCounts {
			s.points = append(s.points, [2]float64{float64(n), float64(v[connKey(n, loss, kind)][mBufs])})
		}
		p.series = append(p.series, s)
	}
	add("aligned, markers", 1, "aligned+markers")
	add("aligned, no markers", 1, "aligned")
	add("unaligned, no markers", 0, "unaligned")
	add("unaligned, markers", 1, "unaligned+markers")
	add("plain TCP", 1, "plain")
	naf := series{name: "one EMSS per connection", dashed: true}
	for _, n := range connCounts {
		naf.points = append(naf.points, [2]float64{float64(n), float64(n)})
	}
	p.series = append(p.series, naf)
	return p
}

func lossFigure(v Values) *plot {
	p := &plot{
		title: fmt.Sprintf("Octets held by %d connections with 2.5 MB in flight", lossConns),
		x:     axis{label: "segments lost, percent", log: true},
		y: axis{label: "octets held, on average", log: true, ticks: []tick{
			{100, "0"}, {1000, "1 kB"}, {10_000, "10 kB"}, {100_000, "100 kB"}, {1_000_000, "1 MB"}, {10_000_000, "10 MB"}}},
	}
	for _, loss := range lossLosses {
		if loss > 0 {
			p.x.ticks = append(p.x.ticks, tick{loss, fmt.Sprint(loss)})
		}
	}
	for _, k := range kinds {
		s := series{name: k.name}
		for _, t := range p.x.ticks {
			s.points = append(s.points, [2]float64{t.at, float64(v[lossKey(t.at, k.key)][mMean])})
		}
		p.series = append(p.series, s)
	}
	return p
}

func segmentsFigure(v Values) *plot {
	p := &plot{
		title: "Segments for a backlog of messages of one FPDU each",
		x:     axis{label: "octets of the FPDU (EMSS is 1448)", ticks: []tick{{0, "0"}, {362, "362"}, {724, "724"}, {1086, "1086"}, {1448, "1448"}}},
		y:     axis{label: "segments, of what a TCP without FPDUs needs (3: or more)", ticks: []tick{{1, "1"}, {1.5, "1.5"}, {2, "2"}, {2.5, "2.5"}, {3, "3"}}},
	}
	for _, c := range []struct {
		name  string
		value int
		least int
	}{{"packed", sNow, sMinimum}, {"packed, markers", sMarkersNow, sMarkersMinimum}, {"cut to fill segments", sFull, sMinimum}, {"one FPDU per segment", sAlone, sMinimum}} {
		s := series{name: c.name}
		for _, n := range fpduSizes {
			cell := v[fmt.Sprintf("fpdu %d", n)]
			s.points = append(s.points, [2]float64{float64(n), float64(cell[c.value]) / float64(cell[c.least])})
		}
		p.series = append(p.series, s)
	}
	return p
}
