package ccmodel

import (
	"bufio"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
)

// documentSeconds is how long the transfers of the table in docs/results/congestion.md last, by round-trip
// time in milliseconds: with losses, and without.
var documentSeconds = map[string][2]float64{"0.1": {1, 0.5}, "10": {20, 5}, "100": {200, 20}}

// The table of docs/results/congestion.md is what the model says. Five percent: on another platform
// products and sums may be fused, and a window process goes another way from the first bit that
// differs.
func TestDocument(t *testing.T) {
	f, err := os.Open("../../docs/results/congestion.md")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var rows []string
	for sc := bufio.NewScanner(f); sc.Scan(); {
		cells := strings.Split(strings.ReplaceAll(sc.Text(), " ", ""), "|")
		if len(cells) == 6 && documentSeconds[cells[1]] != [2]float64{} {
			rows = append(rows, sc.Text())
		}
	}
	if len(rows) != 12 {
		t.Errorf("%d rows, want 12", len(rows))
	}
	for _, row := range sample.Of(t, 3, rows) {
		cells := strings.Split(strings.ReplaceAll(row, " ", ""), "|")
		number := func(s string) float64 {
			v, err := strconv.ParseFloat(s, 64)
			if err != nil {
				t.Fatalf("%s: %v", row, err)
			}
			return v
		}
		p := tenGigabit(number(cells[1])/1000, number(cells[2])/100, 1448)
		seconds := documentSeconds[cells[1]][0]
		if p.Loss == 0 {
			seconds = documentSeconds[cells[1]][1]
		}
		for i, name := range []string{"reno", "cubic"} {
			got := Goodput(name, p, seconds) / 1e6
			t.Logf("RTT %s ms, loss %s %%, %s: %.4g Mbit/s", cells[1], cells[2], name, got)
			within(t, row, number(cells[3+i]), got, 0.05)
		}
	}
}
