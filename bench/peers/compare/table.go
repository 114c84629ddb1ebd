package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// table collects samples by cell.
type table struct {
	samples map[cell][]sample
}

func newTable() *table { return &table{make(map[cell][]sample)} }

func (t *table) add(c cell, s sample) { t.samples[c] = append(t.samples[c], s) }

// column is one value of all samples of a cell, in order.
func (t *table) column(c cell, of func(sample) float64) []float64 {
	var v []float64
	for _, s := range t.samples[c] {
		v = append(v, of(s))
	}
	slices.Sort(v)
	return v
}

// median of sorted values; 0 of none.
func median(v []float64) float64 {
	n := len(v)
	switch {
	case n == 0:
		return 0
	case n%2 == 1:
		return v[n/2]
	}
	return (v[n/2-1] + v[n/2]) / 2
}

func goodput(s sample) float64   { return s.gbps }
func stackCPU(s sample) float64  { return s.stackCPU }
func kernelCPU(s sample) float64 { return s.kernelCPU }

// print writes the table: one row per cell, the first peer's goodput over each one's in the last
// column but two.
func (t *table) print(w io.Writer, p *plan) {
	first := p.peers[0].name
	fmt.Fprintf(w, "| MTU | way | stack | Gbit/s | %s is | CPU s/GiB | other end's "+
		"|\n|---|---|---|---|---|---|---|\n", first)
	for _, mtu := range p.mtus {
		for _, d := range p.ways {
			base := median(t.column(cell{mtu, d, first}, goodput))
			for _, e := range p.peers {
				c := cell{mtu, d, e.name}
				v := t.column(c, goodput)
				if len(v) == 0 {
					fmt.Fprintf(w, "| %d | %s | %s | failed | | | |\n", mtu, words[d], e.name)
					continue
				}
				fmt.Fprintf(w, "| %d | %s | %s | %.2f (%.2f to %.2f) | %s | %.3f | %.3f |\n", mtu, words[d],
					e.name, median(v), v[0],
					v[len(v)-1], ratio(base, median(v)), median(t.column(c, stackCPU)),
					median(t.column(c, kernelCPU)))
			}
		}
	}
}

// printJSON writes all cells with their goodputs, least first: MTU by MTU, way by way, the peers in
// the order they were named in.
func (t *table) printJSON(w io.Writer, p *plan) error {
	type row struct {
		MTU       int
		Way, Peer string
		Gbps      []float64
	}
	var rows []row
	for _, mtu := range p.mtus {
		for _, d := range p.ways {
			for _, e := range p.peers {
				rows = append(rows, row{mtu, words[d], e.name, t.column(cell{mtu, d, e.name}, goodput)})
			}
		}
	}
	return json.NewEncoder(w).Encode(rows)
}

var words = map[way]string{in: "kernel -> stack", out: "stack -> kernel"}

// ratio of the first peer's goodput to another's.
func ratio(base, other float64) string {
	if base == 0 || other == 0 {
		return "-"
	}
	return fmt.Sprintf("%.2fx", base/other)
}
