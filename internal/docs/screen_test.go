package docs

import (
	"encoding/xml"
	"io"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The picture of rnicd top is what its text says, which is its output, each line within 80 columns.
func TestScreen(t *testing.T) {
	text, err := os.ReadFile("../../docs/monitoring/top.txt")
	require.NoError(t, err)
	for line := range strings.Lines(string(text)) {
		if !strings.HasPrefix(line, "drops: ") {
			require.LessOrEqual(t, len(line)-1, 80)
		}
	}
	if *update {
		require.NoError(
			t, os.WriteFile("../../docs/monitoring/top.svg", []byte(screen(string(text))), 0o644))
	}
	svg, err := os.ReadFile("../../docs/monitoring/top.svg")
	require.NoError(t, err)
	require.Equal(t, screen(string(text)), string(svg),
		"docs/monitoring/top.svg is not what top.txt says: go test ./internal/docs -update")
	for d := xml.NewDecoder(strings.NewReader(string(svg))); ; {
		if _, err := d.Token(); err == io.EOF {
			break
		} else {
			require.NoError(t, err)
		}
	}
}
