package ccmodel

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/stretchr/testify/require"
)

// documentSeconds is how long the transfers of docs/results/model.tsv last, by round-trip
// time in milliseconds: with losses, and without.
var documentSeconds = map[string][2]float64{"0.1": {1, 0.5}, "10": {20, 5}, "100": {200, 20}}

// docs/results/model.tsv is what the model says. Five percent: on another platform
// products and sums may be fused, and a window process goes another way from the first bit that
// differs.
func TestDocument(t *testing.T) {
	f, err := os.Open("../../../docs/results/model.tsv")
	require.NoError(t, err)
	defer f.Close()
	var rows []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		cells := strings.Split(sc.Text(), "\t")
		if len(cells) == 4 && documentSeconds[cells[0]] != [2]float64{} {
			rows = append(rows, sc.Text())
		}
	}
	require.Len(t, rows, 12)
	for _, row := range sample.Of(t, 3, rows) {
		cells := strings.Split(row, "\t")
		number := func(s string) float64 {
			v, err := strconv.ParseFloat(s, 64)
			require.NoError(t, err, row)
			return v
		}
		p := tenGigabit(number(cells[0])/1000, number(cells[1])/100, 1448)
		seconds := documentSeconds[cells[0]][0]
		if p.Loss == 0 {
			seconds = documentSeconds[cells[0]][1]
		}
		for i, name := range []string{"reno", "cubic"} {
			got := Goodput(name, p, seconds) / 1e6
			t.Logf("RTT %s ms, loss %s %%, %s: %.4g Mbit/s", cells[0], cells[1], name, got)
			within(t, row, number(cells[2+i]), got, 0.05)
		}
	}
}
