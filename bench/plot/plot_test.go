package plot

import (
	"encoding/xml"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// elements are the start tags of a figure, which is well-formed XML.
func elements(t *testing.T, svg string) map[string]int {
	t.Helper()
	n := map[string]int{}
	d := xml.NewDecoder(strings.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			return n
		}
		require.NoError(t, err)
		if s, ok := token.(xml.StartElement); ok {
			n[s.Name.Local]++
		}
	}
}

func TestFiguresAreXMLOnAWhiteGround(t *testing.T) {
	lines := Plot{
		Title: "a < b", X: Axis{Ticks: []Tick{{At: 0, Name: "0"}, {At: 1, Name: "1"}}},
		Y:      Axis{Ticks: []Tick{{At: 0, Name: "0"}, {At: 1, Name: "1"}}},
		Series: []Series{{Name: "s & t", Points: [][2]float64{{0, 0}, {1, 1}}}},
	}
	bars := Bars{Title: "a < b",
		Rows: []Bar{{Name: "<x>", Value: 3, Text: "&"},
			{Name: "y", Value: 0.5, Low: 0.4, High: 0.6, Met: true}}}
	for _, svg := range []string{lines.SVG(), bars.SVG()} {
		n := elements(t, svg)
		require.Equal(t, 1, n["svg"])
		require.Contains(t, svg, `fill="white"`)
		require.Positive(t, n["text"])
	}
	require.Equal(t, 3, elements(t, bars.SVG())["rect"], "the ground and two bars")
	require.Contains(t, bars.SVG(), colours[2])
}
