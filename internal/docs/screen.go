package docs

import (
	"fmt"
	"html"
	"strings"
)

// Measures of a screen in pixels.
const (
	screenColumn = 7.8
	screenLine   = 18
	screenEdge   = 14
)

// screen draws what a terminal has shown. Commands, which begin with $, are brighter, and titles,
// the line with the sorted column's *, are as top shows them.
func screen(text string) string {
	lines := strings.Split(strings.TrimRight(text, "\n"), "\n")
	columns := 0
	for _, l := range lines {
		columns = max(columns, len(l))
	}
	width, height := int(float64(columns)*screenColumn)+2*screenEdge,
		len(lines)*screenLine+2*screenEdge
	var b strings.Builder
	fmt.Fprintf(
		&b,
		`<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" font-family="DejaVu Sans Mono, Menlo, Consolas, monospace" font-size="13">`+"\n", width, height, width, height)
	fmt.Fprintf(&b, `<rect width="%d" height="%d" rx="8" fill="#1d2430"/>`+"\n", width, height)
	for i, l := range lines {
		y, fill := screenEdge+(i+1)*screenLine-5, "#d5dbe3"
		switch {
		case strings.HasPrefix(l, "$"):
			fill = "#8fd18f"
		case strings.HasPrefix(l, "*"):
			fill = "#1d2430"
			fmt.Fprintf(&b, `<rect x="%d" y="%d" width="%d" height="%d" fill="#d5dbe3"/>`+"\n", screenEdge,
				y-13, width-2*screenEdge, screenLine)
		}
		fmt.Fprintf(&b, `<text x="%d" y="%d" fill="%s" xml:space="preserve" textLength="%.0f">%s</text>`+
			"\n", screenEdge, y, fill, float64(len(l))*screenColumn, html.EscapeString(l))
	}
	b.WriteString("</svg>\n")
	return b.String()
}
