package plot

import (
	"fmt"
	"strings"
)

// Bars is a figure with a bar for each of some ratios, the goal of each as a line across it.
type Bars struct {
	Title string
	Rows  []Bar
}

// Bar is one of them. What there is in Low to High is drawn as a line over it.
type Bar struct {
	Name      string
	Value     float64
	Low, High float64
	Text      string // after the bar
	Met       bool
}

const (
	barLeft, barRight = 330, 150
	barPitch          = 26
	barMax            = 2.0 // times the goal: what is beyond is cut off
)

// SVG is the whole file. Values are parts of their goals: 1 is where the line stands.
func (p *Bars) SVG() string {
	const width = 900
	height := plotTop + barPitch*len(p.Rows) + 40
	place := func(v float64) float64 {
		return barLeft + min(max(v, 0), barMax)/barMax*(width-barLeft-barRight)
	}
	var b strings.Builder
	head(&b, width, height)
	text(&b, width/2, 24, "middle", `font-size="15"`, p.Title)
	for i, r := range p.Rows {
		y := float64(plotTop + barPitch*i)
		colour := colours[2]
		if r.Met {
			colour = colours[0]
		}
		text(&b, barLeft-10, y+13, "end", "", r.Name)
		fmt.Fprintf(&b, `<rect x="%d" y="%.1f" width="%.1f" height="16" fill="%s"/>`+"\n", barLeft, y,
			place(r.Value)-barLeft, colour)
		if r.High > 0 {
			fmt.Fprintf(&b, `<path d="M%.1f %.1fH%.1f" stroke="black" stroke-width="2"/>`+"\n", place(r.Low),
				y+8, place(r.High))
		}
		text(&b, width-barRight+10, y+13, "start", "", r.Text)
	}
	bottom := float64(plotTop + barPitch*len(p.Rows))
	fmt.Fprintf(&b, `<path d="M%.1f %dV%.1f" stroke="black" stroke-dasharray="6 4"/>`+"\n", place(1),
		plotTop-8, bottom)
	text(&b, place(1), bottom+18, "middle", "", "the goal")
	b.WriteString("</svg>\n")
	return b.String()
}
