package main

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
)

var interopTable = flag.String("interop", "",
	"run all cells of the interoperation matrix, and write a table of them to this file")

// Sizes of a cell's transfer, and how often one may be spoilt by a machine that is busy with
// something else.
const (
	interopOctets     = 32 << 20
	interopOctetsFew  = 2 << 20
	interopTries      = 3
	interopSlowOctets = 8 << 20 // of MTU 576, and where segments are lost
)

// quickCells have every value of every dimension at least once.
func quickCells() []cell {
	return []cell{
		{device: devicePlain, mtu: 1500, family: 4, flow: flowIn, kernel: "cubic"},
		{device: devicePlain, mtu: 1500, family: 4, flow: flowOut, us: "cubic", weDial: true},
		{device: devicePlain, mtu: 576, family: 4, flow: flowIn, kernel: "bbr", weDial: true},
		{device: devicePlain, mtu: 576, family: 4, flow: flowOut},
		{device: devicePlain, mtu: 9000, family: 6, flow: flowOut, us: "reno"},
		{device: devicePlain, mtu: 9000, family: 4, flow: flowIn, kernel: "reno"},
		{device: devicePlain, mtu: 1500, family: 6, flow: flowBidir, weDial: true},
		{device: devicePlain, mtu: 576, family: 4, flow: flowBidir},
		{device: deviceTap, mtu: 1500, family: 6, flow: flowIn, streams: 4},
		{device: deviceTap, mtu: 9000, family: 4, flow: flowOut, weDial: true},
		{device: deviceVeth, mtu: 1500, family: 4, flow: flowIn},
		{device: deviceVeth, mtu: 1500, family: 6, flow: flowOut, weDial: true},
		{device: devicePlain, mtu: 1500, family: 4, flow: flowOut, ecn: true, weDial: true,
			sysctl: "net.ipv4.tcp_ecn=1"},
		{device: devicePlain, mtu: 1500, family: 4, flow: flowBidir, fault: badNetwork},
	}
}

// badNetwork loses, reorders and doubles in both directions, at our end of the link.
const badNetwork = "drop=0.5%,reorder=1%,dup=0.5%,seed=7"

// allCells is the matrix.
func allCells() (all []cell) {
	for _, device := range []string{deviceTap, devicePlain, deviceVeth} {
		for _, mtu := range []int{576, 1500, 9000} {
			if device == deviceVeth && mtu > 1500 {
				continue // DPDK's net_af_packet takes no more
			}
			for _, family := range []int{4, 6} {
				if mtu < 1280 && family == 6 {
					continue
				}
				for _, weDial := range []bool{false, true} {
					c := cell{device: device, mtu: mtu, family: family, weDial: weDial}
					for _, c.kernel = range []string{"cubic", "reno", "bbr"} {
						all = append(all, c)
					}
					c.kernel, c.flow = "", flowOut
					all = append(all, c)
				}
			}
		}
		for _, weDial := range []bool{false, true} {
			c := cell{device: device, mtu: 1500, family: 4, weDial: weDial}
			for _, c.streams = range []int{1, 4} {
				for _, c.flow = range []flow{flowIn, flowOut, flowBidir} {
					if c.streams > 1 || c.flow == flowBidir {
						all = append(all, c)
					}
				}
			}
		}
	}
	return append(all, optionCells()...)
}

// optionCells have TCP options of the kernel switched off one by one, and ECN and our congestion
// controls on.
func optionCells() (all []cell) {
	for _, sysctl := range []string{
		"tcp_sack=0", "tcp_timestamps=0", "tcp_window_scaling=0", "tcp_dsack=0", "tcp_ecn=1",
	} {
		for _, weDial := range []bool{false, true} {
			c := cell{device: devicePlain, mtu: 1500, family: 4, weDial: weDial,
				sysctl: "net.ipv4." + sysctl}
			c.ecn = sysctl == "tcp_ecn=1"
			for _, c.flow = range []flow{flowIn, flowOut} {
				for _, c.fault = range []string{"", badNetwork} {
					all = append(all, c)
				}
			}
		}
	}
	for _, device := range []string{devicePlain, deviceVeth} {
		for _, control := range []string{"cubic", "reno", "bbr"} {
			all = append(all, cell{device: device, mtu: 1500, family: 6, kernel: control, fault: badNetwork})
		}
		for _, control := range []string{"cubic", "reno"} {
			all = append(all, cell{device: device, mtu: 1500, family: 6, flow: flowOut, us: control,
				fault: badNetwork})
		}
	}
	for _, us := range []string{"reno", "dctcp"} {
		all = append(all, cell{device: devicePlain, mtu: 1500, family: 4, flow: flowOut, us: us})
	}
	return all
}

// complete fills in what a cell leaves open.
func (c cell) complete() cell {
	c.streams = max(c.streams, 1)
	if c.kernel == "" {
		c.kernel = "cubic"
	}
	if c.us == "" {
		c.us = "cubic"
	}
	return c
}

// Our TCP and the Linux kernel's, each in both roles: all octets arrive, on a clean link next to
// nothing is sent twice, and every frame is right.
//
// req: 9293-MUST-2, 9293-MUST-14, 9293-MAY-18, 8200-8.1-1
func TestInterop(t *testing.T) {
	netlab.NeedTshark(t)
	cells, full := sample.Of(t, 3, quickCells()), *interopTable != ""
	if full {
		cells = allCells()
	}
	var table interopResults
	for _, c := range cells {
		if !hasDevice(t, c.device) {
			continue
		}
		c = c.complete()
		t.Run(c.String(), func(t *testing.T) {
			n := interopOctetsFew
			switch {
			case full && (c.mtu < 1000 || c.fault != ""):
				n = interopSlowOctets
			case full:
				n = interopOctets
			}
			// under the race detector we are too slow for the kernel's timers
			noisy := c.fault != "" || raceEnabled
			var o outcome
			for range interopTries {
				if o = c.run(t, n); o.clean() || noisy {
					break
				}
				t.Logf("not clean: %+v", o)
			}
			table.add(c, &o)
			if !noisy {
				require.True(t, o.clean(), "%+v", o)
			}
		})
	}
	if full {
		require.NoError(t, os.WriteFile(*interopTable, []byte(table.String()), 0o644))
	}
}

// interopResults is a table with a row for all cells that differ only in which way octets go.
type interopResults struct {
	rows  []string
	cells map[string]*[len(ways)]string
}

// add enters the goodput in Gbit/s, and after it how many segments were sent again, if any were.
func (r *interopResults) add(c cell, o *outcome) {
	row := c.row()
	if r.cells[row] == nil {
		if r.cells == nil {
			r.cells = map[string]*[len(ways)]string{}
		}
		r.cells[row] = new([len(ways)]string)
		r.rows = append(r.rows, row)
	}
	text := fmt.Sprintf("%.2f", o.gbit)
	if n := max(o.retransmits, o.resent()); n > 0 {
		text += fmt.Sprintf(" (%d)", n)
	}
	r.cells[row][c.way()] = text
}

func (r *interopResults) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "| Gbit/s | %s |\n|---|%s\n", strings.Join(ways[:], " | "),
		strings.Repeat("---|", len(ways)))
	for _, row := range r.rows {
		fmt.Fprintf(&b, "| %s | %s |\n", row, strings.Join(r.cells[row][:], " | "))
	}
	return b.String()
}
