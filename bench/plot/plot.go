// Package plot draws the figures of docs/results: SVG, on a ground of its own, so that they are
// legible on a light page and on a dark one.
package plot

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// Plot is a figure with lines: as much SVG as that takes, and nothing that depends on the machine.
type Plot struct {
	Title  string
	X, Y   Axis
	Series []Series
}

// Axis from the first to the last of its ticks. A value below a logarithmic axis is drawn on its
// end: the first tick may be called 0.
type Axis struct {
	Label string
	Log   bool
	Ticks []Tick
}

// Tick is a value of an Axis that is named.
type Tick struct {
	At   float64
	Name string
}

// Series is one line. It is drawn over those before it.
type Series struct {
	Name   string
	Dashed bool
	Points [][2]float64
}

const (
	plotWidth, plotHeight = 760, 460
	plotLeft, plotRight   = 90, 230 // margins; the legend stands in the right one
	plotTop, plotBottom   = 50, 60
)

// colours are told apart by people who see red and green alike (M. Okabe, K. Ito, 2002), and the
// lines by their marks.
var colours = []string{"#0072b2", "#56b4e9", "#d55e00", "#e69f00", "#009e73", "#cc79a7", "#000000"}

// place is where v stands between lo and hi.
func (a Axis) place(v, lo, hi float64) float64 {
	from, to := a.Ticks[0].At, a.Ticks[len(a.Ticks)-1].At
	v = min(max(v, from), to)
	if a.Log {
		from, to, v = math.Log(from), math.Log(to), math.Log(v)
	}
	return lo + (v-from)/(to-from)*(hi-lo)
}

// SVG is the whole file.
func (p *Plot) SVG() string {
	var b strings.Builder
	head(&b, plotWidth, plotHeight)
	text(&b, plotWidth/2, 24, "middle", `font-size="15"`, p.Title)
	p.frame(&b)
	for i, s := range p.Series {
		// the first are thick, so that they show under the last
		p.line(&b, i, s, 2+1.5*float64(len(p.Series)-1-i))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// head begins a file, with a white ground.
func head(b *strings.Builder, width, height int) {
	fmt.Fprintf(
		b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
			`font-family="sans-serif" font-size="12">`+"\n", width, height)
	fmt.Fprintf(b, `<rect width="%d" height="%d" fill="white"/>`+"\n", width, height)
}

func text(b *strings.Builder, x, y float64, anchor, more, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, more,
		html.EscapeString(s))
}

// frame is the axes with their ticks and names.
func (p *Plot) frame(b *strings.Builder) {
	const right, bottom = plotWidth - plotRight, plotHeight - plotBottom
	for _, t := range p.X.Ticks {
		x := p.X.place(t.At, plotLeft, right)
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" stroke="#dddddd"/>`+"\n", x, plotTop, bottom)
		text(b, x, bottom+18, "middle", "", t.Name)
	}
	for _, t := range p.Y.Ticks {
		y := p.Y.place(t.At, bottom, plotTop)
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#dddddd"/>`+"\n", plotLeft, y, right)
		text(b, plotLeft-8, y+4, "end", "", t.Name)
	}
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="black"/>`+"\n", plotLeft, plotTop,
		bottom, right)
	text(b, (plotLeft+right)/2, plotHeight-16, "middle", "", p.X.Label)
	text(b, 0, 0, "middle", fmt.Sprintf(`transform="translate(20 %d) rotate(-90)"`,
		(plotTop+bottom)/2), p.Y.Label)
}

// line draws Series i and its place in the legend.
func (p *Plot) line(b *strings.Builder, i int, s Series, width float64) {
	const right, bottom = plotWidth - plotRight, plotHeight - plotBottom
	colour, dash := colours[i%len(colours)], ""
	if s.Dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	var at []string
	for _, q := range s.Points {
		at = append(at, fmt.Sprintf("%.1f,%.1f", p.X.place(q[0], plotLeft, right),
			p.Y.place(q[1], bottom, plotTop)))
	}
	y := float64(plotTop + 10 + 24*i)
	legend := fmt.Sprintf("%d,%.1f %d,%.1f", right+14, y, right+38, y)
	for _, points := range []string{strings.Join(at, " "), legend} {
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%.1f"%s/>`+"\n",
			points, colour, width, dash)
	}
	for _, q := range append(at, fmt.Sprintf("%d,%.1f", right+26, y)) {
		x, y, _ := strings.Cut(q, ",")
		b.WriteString(mark(i, x, y, colour))
	}
	text(b, right+44, y+4, "start", "", s.Name)
}

// mark is the sign of series i at one place.
func mark(i int, x, y, colour string) string {
	shape := [...]string{"-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "-4 -4h8v8h-8z", "0 -5l5 9h-10z",
		"0 -5l5 5l-5 5l-5 -5z", "0 5l5 -9h-10z"}[i%5]
	return fmt.Sprintf(`<path transform="translate(%s %s)" d="M%s" fill="%s"/>`+"\n", x, y,
		shape, colour)
}
