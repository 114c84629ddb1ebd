package analysis

import (
	"fmt"
	"html"
	"math"
	"strings"
)

// plot is a figure with lines: as much SVG as that takes, and nothing that depends on the machine.
type plot struct {
	title  string
	x, y   axis
	series []series
}

// axis from the first to the last of its ticks. A value below a logarithmic axis is drawn on its
// end: the first tick may be called 0.
type axis struct {
	label string
	log   bool
	ticks []tick
}

type tick struct {
	at   float64
	name string
}

// series is one line. It is drawn over those before it.
type series struct {
	name   string
	dashed bool
	points [][2]float64
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
func (a axis) place(v, lo, hi float64) float64 {
	from, to := a.ticks[0].at, a.ticks[len(a.ticks)-1].at
	v = min(max(v, from), to)
	if a.log {
		from, to, v = math.Log(from), math.Log(to), math.Log(v)
	}
	return lo + (v-from)/(to-from)*(hi-lo)
}

// svg is the whole file.
func (p *plot) svg() string {
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
		`font-family="sans-serif" font-size="12">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" fill="white"/>`+"\n", plotWidth, plotHeight)
	text(&b, plotWidth/2, 24, "middle", `font-size="15"`, p.title)
	p.frame(&b)
	for i, s := range p.series {
		p.line(&b, i, s, 2+1.5*float64(len(p.series)-1-i)) // the first are thick, so that they show under the last
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func text(b *strings.Builder, x, y float64, anchor, more, s string) {
	fmt.Fprintf(b, `<text x="%.1f" y="%.1f" text-anchor="%s" %s>%s</text>`+"\n", x, y, anchor, more, html.EscapeString(s))
}

// frame is the axes with their ticks and names.
func (p *plot) frame(b *strings.Builder) {
	const right, bottom = plotWidth - plotRight, plotHeight - plotBottom
	for _, t := range p.x.ticks {
		x := p.x.place(t.at, plotLeft, right)
		fmt.Fprintf(b, `<path d="M%.1f %dV%d" stroke="#dddddd"/>`+"\n", x, plotTop, bottom)
		text(b, x, bottom+18, "middle", "", t.name)
	}
	for _, t := range p.y.ticks {
		y := p.y.place(t.at, bottom, plotTop)
		fmt.Fprintf(b, `<path d="M%d %.1fH%d" stroke="#dddddd"/>`+"\n", plotLeft, y, right)
		text(b, plotLeft-8, y+4, "end", "", t.name)
	}
	fmt.Fprintf(b, `<path d="M%d %dV%dH%d" fill="none" stroke="black"/>`+"\n", plotLeft, plotTop, bottom, right)
	text(b, (plotLeft+right)/2, plotHeight-16, "middle", "", p.x.label)
	text(b, 0, 0, "middle", fmt.Sprintf(`transform="translate(20 %d) rotate(-90)"`, (plotTop+bottom)/2), p.y.label)
}

// line draws series i and its place in the legend.
func (p *plot) line(b *strings.Builder, i int, s series, width float64) {
	const right, bottom = plotWidth - plotRight, plotHeight - plotBottom
	colour, dash := colours[i%len(colours)], ""
	if s.dashed {
		dash = ` stroke-dasharray="6 4"`
	}
	var at []string
	for _, q := range s.points {
		at = append(at, fmt.Sprintf("%.1f,%.1f", p.x.place(q[0], plotLeft, right), p.y.place(q[1], bottom, plotTop)))
	}
	y := float64(plotTop + 10 + 24*i)
	legend := fmt.Sprintf("%d,%.1f %d,%.1f", right+14, y, right+38, y)
	for _, points := range []string{strings.Join(at, " "), legend} {
		fmt.Fprintf(b, `<polyline points="%s" fill="none" stroke="%s" stroke-width="%.1f"%s/>`+"\n", points, colour, width, dash)
	}
	for _, q := range append(at, fmt.Sprintf("%d,%.1f", right+26, y)) {
		x, y, _ := strings.Cut(q, ",")
		b.WriteString(mark(i, x, y, colour))
	}
	text(b, right+44, y+4, "start", "", s.name)
}

// mark is the sign of series i at one place.
func mark(i int, x, y, colour string) string {
	shape := [...]string{"-4 0a4 4 0 1 0 8 0a4 4 0 1 0 -8 0", "-4 -4h8v8h-8z", "0 -5l5 9h-10z", "0 -5l5 5l-5 5l-5 -5z", "0 5l5 -9h-10z"}[i%5]
	return fmt.Sprintf(`<path transform="translate(%s %s)" d="M%s" fill="%s"/>`+"\n", x, y, shape, colour)
}
