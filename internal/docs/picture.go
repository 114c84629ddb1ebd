// Package docs tests the documents: the picture is drawn from its text, and links and paths lead to
// files that exist. Nothing imports it.
package docs

import (
	"fmt"
	"html"
	"slices"
	"strings"
)

//go:generate go test -count=1 -run TestPicture -update .

// box is a step of the way. Col and row count from 0.
type box struct {
	col, row    int
	kind, title string
	lines       []string
}

// arrow leads from one box to the next one in the same row or column.
type arrow struct{ from, to, label string }

// picture is what a text says: see docs/packet.txt.
type picture struct {
	boxes  map[string]*box
	order  []string // names of boxes, as the rows have them
	arrows []arrow
}

// parse reads the text of a picture. An error names the line.
func parse(text string) (*picture, error) {
	p, rows := &picture{boxes: map[string]*box{}}, 0
	for i, line := range strings.Split(text, "\n") {
		line = strings.TrimSpace(line)
		head, tail, described := strings.Cut(line, ":")
		from, to, leads := strings.Cut(head, " > ")
		switch {
		case line == "" || line[0] == '#':
		case !described:
			for col, name := range strings.Fields(line) {
				if name != "." {
					p.boxes[name] = &box{col: col, row: rows}
					p.order = append(p.order, name)
				}
			}
			rows++
		case leads:
			a := arrow{from, to, strings.TrimSpace(tail)}
			f, t := p.boxes[from], p.boxes[to]
			if f == nil || t == nil || (f.col == t.col) == (f.row == t.row) {
				return nil, fmt.Errorf("line %d: an arrow leads from a box to another one in its row or column",
					i+1)
			}
			p.arrows = append(p.arrows, a)
		default:
			b, cells := p.boxes[head], strings.Split(tail, "|")
			if b == nil || len(cells) < 2 || fills[strings.TrimSpace(cells[0])] == "" {
				return nil, fmt.Errorf("line %d: want name: kind | title | lines, of a box in one of the rows",
					i+1)
			}
			for j := range cells {
				cells[j] = strings.TrimSpace(cells[j])
			}
			b.kind, b.title, b.lines = cells[0], cells[1], cells[2:]
		}
	}
	for _, name := range p.order {
		if p.boxes[name].title == "" {
			return nil, fmt.Errorf("box %s has a place and no title", name)
		}
	}
	return p, nil
}

const (
	boxWidth, boxHeight = 176, 78
	gapX, gapY          = 62, 44
	margin              = 8
)

// fills of the kinds. Text in boxes is dark on these; what is outside has a grey that can be read
// on white and on black, so the picture has no background.
var fills = map[string]string{"device": "#d0d7de", "poller": "#b6dcff", "memory": "#ffe2a8",
	"application": "#bfe8c0"}

const (
	ink  = "#1f2328"
	grey = "#7d8590"
)

func (b *box) at() (x, y int) {
	return margin + b.col*(boxWidth+gapX), margin + b.row*(boxHeight+gapY)
}

// svg draws the picture.
func (p *picture) svg() string {
	cols, rows := 0, 0
	for _, b := range p.boxes {
		cols, rows = max(cols, b.col+1), max(rows, b.row+1)
	}
	width, height := 2*margin+cols*boxWidth+(cols-1)*gapX, 2*margin+rows*boxHeight+(rows-1)*gapY
	var s strings.Builder
	fmt.Fprintf(
		&s, `<svg xmlns="http://www.w3.org/2000/svg" width="%d" height="%d" viewBox="0 0 %[1]d %[2]d" `+
			`font-family="sans-serif" font-size="12" text-anchor="middle">`+"\n", width, height)
	fmt.Fprintf(
		&s, `<defs><marker id="tip" markerWidth="6" markerHeight="6" refX="6" refY="3" orient="auto">`+
			`<path d="M0 0L6 3L0 6z" fill="%s"/></marker></defs>`+"\n", grey)
	for _, name := range p.order {
		p.boxes[name].draw(&s)
	}
	for _, a := range p.arrows {
		a.draw(&s, p.boxes[a.from], p.boxes[a.to])
	}
	s.WriteString("</svg>\n")
	return s.String()
}

func (b *box) draw(s *strings.Builder) {
	x, y := b.at()
	fmt.Fprintf(s, `<rect x="%d" y="%d" width="%d" height="%d" rx="6" fill="%s" stroke="%s"/>`+"\n",
		x, y, boxWidth, boxHeight, fills[b.kind], grey)
	fmt.Fprintf(s, `<text x="%d" y="%d" font-size="14" font-weight="bold" fill="%s">%s</text>`+"\n",
		x+boxWidth/2, y+24, ink, html.EscapeString(b.title))
	for i, line := range b.lines {
		fmt.Fprintf(s, `<text x="%d" y="%d" fill="%s">%s</text>`+"\n", x+boxWidth/2, y+46+17*i, ink,
			html.EscapeString(line))
	}
}

func (a *arrow) draw(s *strings.Builder, from, to *box) {
	x1, y1 := from.at()
	x2, y2 := to.at()
	if from.row == to.row {
		y := y1 + boxHeight/2
		ends := []int{x1 + boxWidth, x2}
		if x2 < x1 {
			ends = []int{x1, x2 + boxWidth}
		}
		mid := (slices.Min(ends) + slices.Max(ends)) / 2
		line(s, ends[0], y, ends[1], y)
		label(s, mid, y-8, "middle", a.label)
		return
	}
	x := x1 + boxWidth/2
	ends := []int{y1 + boxHeight, y2}
	if y2 < y1 {
		ends = []int{y1, y2 + boxHeight}
	}
	line(s, x, ends[0], x, ends[1])
	label(s, x+10, (ends[0]+ends[1])/2+4, "start", a.label)
}

func line(s *strings.Builder, x1, y1, x2, y2 int) {
	fmt.Fprintf(s, `<path d="M%d %dL%d %d" stroke="%s" stroke-width="2" marker-end="url(#tip)"/>`+"\n",
		x1, y1, x2, y2, grey)
}

func label(s *strings.Builder, x, y int, anchor, text string) {
	fmt.Fprintf(s, `<text x="%d" y="%d" text-anchor="%s" fill="%s">%s</text>`+"\n", x, y, anchor, grey,
		html.EscapeString(text))
}
