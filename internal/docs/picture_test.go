package docs

import (
	"encoding/xml"
	"flag"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var update = flag.Bool("update", false, "draw docs/packet.svg again")

// The picture is what its text says.
func TestPicture(t *testing.T) {
	text, err := os.ReadFile("../../docs/packet.txt")
	require.NoError(t, err)
	p, err := parse(string(text))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile("../../docs/packet.svg", []byte(p.svg()), 0o644))
	}
	svg, err := os.ReadFile("../../docs/packet.svg")
	require.NoError(t, err)
	require.Equal(t, p.svg(), string(svg),
		"docs/packet.svg is not what docs/packet.txt says: go generate ./internal/docs")
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
	}
}

// A text that says nothing that can be drawn is refused, with its line.
func TestPictureMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"a b\na: poller | A\nb: memory | B\na > b: x": "",
		"a b\na: poller | A":                          "box b has a place and no title",
		"a b\n\nc: poller | C": "line 3: want name: kind | title " +
			"| lines, of a box in one of the rows",
		"a\na: cloud | A": "line 2: want name: kind | title " +
			"| lines, of a box in one of the rows",
		"a .\n. b\na: poller | A\nb: memory | B\na > b: aslant":     "line 5: an arrow leads from a box to another one in its row or column",
		"# a\na\na: poller | A\na > nobody: gone":                   "line 4: an arrow leads from a box to another one in its row or column",
		"a b c\na: device | A\nb: poller | B\nc: application | <C>": "",
	} {
		p, err := parse(text)
		if want == "" {
			require.NoError(t, err, text)
			require.NotContains(t, p.svg(), "<C>")
		} else {
			require.EqualError(t, err, want, text)
		}
	}
}
