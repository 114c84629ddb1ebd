package top

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rnicd/rnicd/internal/status"
)

// WriteProgramTitle writes the line above those of WriteProgram.
func WriteProgramTitle(w io.Writer) {
	fmt.Fprintf(w, "%8s %-6s %-7s %11s %9s %7s %10s %9s  %s\n", "program", "looks", "driver",
		"connections", "listeners", "regions", "registered", "up", "command")
}

// WriteProgram writes a program of rnicd run in one line.
func WriteProgram(w io.Writer, d *status.Daemon) {
	p, driver := d.Program, ""
	if len(d.Ports) > 0 {
		driver = d.Ports[0].Driver
	}
	fmt.Fprintf(w, "%8d %-6s %-7s %11d %9d %7d %10s %9s  %s\n", d.PID, p.Looks, driver, p.Connections,
		len(p.Listeners), p.Regions, Number(float64(p.RegionOctets)),
		d.At.Sub(d.Started).Round(time.Second), p.Command)
}

// writeProgram writes what a program has.
func writeProgram(w io.Writer, p *status.Program) {
	fmt.Fprintf(w, "\ndevice rnicd0 (%s)  %d queue pairs, %d for datagrams  %d connections  %d regions of "+
		"%s octets\n", p.Looks, p.QueuePairs, p.Datagrams, p.Connections, p.Regions,
		Number(float64(p.RegionOctets)))
	if len(p.Listeners) > 0 {
		at := make([]string, 0, len(p.Listeners))
		for _, a := range p.Listeners {
			at = append(at, address(a))
		}
		fmt.Fprintf(w, "listening at %s\n", strings.Join(at, " "))
	}
}
